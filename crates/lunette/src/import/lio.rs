//! LIO: `saveconfig.json`, as targetcli and rtslib write it.

use std::collections::BTreeMap;

use lunette_rbd::RbdUrl;
use lunette_session::folded_name;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::draft::{Host, Lun, MappedLun, Portal, Target, Users};
use super::report::{Imported, address, plain_name};

/// The fabric whose targets are imported.
const ISCSI: &str = "iscsi";

/// The whole file. What does not fit ours is left out, item by item.
#[derive(Deserialize)]
struct Saved {
    #[serde(default)]
    fabric_modules: Vec<Value>,
    #[serde(default)]
    storage_objects: Vec<Value>,
    #[serde(default)]
    targets: Vec<Value>,
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
    /// The handler of a TCMU backstore, and the configuration that it serves.
    config: Option<String>,
    size: Option<u64>,
    #[serde(default)]
    nullio: bool,
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
    #[serde(default)]
    attributes: BTreeMap<String, Value>,
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
    write_protect: Value,
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
    for fabric in items::<Fabric>(saved.fabric_modules, "name", &mut imported) {
        if fabric.name == ISCSI && fabric.discovery_enable_auth {
            imported.draft.discovery = read_users("discovery", &fabric.users, &mut imported);
            if imported.draft.discovery.chap.is_empty() {
                imported.note("discovery", "it asks for a proof, and no user is there; ours asks for none");
            }
        }
    }
    let objects = items::<StorageObject>(saved.storage_objects, "name", &mut imported).into_iter();
    let disks = objects.map(|object| (format!("/backstores/{}/{}", object.plugin, object.name), object)).collect();
    for target in items::<SavedTarget>(saved.targets, "wwn", &mut imported) {
        if target.fabric == ISCSI {
            import_target(&target, &disks, &mut imported);
        } else {
            imported.note(&target.wwn, format!("a target of the fabric {}", target.fabric));
        }
    }
    note_portals(&mut imported);
    Ok(imported)
}

/// The items of a list. One that has another form is reported under the name that it says.
fn items<T: DeserializeOwned>(list: Vec<Value>, name: &str, imported: &mut Imported) -> Vec<T> {
    let mut items = Vec::new();
    for value in list {
        let name = value.get(name).and_then(Value::as_str).unwrap_or("an item without a name").to_owned();
        match serde_json::from_value(value) {
            Ok(item) => items.push(item),
            Err(error) => imported.note(name, error.to_string()),
        }
    }
    items
}

