//! LIO: `saveconfig.json`, as targetcli and rtslib write it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::draft::{Host, Lun, MappedLun, Portal, Target, Users};
use super::report::{Imported, address, plain_name};

/// The fabric whose targets are imported.
const ISCSI: &str = "iscsi";

#[derive(Deserialize)]
struct Saved {
    #[serde(default)]
    fabric_modules: Vec<Fabric>,
    #[serde(default)]
    storage_objects: Vec<StorageObject>,
    #[serde(default)]
    targets: Vec<SavedTarget>,
}

#[derive(Deserialize)]
struct Fabric {
    #[serde(default)]
    name: String,
    #[serde(default)]
    discovery_enable_auth: bool,
    #[serde(flatten)]
    users: ChapUsers,
}

#[derive(Deserialize)]
struct StorageObject {
    name: String,
    plugin: String,
    dev: Option<String>,
    size: Option<u64>,
    wwn: Option<String>,
    #[serde(default)]
    readonly: bool,
    #[serde(default)]
    attributes: BTreeMap<String, Value>,
    #[serde(default)]
    alua_tpgs: Vec<Value>,
}

#[derive(Deserialize)]
struct SavedTarget {
    #[serde(default)]
    fabric: String,
    wwn: String,
    #[serde(default)]
    tpgs: Vec<Tpg>,
}