/// Portals of ours lead to all targets; those of LIO to the one that they belong to.
fn note_portals(imported: &mut Imported) {
    if imported.draft.target.len() > 1 && imported.draft.portal.len() > 1 {
        imported.note("portals", "each leads to all targets; LIO has portals for each target");
    }
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

fn import_target(saved: &SavedTarget, disks: &BTreeMap<String, StorageObject>, imported: &mut Imported) {
    let Some(tpg) = saved.tpgs.iter().find(|tpg| tpg.enable) else {
        let what = if saved.tpgs.is_empty() { "a target without a portal group" } else { "the target is not enabled" };
        return imported.note(&saved.wwn, what);
    };
    for other in saved.tpgs.iter().filter(|other| other.enable && other.tag != tpg.tag) {
        imported.note(
            &saved.wwn,
            format!("portal group {}: a target of ours has the same LUNs and hosts in all", other.tag),
        );
    }
    portals(saved, tpg, imported);
    let mut target = Target { name: imported.normal_name(&saved.wwn, &saved.wwn), ..Target::default() };
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
        ("ramdisk", _) if !disk.nullio => format!("mem:{}", disk.size.unwrap_or_default()),
        ("user", _) if let Some(url) = disk.config.as_deref().and_then(image) => url,
        ("user", _) => {
            let handler = disk.config.as_deref().and_then(|config| config.split('/').next()).unwrap_or_default();
            imported.note(place, format!("{}: a backstore of the TCMU handler {handler}", disk.name));
            return None;
        }
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

/// An image in Ceph, as TCMU names it: `rbd/POOL/IMAGE`, and behind semicolons options, `conf=FILE` and `id=USER` among
/// them.
fn image(config: &str) -> Option<String> {
    let mut parts = config.split(';');
    let url: RbdUrl = format!("rbd:{}", parts.next()?.strip_prefix("rbd/")?).parse().ok()?;
    let options: BTreeMap<&str, &str> = parts.filter_map(|option| option.split_once('=')).collect();
    let option = |key: &str| options.get(key).map(|value| (*value).to_owned());
    Some(RbdUrl { conf: option("conf"), user: option("id"), ..url }.to_string())
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

/// Attributes of a portal group that the kernel sets when a file does not say them.
const SET_BY_DEFAULT: [&str; 2] = ["authentication", "demo_mode_write_protect"];

/// Whether an attribute of a portal group is set.
fn is_set(tpg: &Tpg, name: &str) -> bool {
    let value = tpg.attributes.get(name).and_then(number_of);
    value.map_or(SET_BY_DEFAULT.contains(&name), |value| value != 0)
}

/// Which initiators may log in, and what they see.
fn access(saved: &SavedTarget, tpg: &Tpg, target: &mut Target, imported: &mut Imported) {
    for acl in &tpg.node_acls {
        let host = host_of(&saved.wwn, acl, tpg, imported);
        target.host.push(host);
    }
    let users = read_users(&saved.wwn, &tpg.users, imported);
    let asks_for_proof = is_set(tpg, "authentication");
    if !is_set(tpg, "generate_node_acls") || asks_for_proof && users.chap.is_empty() {
        if is_set(tpg, "generate_node_acls") {
            let what = "other initiators have to prove themselves, and no user is there; none is let in";
            imported.note(&saved.wwn, what);
        }
        // No initiator but those that are named.
        target.allow = target.host.is_empty().then(Vec::new);
        return;
    }
    let users = if asks_for_proof { users } else { Users::default() };
    let read_only = is_set(tpg, "demo_mode_write_protect");
    if read_only || !target.host.is_empty() {
        target.host.push(Host { name: "others".into(), read_only, users, ..Host::default() });
    } else {
        target.users = users;
    }
}

/// The host of an ACL. One that has to prove itself, and has nothing to do it with, is let in from nowhere.
fn host_of(target: &str, acl: &NodeAcl, tpg: &Tpg, imported: &mut Imported) -> Host {
    let name = plain_name(&acl.node_wwn);
    let initiators = Some(vec![folded_name(&acl.node_wwn)]);
    // Less than 0 is what the portal group says.
    let own = acl.attributes.get("authentication").and_then(number_of);
    let asks_for_proof = own.map_or_else(|| is_set(tpg, "authentication"), |own| own != 0);
    let users = if asks_for_proof { read_users(&acl.node_wwn, &acl.users, imported) } else { Users::default() };
    if asks_for_proof && users.chap.is_empty() {
        let what = format!("{}: it has to prove itself, and has no user and password; it is not let in", acl.node_wwn);
        imported.note(target, what);
        return Host { name, initiators, networks: Some(Vec::new()), ..Host::default() };
    }
    let is_protected = |lun: &SavedMappedLun| lun.write_protect == true || number_of(&lun.write_protect) == Some(1);
    let mapped = |lun: &SavedMappedLun| MappedLun::new(lun.tpg_lun, lun.index, is_protected(lun));
    let known = |lun: &&SavedMappedLun| tpg.luns.iter().any(|known| known.index == lun.tpg_lun);
    let lun = Some(acl.mapped_luns.iter().filter(known).map(mapped).collect());
    Host { name, initiators, users, lun, read_only: is_set(tpg, "prod_mode_write_protect"), ..Host::default() }
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
                {"tag": 1, "attributes": {"authentication": 0, "generate_node_acls": 1, "demo_mode_write_protect": 1}, "luns": []}, {"tag": 2}]},
            {"fabric": "loopback", "wwn": "naa.5001405"}
        ]
    }"#;

    #[test]
    fn targets_disks_hosts_and_secrets_are_taken_over_and_the_rest_is_named() {
        let mut imported = import(SAVED, Imported::new(Path::new("/s"))).unwrap();
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
        let text = imported.finish().unwrap();
        assert_eq!(text.parse::<toml::Table>().unwrap(), expected.parse::<toml::Table>().unwrap(), "{text}");
        let notes: Vec<String> = imported.notes().map(ToString::to_string).collect();
        for part in [
            "2001:db8::1]:860: iSER",
            "LUN 2: tape: a backstore of the kind pscsi",
            "HeaderDigest=CRC32C",
            "b: portal group 2",
            "naa.5001405",
            "portals: each leads to all targets",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:?}");
        }
        assert_eq!(notes.len(), 6, "{notes:?}");
        assert!(!notes.concat().contains("secret-of"));
    }

    /// The access of a target of one portal group, and the notes. `tpg` is what stands in the group beside a LUN 0.
    fn access_of(tpg: &str) -> (toml::Table, Vec<String>) {
        let text = format!(
            r#"{{"storage_objects": [{{"name": "d", "plugin": "fileio", "dev": "/d"}}], "targets": [{{"fabric": "iscsi", "wwn": "iqn.a",
                "tpgs": [{{"luns": [{{"index": 0, "storage_object": "/backstores/fileio/d"}}], {tpg}}}]}}]}}"#
        );
        let mut imported = import(&text, Imported::new(Path::new("/s"))).unwrap();
        let mut table: toml::Table = imported.finish().unwrap().parse().unwrap();
        let mut target = table.remove("target").unwrap().as_array_mut().unwrap().remove(0).as_table().unwrap().clone();
        assert!(target.remove("lun").is_some());
        (target, imported.notes().map(ToString::to_string).collect())
    }

    #[test]
    fn no_initiator_is_let_in_that_lio_keeps_out() {
        const ACL: &str = r#""node_acls": [{"node_wwn": "iqn.H", "mapped_luns": [{"index": 0, "tpg_lun": 0}, {"index": 1, "tpg_lun": 7}]}]"#;
        const WITH_USER: &str = r#""node_acls": [{"node_wwn": "iqn.h", "chap_userid": "u", "chap_password": "p"}]"#;
        let host = r#"name = "iqn.H", initiators = ["iqn.h"]"#;
        for (tpg, expected) in [
            (r#""attributes": {"authentication": 1}"#.to_owned(), "allow = []".to_owned()),
            (format!(r#""attributes": {{"authentication": 1}}, {ACL}"#), format!("host = [{{ {host}, networks = [] }}]")),
            // What a file does not say is as the kernel has it.
            (ACL.to_owned(), format!("host = [{{ {host}, networks = [] }}]")),
            (format!(r#""attributes": {{"authentication": "0"}}, {ACL}"#), format!("host = [{{ {host}, lun = [{{ number = 0 }}] }}]")),
            (
                format!(r#""attributes": {{"authentication": 0, "prod_mode_write_protect": 1}}, {ACL}"#),
                format!("host = [{{ {host}, read_only = true, lun = [{{ number = 0 }}] }}]"),
            ),
            (
                format!(r#""attributes": {{"authentication": 1}}, {WITH_USER}"#),
                r#"host = [{ name = "iqn.h", initiators = ["iqn.h"], chap = [{ user = "u", secret_file = "/s/iqn.h.u" }], lun = [] }]"#.into(),
            ),
            (
                r#""attributes": {"authentication": 1}, "node_acls": [{"node_wwn": "iqn.h", "attributes": {"authentication": 0}}]"#.into(),
                r#"host = [{ name = "iqn.h", initiators = ["iqn.h"], lun = [] }]"#.into(),
            ),
            (
                r#""attributes": {"authentication": 0}, "node_acls": [{"node_wwn": "iqn.h", "attributes": {"authentication": 1}}]"#.into(),
                r#"host = [{ name = "iqn.h", initiators = ["iqn.h"], networks = [] }]"#.into(),
            ),
            // An ACL with a secret missing stays out, also where all others come in.
            (
                r#""attributes": {"authentication": 0, "generate_node_acls": 1, "demo_mode_write_protect": 0},
                   "node_acls": [{"node_wwn": "iqn.h", "attributes": {"authentication": 1}}]"#.into(),
                r#"host = [{ name = "iqn.h", initiators = ["iqn.h"], networks = [] }, { name = "others" }]"#.into(),
            ),
            (r#""attributes": {"authentication": 1, "generate_node_acls": 1}"#.into(), "allow = []".into()),
            (r#""attributes": {"authentication": 0, "generate_node_acls": 1}"#.into(), "host = [{ name = \"others\", read_only = true }]".into()),
            (r#""attributes": {"authentication": 0, "generate_node_acls": 1, "demo_mode_write_protect": 0}"#.into(), String::new()),
            (
                r#""attributes": {"generate_node_acls": 1, "demo_mode_write_protect": 0}, "chap_userid": "u", "chap_password": "p""#.into(),
                r#"chap = [{ user = "u", secret_file = "/s/iqn.a.u" }]"#.into(),
            ),
            (
                r#""attributes": {"generate_node_acls": 1}, "chap_userid": "u", "chap_password": "p""#.into(),
                r#"host = [{ name = "others", read_only = true, chap = [{ user = "u", secret_file = "/s/iqn.a.u" }] }]"#.into(),
            ),
        ] {
            let (target, notes) = access_of(&tpg);
            let expected = format!("name = \"iqn.a\"\n{expected}").parse::<toml::Table>().unwrap();
            assert_eq!(target, expected, "{tpg}: {target} {notes:?}");
            assert!(!target.to_string().contains("networks = []") || notes.iter().any(|note| note.contains("it is not let in")), "{tpg}: {notes:?}");
        }
    }

    #[test]
    fn disks_are_files_images_and_memory() {
        for (object, expected) in [
            (r#""plugin": "user", "config": "rbd/pool/image""#, Ok("rbd:pool/image")),
            (
                r#""plugin": "user", "config": "rbd/pool/image;osd_op_timeout=30;conf=/c;id=u""#,
                Ok("rbd:pool/image?conf=/c&user=u"),
            ),
            (r#""plugin": "user", "config": "qcow/srv/a.qcow2""#, Err("a backstore of the TCMU handler qcow")),
            (r#""plugin": "fileio", "dev": "/a", "attributes": {"block_size": 520}"#, Err("blocks of 520 bytes")),
            (r#""plugin": "ramdisk", "size": 1048576"#, Ok("mem:1048576")),
            (r#""plugin": "ramdisk", "size": 1048576, "nullio": true"#, Err("a backstore of the kind ramdisk")),
            (r#""plugin": "fileio", "dev": 7"#, Err("invalid type")),
        ] {
            let plugin = object.split('"').nth(3).unwrap();
            let text = format!(
                r#"{{"storage_objects": [{{"name": "d", {object}}}], "targets": [{{"fabric": "iscsi", "wwn": "iqn.a", "tpgs": [
                    {{"attributes": {{"authentication": 0}}, "luns": [{{"index": 3, "storage_object": "/backstores/{plugin}/d"}}]}}]}}, {{"wwn": 1}}]}}"#
            );
            let mut imported = import(&text, Imported::new(Path::new("/s"))).unwrap();
            let text = imported.finish().unwrap();
            let notes: Vec<String> = imported.notes().map(ToString::to_string).collect();
            assert!(notes.iter().any(|note| note.contains("an item without a name")), "{notes:?}");
            match expected {
                Ok(disk) => assert!(text.contains(&format!("disk = {disk:?}")), "{object}: {text} {notes:?}"),
                Err(why) => assert!(notes.iter().any(|note| note.contains(why)), "{object}: {notes:?}"),
            }
        }
    }
}