#[derive(Deserialize)]
struct Tpg {
    #[serde(default = "first_tag")]
    tag: u16,
    #[serde(default = "yes")]
    enable: bool,
    #[serde(default)]
    attributes: BTreeMap<String, Value>,
    #[serde(default)]
    parameters: BTreeMap<String, Value>,
    #[serde(flatten)]
    users: ChapUsers,
    #[serde(default)]
    luns: Vec<SavedLun>,
    #[serde(default)]
    node_acls: Vec<NodeAcl>,
    #[serde(default)]
    portals: Vec<SavedPortal>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ChapUsers {
    #[serde(rename = "chap_userid", alias = "discovery_userid")]
    user: Option<String>,
    #[serde(rename = "chap_password", alias = "discovery_password")]
    password: Option<String>,
    #[serde(rename = "chap_mutual_userid", alias = "discovery_mutual_userid")]
    mutual_user: Option<String>,
    #[serde(rename = "chap_mutual_password", alias = "discovery_mutual_password")]
    mutual_password: Option<String>,
}

#[derive(Deserialize)]
struct SavedLun {
    index: u16,
    storage_object: String,
}

#[derive(Deserialize)]
struct NodeAcl {
    node_wwn: String,
    #[serde(flatten)]
    users: ChapUsers,
    #[serde(default)]
    mapped_luns: Vec<SavedMappedLun>,
}

#[derive(Deserialize)]
struct SavedMappedLun {
    index: u16,
    tpg_lun: u16,
    #[serde(default)]
    write_protect: bool,
}

#[derive(Deserialize)]
struct SavedPortal {
    ip_address: String,
    #[serde(default = "default_port")]
    port: u16,
    #[serde(default)]
    iser: bool,
}

fn first_tag() -> u16 {
    1
}

fn yes() -> bool {
    true
}

fn default_port() -> u16 {
    3260
}

/// Keys of a login that can be said in `session`. LIO writes all values as text.
const SESSION_KEYS: [(&str, &str); 6] = [
    ("MaxRecvDataSegmentLength", "max_recv_data_segment_length"),
    ("MaxBurstLength", "max_burst_length"),
    ("FirstBurstLength", "first_burst_length"),
    ("MaxOutstandingR2T", "max_outstanding_r2t"),
    ("DefaultTime2Wait", "default_time2wait"),
    ("ErrorRecoveryLevel", "error_recovery_level"),
];

pub(super) fn import(text: &str, mut imported: Imported) -> Result<Imported, String> {
    let saved: Saved = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let asks = |fabric: &&Fabric| fabric.name == ISCSI && fabric.discovery_enable_auth;
    for fabric in saved.fabric_modules.iter().filter(asks) {
        imported.draft.discovery = read_users("discovery", &fabric.users, &mut imported);
    }
    let disks: BTreeMap<String, &StorageObject> = saved
        .storage_objects
        .iter()
        .map(|object| (format!("/backstores/{}/{}", object.plugin, object.name), object))
        .collect();
    for target in &saved.targets {
        if target.fabric == ISCSI {
            import_target(target, &disks, &mut imported);
        } else {
            imported.note(&target.wwn, format!("a target of the fabric {}", target.fabric));
        }
    }
    Ok(imported)
}

fn read_users(owner: &str, users: &ChapUsers, imported: &mut Imported) -> Users {
    let mut user = |user: &Option<String>, secret: &Option<String>| {
        let (user, secret) = (user.as_deref()?, secret.as_deref()?);
        (!user.is_empty()).then(|| imported.user(owner, user, secret))
    };
    let chap: Vec<_> = user(&users.user, &users.password).into_iter().collect();
    let mutual_chap = user(&users.mutual_user, &users.mutual_password).filter(|_| !chap.is_empty());
    Users { chap, mutual_chap }
}

fn import_target(saved: &SavedTarget, disks: &BTreeMap<String, &StorageObject>, imported: &mut Imported) {
    let mut tpgs = saved.tpgs.iter();
    let Some(tpg) = tpgs.next() else { return imported.note(&saved.wwn, "a target without a portal group") };
    for other in tpgs {
        imported.note(
            &saved.wwn,
            format!("portal group {}: a target of ours has the same LUNs and hosts in all", other.tag),
        );
    }
    if !tpg.enable {
        return imported.note(&saved.wwn, "the target is not enabled");
    }
    portals(saved, tpg, imported);
    let mut target = Target { name: saved.wwn.clone(), ..Target::default() };
    for lun in &tpg.luns {
        let place = format!("{}, LUN {}", saved.wwn, lun.index);
        match disks.get(&lun.storage_object) {
            Some(disk) => target.lun.extend(import_lun(lun.index, disk, &place, imported)),
            None => imported.note(place, format!("{} is not in the file", lun.storage_object)),
        }
    }
    parameters(saved, tpg, &mut target, imported);
    access(saved, tpg, &mut target, imported);
    imported.draft.target.push(target);
}

/// All portals of ours lead to all targets.
fn portals(saved: &SavedTarget, tpg: &Tpg, imported: &mut Imported) {
    for portal in &tpg.portals {
        let address = address(&portal.ip_address, Some(&portal.port.to_string()));
        if portal.iser {
            imported.note(&saved.wwn, format!("portal {address}: iSER"));
        }
        let portal = Portal { address, group: tpg.tag.max(1) };
        if !imported.draft.portal.iter().any(|known| known.address == portal.address) {
            imported.draft.portal.push(portal);
        }
    }
}

fn import_lun(number: u16, disk: &StorageObject, place: &str, imported: &mut Imported) -> Option<Lun> {
    let path = match (disk.plugin.as_str(), &disk.dev) {
        ("block" | "fileio", Some(dev)) => dev.clone(),
        ("ramdisk", _) => format!("mem:{}", disk.size.unwrap_or_default()),
        (plugin, _) => {
            imported.note(place, format!("{}: a backstore of the kind {plugin}", disk.name));
            return None;
        }
    };
    if disk.alua_tpgs.len() > 1 {
        imported.note(place, "target port groups (ALUA); see port_group of the target");
    }
    let block_size = disk.attributes.get("block_size").and_then(number_of).filter(|size| *size != 512);
    if let Some(other) = block_size.filter(|size| *size != 4096) {
        imported.note(place, format!("blocks of {other} bytes"));
        return None;
    }
    let block_size = block_size.and_then(|size| size.try_into().ok());
    Some(Lun { number, disk: path, block_size, read_only: disk.readonly, serial: disk.wwn.clone(), ..Lun::default() })
}

fn parameters(saved: &SavedTarget, tpg: &Tpg, target: &mut Target, imported: &mut Imported) {
    target.max_connections = tpg.parameters.get("MaxConnections").and_then(number_of).and_then(|n| n.try_into().ok());
    for (theirs, ours) in SESSION_KEYS {
        if let Some(number) = tpg.parameters.get(theirs).and_then(number_of) {
            let is_length = theirs.ends_with("Length");
            // Sizes are texts, and the longest segment that we may declare is one byte short of 16 MiB.
            let value = if is_length {
                number.min((1 << 24) - 1).to_string().into()
            } else {
                toml::Value::Integer(number.cast_signed())
            };
            target.session.insert(ours, value);
        }
    }
    for (theirs, ours) in [("InitialR2T", "initial_r2t"), ("ImmediateData", "immediate_data")] {
        if let Some(Value::String(text)) = tpg.parameters.get(theirs) {
            target.session.insert(ours, text.eq_ignore_ascii_case("yes").into());
        }
    }
    for digest in ["HeaderDigest", "DataDigest"] {
        if let Some(Value::String(offered)) = tpg.parameters.get(digest)
            && !offered.contains("None")
        {
            imported.note(&saved.wwn, format!("{digest}={offered}: initiators choose their digests"));
        }
    }
}

/// Which initiators may log in, and what they see.
fn access(saved: &SavedTarget, tpg: &Tpg, target: &mut Target, imported: &mut Imported) {
    let is_set = |name: &str| tpg.attributes.get(name).and_then(number_of) == Some(1);
    let asks_for_proof = is_set("authentication");
    for acl in &tpg.node_acls {
        let name = plain_name(&acl.node_wwn);
        let users = if asks_for_proof { read_users(&acl.node_wwn, &acl.users, imported) } else { Users::default() };
        let lun = acl.mapped_luns.iter().map(|lun| MappedLun::new(lun.tpg_lun, lun.index, lun.write_protect)).collect();
        let initiators = Some(vec![acl.node_wwn.to_ascii_lowercase()]);
        target.host.push(Host { name, initiators, users, lun: Some(lun), ..Host::default() });
    }
    if !is_set("generate_node_acls") {
        // No initiator but those that are named.
        target.allow = target.host.is_empty().then(Vec::new);
        return;
    }
    if asks_for_proof {
        target.users = read_users(&saved.wwn, &tpg.users, imported);
    }
    let read_only = is_set("demo_mode_write_protect");
    if read_only || !target.host.is_empty() {
        target.host.push(Host { name: "others".into(), read_only, ..Host::default() });
    }
}

fn number_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const SAVED: &str = r#"{
        "fabric_modules": [{"name": "iscsi", "discovery_enable_auth": true, "discovery_userid": "scan", "discovery_password": "secret-of-scan"}],
        "storage_objects": [
            {"name": "db", "plugin": "block", "dev": "/dev/vg0/db", "wwn": "0b5f-1", "readonly": false, "write_back": false,
             "attributes": {"block_size": 4096, "emulate_tpu": 1}, "alua_tpgs": [{"name": "default_tg_pt_gp"}]},
            {"name": "ram", "plugin": "ramdisk", "size": 1048576, "wwn": "r"},
            {"name": "tape", "plugin": "pscsi", "dev": "/dev/sg3"}
        ],
        "targets": [
            {"fabric": "iscsi", "wwn": "iqn.2003-01.org.example:a", "tpgs": [{
                "tag": 1, "enable": true,
                "attributes": {"authentication": 1, "generate_node_acls": 0},
                "parameters": {"MaxConnections": "4", "FirstBurstLength": "65536", "InitialR2T": "Yes", "HeaderDigest": "CRC32C"},
                "luns": [{"index": 0, "storage_object": "/backstores/block/db"}, {"index": 1, "storage_object": "/backstores/ramdisk/ram"},
                         {"index": 2, "storage_object": "/backstores/pscsi/tape"}],
                "node_acls": [{"node_wwn": "iqn.1994-05.com.example:host", "chap_userid": "u", "chap_password": "secret-of-u",
                               "mapped_luns": [{"index": 0, "tpg_lun": 1, "write_protect": true}]}],
                "portals": [{"ip_address": "0.0.0.0", "port": 3260, "iser": false}, {"ip_address": "2001:db8::1", "port": 860, "iser": true}]}]},
            {"fabric": "iscsi", "wwn": "iqn.2003-01.org.example:b", "tpgs": [
                {"tag": 1, "attributes": {"generate_node_acls": 1, "demo_mode_write_protect": 1}, "luns": []}, {"tag": 2}]},
            {"fabric": "loopback", "wwn": "naa.5001405"}
        ]
    }"#;

    #[test]
    fn targets_disks_hosts_and_secrets_are_taken_over_and_the_rest_is_named() {
        let imported = import(SAVED, Imported::new(Path::new("/s"))).unwrap();
        let expected = r#"
[[portal]]
address = "0.0.0.0"
group = 1

[[portal]]
address = "[2001:db8::1]:860"
group = 1

[discovery]
chap = [{ user = "scan", secret_file = "/s/discovery.scan" }]

[[target]]
name = "iqn.2003-01.org.example:a"
max_connections = 4
session = { first_burst_length = "65536", initial_r2t = true }
lun = [
    { number = 0, disk = "/dev/vg0/db", block_size = 4096, serial = "0b5f-1" },
    { number = 1, disk = "mem:1048576", serial = "r" },
]
[[target.host]]
name = "iqn.1994-05.com.example_host"
initiators = ["iqn.1994-05.com.example:host"]
chap = [{ user = "u", secret_file = "/s/iqn.1994-05.com.example_host.u" }]
lun = [{ number = 1, as = 0, read_only = true }]

[[target]]
name = "iqn.2003-01.org.example:b"
[[target.host]]
name = "others"
read_only = true
"#;
        let text = imported.to_toml().unwrap();
        assert_eq!(text.parse::<toml::Table>().unwrap(), expected.parse::<toml::Table>().unwrap(), "{text}");
        let notes: Vec<String> = imported.notes().map(ToString::to_string).collect();
        for part in [
            "2001:db8::1]:860: iSER",
            "LUN 2: tape: a backstore of the kind pscsi",
            "HeaderDigest=CRC32C",
            "b: portal group 2",
            "naa.5001405",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:?}");
        }
        assert_eq!(notes.len(), 5, "{notes:?}");
        assert!(!notes.concat().contains("secret-of"));
    }
}
