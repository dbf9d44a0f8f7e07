//! LIO: `saveconfig.json`, as targetcli and rtslib write it.

mod saved;

use std::collections::BTreeMap;

use lunette_rbd::RbdUrl;
use serde_json::Value;

use super::draft::{Host, Lun, MappedLun, Portal, Target, Users};
use super::report::{Imported, address, may_ask_for_proof, plain_name, unknown_proof};
use saved::{
    Attributes, ChapUsers, Fabric, NodeAcl, Saved, SavedLun, SavedMappedLun, SavedPortal, SavedTarget, StorageObject,
    Tpg, items, number_of,
};

/// The fabric whose targets are imported.
const ISCSI: &str = "iscsi";

/// The owner of secrets, and the place, of discovery.
const DISCOVERY: &str = "discovery";

/// The group of ports in which a logical unit is where the file names none.
const DEFAULT_PORTS: &str = "default_tg_pt_gp";

/// The states of a group of ports (SPC-4, asymmetric access) in which initiators cannot use a disk, or not as quickly.
const ACCESS_STATES: [(u64, &str); 6] = [
    (1, "non-optimized"),
    (2, "standby"),
    (3, "unavailable"),
    (4, "LBA-dependent"),
    (14, "offline"),
    (15, "in transition"),
];

/// The highest number under which LIO shows a logical unit to a host.
const MAX_MAPPED_LUN: u16 = 255;

/// Keys of a login that can be said in `session`. LIO writes all values as text.
const SESSION_KEYS: [(&str, &str); 7] = [
    ("MaxRecvDataSegmentLength", "max_recv_data_segment_length"),
    ("MaxBurstLength", "max_burst_length"),
    ("FirstBurstLength", "first_burst_length"),
    ("MaxOutstandingR2T", "max_outstanding_r2t"),
    ("DefaultTime2Wait", "default_time2wait"),
    ("DefaultTime2Retain", "default_time2retain"),
    ("ErrorRecoveryLevel", "error_recovery_level"),
];

/// Keys with Yes or No that can be said in `session`.
const SESSION_FLAGS: [(&str, &str); 4] = [
    ("InitialR2T", "initial_r2t"),
    ("ImmediateData", "immediate_data"),
    ("DataPDUInOrder", "data_pdu_in_order"),
    ("DataSequenceInOrder", "data_sequence_in_order"),
];

/// Parameters that are read elsewhere, or that RFC 7143 has no more (markers), or that the initiator declares.
const OTHER_PARAMETERS: [&str; 9] = [
    "AuthMethod",
    "HeaderDigest",
    "DataDigest",
    "MaxConnections",
    "IFMarker",
    "OFMarker",
    "IFMarkInt",
    "OFMarkInt",
    "MaxXmitDataSegmentLength",
];

/// The parameter with the target's name for people, and what LIO gives to each target.
const ALIAS: (&str, &str) = ("TargetAlias", "LIO Target");

pub(super) fn import(text: &str, mut imported: Imported) -> Result<Imported, String> {
    let saved: Saved = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for fabric in items::<Fabric>(&saved.fabric_modules, "", "name", &mut imported) {
        if fabric.name == ISCSI && fabric.discovery_enable_auth.0 {
            let mut users = read_users(DISCOVERY, &fabric.users, &mut imported);
            if users.chap.is_empty() {
                let name = fabric.users.user.as_deref().filter(|name| !name.is_empty()).unwrap_or("unknown");
                users.chap.push(imported.user_without_secret(DISCOVERY, name));
                imported.note_closed_discovery(DISCOVERY, &users.chap[0]);
            }
            imported.draft.discovery = users;
        }
    }
    let objects = items::<StorageObject>(&saved.storage_objects, "", "name", &mut imported).into_iter();
    let disks = objects.map(|object| (format!("/backstores/{}/{}", object.plugin, object.name), object)).collect();
    for target in items::<SavedTarget>(&saved.targets, "", "wwn", &mut imported) {
        if target.fabric == ISCSI {
            import_target(&target, &disks, &mut imported);
        } else {
            imported.note(&target.wwn, format!("a target of the fabric {}", target.fabric));
        }
    }
    imported.note_portals("LIO has portals for each target");
    Ok(imported)
}

fn read_users(owner: &str, users: &ChapUsers, imported: &mut Imported) -> Users {
    let mut user = |user: &Option<String>, secret: &Option<String>, effect: &str| {
        let user = user.as_deref().filter(|user| !user.is_empty())?;
        let Some(secret) = secret.as_deref().filter(|secret| !secret.is_empty()) else {
            imported.note(owner, format!("the user {user} has no password; {effect}"));
            return None;
        };
        Some(imported.user(owner, user, secret))
    };
    let chap = user(&users.user, &users.password, "no initiator is let in for it");
    let mutual_chap = user(&users.mutual_user, &users.mutual_password, "the target does not prove itself");
    if chap.is_none() && mutual_chap.is_some() {
        imported.note(owner, "no user of initiators is there, so the target does not prove itself");
    }
    Users { mutual_chap: mutual_chap.filter(|_| chap.is_some()), chap: chap.into_iter().collect() }
}

fn import_target(saved: &SavedTarget, disks: &BTreeMap<String, StorageObject>, imported: &mut Imported) {
    // Old versions of LIO wrote the wrong first digit of names in the form of NAA; rtslib corrects it.
    let wwn = saved.wwn.strip_prefix("naa.6").map_or_else(|| saved.wwn.clone(), |rest| format!("naa.5{rest}"));
    let Some(name) = wwn_of(&wwn) else {
        return imported.note(&saved.wwn, NO_WWN);
    };
    let tpgs: Vec<Tpg> = items(&saved.tpgs, &saved.wwn, "tag", imported);
    let Some(tpg) = tpgs.iter().find(|tpg| tpg.enable.0) else {
        let what = if saved.tpgs.is_empty() { "a target without a portal group" } else { "the target is not enabled" };
        return imported.note(&saved.wwn, what);
    };
    for other in tpgs.iter().filter(|other| other.enable.0 && other.tag != tpg.tag) {
        imported.note(
            &saved.wwn,
            format!("portal group {}: a target of ours has the same LUNs and hosts in all", other.tag),
        );
    }
    portals(saved, tpg, imported);
    let mut target = Target { name: imported.renamed("a target", &saved.wwn, name), ..Target::default() };
    for lun in items::<SavedLun>(&tpg.luns, &saved.wwn, "index", imported) {
        let place = format!("{}, LUN {}", saved.wwn, lun.index);
        if let Some(ports) = lun.alua_tg_pt_gp_name.as_deref().filter(|ports| !["", DEFAULT_PORTS].contains(ports)) {
            imported.note(&place, format!("the group of ports {ports} (ALUA); see port_group of the target"));
        }
        match disks.get(&lun.storage_object) {
            Some(disk) => target.lun.extend(import_lun(lun.index, disk, &place, imported)),
            None => imported.note(place, format!("{} is not in the file", lun.storage_object)),
        }
    }
    parameters(saved, tpg, &mut target, imported);
    access(saved, tpg, &mut target, imported);
    other_settings(saved, tpg, &mut target, imported);
    imported.draft.target.push(target);
}

/// Why a name is none that LIO takes.
const NO_WWN: &str = "LIO takes no such name: iqn. without _ and blanks, eui. or naa. with 16 digits";

/// A name of a target or an initiator as rtslib has it, if it takes it.
fn wwn_of(name: &str) -> Option<String> {
    let name = name.trim().to_lowercase();
    if name.starts_with("iqn.") {
        return (!name.contains([' ', '_'])).then_some(name);
    }
    let plain = name.strip_prefix("0x").unwrap_or(&name).replace(['-', ':'], "");
    let (kind, digits) = plain.split_once('.').unwrap_or(("naa", &plain));
    let is_known = kind == "eui" || kind == "naa" && digits.starts_with(['1', '2', '5']);
    let is_number = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_known && is_number).then(|| format!("{kind}.{digits}"))
}

/// All portals of ours lead to all targets.
fn portals(saved: &SavedTarget, tpg: &Tpg, imported: &mut Imported) {
    for portal in items::<SavedPortal>(&tpg.portals, &saved.wwn, "ip_address", imported) {
        let address = address(&portal.ip_address, Some(&portal.port.to_string()));
        if portal.iser.0 {
            imported.note(&saved.wwn, format!("portal {address}: iSER"));
        }
        if portal.offload.0 {
            imported.note(&saved.wwn, format!("portal {address}: offload to an adapter"));
        }
        let portal = Portal { address, group: tpg.tag.max(1) };
        if !imported.draft.portal.iter().any(|known| known.address == portal.address) {
            imported.draft.portal.push(portal);
        }
    }
}

fn import_lun(number: u16, disk: &StorageObject, place: &str, imported: &mut Imported) -> Option<Lun> {
    let of_handler = disk.config.as_deref().and_then(image);
    let path = match (disk.plugin.as_str(), &disk.dev, of_handler) {
        ("block" | "fileio", Some(dev), _) => dev.clone(),
        ("ramdisk", ..) if !disk.nullio.0 => format!("mem:{}", disk.size.unwrap_or_default()),
        ("user", _, Some(url)) => url,
        ("user", ..) => {
            let handler = disk.config.as_deref().and_then(|config| config.split('/').next()).unwrap_or_default();
            imported.note(place, format!("{}: a backstore of the TCMU handler {handler}", disk.name));
            return None;
        }
        (plugin, ..) => {
            imported.note(place, format!("{}: a backstore of the kind {plugin}", disk.name));
            return None;
        }
    };
    if disk.alua_tpgs.len() > 1 {
        imported.note(place, "target port groups (ALUA); see port_group of the target");
    }
    for group in &disk.alua_tpgs {
        let state = group.get("alua_access_state").and_then(number_of);
        if let Some((_, state)) = ACCESS_STATES.iter().find(|(known, _)| Some(*known) == state) {
            let what = format!("a group of ports in the state {state} (ALUA); ours serves the disk to all");
            imported.note(place, what);
        }
    }
    if is_protected(&disk.attributes, "pi_prot_type") {
        imported.note(place, "pi_prot_type: ours has no protection information (T10 PI)");
    }
    let block_size = disk.attributes.get("block_size").and_then(number_of).filter(|size| *size != 512);
    if let Some(other) = block_size.filter(|size| *size != 4096) {
        imported.note(place, format!("blocks of {other} bytes"));
        return None;
    }
    let block_size = block_size.and_then(|size| size.try_into().ok());
    Some(Lun { number, disk: path, block_size, read_only: disk.readonly.0, serial: disk.wwn.clone(), ..Lun::default() })
}

/// Whether an attribute asks for protection information.
fn is_protected(attributes: &Attributes, name: &str) -> bool {
    attributes.get(name).and_then(number_of).is_some_and(|value| value != 0)
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
    for (theirs, ours) in SESSION_FLAGS {
        if let Some(Value::String(text)) = tpg.parameters.get(theirs) {
            target.session.insert(ours, text.eq_ignore_ascii_case("yes").into());
        }
    }
    let alias = tpg.parameters.get(ALIAS.0).and_then(Value::as_str);
    target.alias = alias.filter(|alias| !["", ALIAS.1].contains(alias)).map(Into::into);
    let is_known = |name: &str| {
        OTHER_PARAMETERS.contains(&name)
            || name == ALIAS.0
            || SESSION_KEYS.iter().chain(&SESSION_FLAGS).any(|(theirs, _)| *theirs == name)
    };
    for name in tpg.parameters.keys().filter(|name| !is_known(name)) {
        imported.note(&saved.wwn, format!("the parameter {name}"));
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

/// Whether initiators have to prove themselves where their ACL says nothing else. A portal group that offers no login
/// without a proof asks for one, whatever its attribute says.
fn asks_for_proof(tpg: &Tpg) -> bool {
    let methods = tpg.parameters.get("AuthMethod").and_then(Value::as_str);
    let is_closed =
        methods.is_some_and(|methods| !methods.split(',').any(|method| method.trim().eq_ignore_ascii_case("none")));
    is_closed || is_set(tpg, "authentication")
}

/// Reports what else a portal group says. What may ask for a proof, and is not known, closes the target.
fn other_settings(saved: &SavedTarget, tpg: &Tpg, target: &mut Target, imported: &mut Imported) {
    if is_protected(&tpg.attributes, "t10_pi") {
        imported.note(&saved.wwn, "t10_pi: ours has no protection information (T10 PI)");
    }
    if tpg.attributes.get("tpg_enabled_sendtargets").and_then(number_of) == Some(0) {
        let what = "tpg_enabled_sendtargets: discovery names the target to those that it lets in all the same";
        imported.note(&saved.wwn, what);
    }
    let attributes = tpg.attributes.keys().filter(|name| *name != "authentication" && may_ask_for_proof(name));
    for name in tpg.other.keys().chain(attributes) {
        if may_ask_for_proof(name) {
            imported.note(&saved.wwn, unknown_proof(name));
            target.close();
        } else {
            imported.note(&saved.wwn, format!("the setting {name}"));
        }
    }
}

/// Which initiators may log in, and what they see.
fn access(saved: &SavedTarget, tpg: &Tpg, target: &mut Target, imported: &mut Imported) {
    let luns: Vec<u16> = target.lun.iter().map(|lun| lun.number).collect();
    for acl in items::<NodeAcl>(&tpg.node_acls, &saved.wwn, "node_wwn", imported) {
        target.host.extend(host_of(&saved.wwn, &acl, tpg, &luns, imported));
    }
    let users = read_users(&saved.wwn, &tpg.users, imported);
    let asks_for_proof = asks_for_proof(tpg);
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
fn host_of(target: &str, acl: &NodeAcl, tpg: &Tpg, luns: &[u16], imported: &mut Imported) -> Option<Host> {
    let Some(initiator) = wwn_of(&acl.node_wwn) else {
        imported.note(format!("{target}, {}", acl.node_wwn), NO_WWN);
        return None;
    };
    let (name, initiators) = (plain_name(&acl.node_wwn), Some(vec![initiator]));
    // Less than 0 is what the portal group says.
    let own = acl.attributes.get("authentication").and_then(number_of);
    let asks_for_proof = own.map_or_else(|| asks_for_proof(tpg), |own| own != 0);
    let users = if asks_for_proof { read_users(&acl.node_wwn, &acl.users, imported) } else { Users::default() };
    if asks_for_proof && users.chap.is_empty() {
        let what = format!("{}: it has to prove itself, and has no user and password; it is not let in", acl.node_wwn);
        imported.note(target, what);
        return Some(Host { name, initiators, networks: Some(Vec::new()), ..Host::default() });
    }
    let mut mapped = Vec::new();
    for lun in items::<SavedMappedLun>(&acl.mapped_luns, &format!("{target}, {}", acl.node_wwn), "index", imported) {
        let place = || format!("{target}, {}, LUN {}", acl.node_wwn, lun.index);
        if lun.index > MAX_MAPPED_LUN {
            imported.note(place(), format!("LIO shows numbers up to {MAX_MAPPED_LUN}"));
        } else if luns.contains(&lun.tpg_lun) {
            mapped.push(MappedLun::new(lun.tpg_lun, lun.index, lun.write_protect.0));
        } else {
            imported.note(place(), format!("LUN {} of the target is not there", lun.tpg_lun));
        }
    }
    let read_only = is_set(tpg, "prod_mode_write_protect");
    Some(Host { name, initiators, users, lun: Some(mapped), read_only, ..Host::default() })
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

    #[test]
    fn parameters_become_keys_of_the_session_or_are_named() {
        let (target, notes) = access_of(
            r#""attributes": {"authentication": 0, "generate_node_acls": 1, "demo_mode_write_protect": 0}, "parameters": {
                "TargetAlias": "Backups", "DataPDUInOrder": "No", "DataSequenceInOrder": "Yes", "DefaultTime2Retain": "60",
                "AuthMethod": "CHAP,None", "IFMarkInt": "Reject", "SendTargets": "All"}"#,
        );
        let expected = "name = \"iqn.a\"\nalias = \"Backups\"\n\
                        session = { data_pdu_in_order = false, data_sequence_in_order = true, default_time2retain = 60 }";
        assert_eq!(target, expected.parse::<toml::Table>().unwrap(), "{target}");
        assert_eq!(notes[0], "iqn.a: the parameter SendTargets");
        assert!(notes.len() == 2 && notes[1].starts_with("portals: there are none"), "{notes:?}");
        let (target, _) = access_of(r#""parameters": {"TargetAlias": "LIO Target"}"#);
        assert_eq!(target.get("alias"), None);
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
            (
                r#""attributes": {"authentication": 0, "generate_node_acls": 1, "demo_mode_write_protect": 0}, "chap_file": "/f""#.into(),
                "allow = []".into(),
            ),
            (
                r#""attributes": {"authentication": 0, "generate_node_acls": 1, "demo_mode_write_protect": 0, "mutual_auth": 1}"#.into(),
                "allow = []".into(),
            ),
            (
                r#""attributes": {"authentication": 0, "generate_node_acls": 1}, "parameters": {"AuthMethod": "CHAP"}"#.into(),
                "allow = []".into(),
            ),
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
    fn settings_without_an_equivalent_are_named() {
        for (tpg, expected) in [
            (r#""attributes": {"t10_pi": 1}"#, "iqn.a: t10_pi: ours has no protection information"),
            (r#""attributes": {"tpg_enabled_sendtargets": "0"}"#, "iqn.a: tpg_enabled_sendtargets: discovery names"),
            (
                r#""portals": [{"ip_address": "192.0.2.1", "port": 3260, "offload": true}]"#,
                "iqn.a: portal 192.0.2.1: offload",
            ),
            (r#""something": 1"#, "iqn.a: the setting something"),
            (
                r#""chap_userid": "u", "chap_password": "p", "chap_mutual_userid": "m", "attributes": {"generate_node_acls": 1}"#,
                "iqn.a: the user m has no password; the target does not prove itself",
            ),
        ] {
            let (_, notes) = access_of(tpg);
            assert!(notes.iter().any(|note| note.starts_with(expected)), "{expected}: {notes:?}");
        }
        let text = r#"{"storage_objects": [
            {"name": "d", "plugin": "fileio", "dev": "/d", "attributes": {"pi_prot_type": 1}, "alua_tpgs": [{"alua_access_state": 2}]}],
            "targets": [{"fabric": "iscsi", "wwn": "iqn.a", "tpgs": [{"luns": [
                {"index": 0, "storage_object": "/backstores/fileio/d", "alua_tg_pt_gp_name": "other"}]}]}]}"#;
        let notes: Vec<_> =
            import(text, Imported::new(Path::new("/s"))).unwrap().notes().map(ToString::to_string).collect();
        for part in ["LUN 0: the group of ports other", "in the state standby", "LUN 0: pi_prot_type"] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:?}");
        }
    }

    #[test]
    fn an_empty_password_is_none() {
        let acl = r#""node_acls": [{"node_wwn": "iqn.h", "chap_userid": "u", "chap_password": "pppppppppppp", "mapped_luns": [],
            "chap_mutual_userid": "m", "chap_mutual_password": ""}, {"node_wwn": "iqn.i", "chap_userid": "u", "chap_password": ""}]"#;
        let (target, notes) = access_of(acl);
        let expected = r#"name = "iqn.a"
            [[host]]
            name = "iqn.h"
            initiators = ["iqn.h"]
            chap = [{ user = "u", secret_file = "/s/iqn.h.u" }]
            lun = []
            [[host]]
            name = "iqn.i"
            initiators = ["iqn.i"]
            networks = []"#;
        assert_eq!(target, expected.parse::<toml::Table>().unwrap(), "{target}");
        assert!(notes.iter().any(|note| note == "iqn.h: the user m has no password; the target does not prove itself"));
        assert!(!notes.concat().contains("the same secret"), "{notes:?}");
    }

    #[test]
    fn discovery_without_a_known_secret_is_not_open() {
        for (user, name) in [
            ("", "unknown"),
            (r#", "discovery_userid": "scan", "discovery_password": """#, "scan"),
            (r#", "discovery_userid": "", "discovery_password": "secretsecret""#, "unknown"),
        ] {
            let text = format!(
                r#"{{"fabric_modules": [{{"name": "iscsi", "discovery_enable_auth": true{user}}}],
                    "targets": [{{"fabric": "iscsi", "wwn": "iqn.a", "tpgs": [{{}}]}}]}}"#
            );
            let mut imported = import(&text, Imported::new(Path::new("/s"))).unwrap();
            let table: toml::Table = imported.finish().unwrap().parse().unwrap();
            let file = format!("/s/discovery.{name}.unknown");
            let expected = format!("chap = [{{ user = \"{name}\", secret_file = \"{file}\" }}]");
            assert_eq!(table["discovery"], toml::Value::Table(expected.parse().unwrap()), "{user}");
            assert!(imported.notes().any(|note| note.to_string().contains(&file)), "{user}");
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
            assert!(notes.iter().any(|note| note.contains("wwn 1: invalid type")), "{notes:?}");
            match expected {
                Ok(disk) => assert!(text.contains(&format!("disk = {disk:?}")), "{object}: {text} {notes:?}"),
                Err(why) => assert!(notes.iter().any(|note| note.contains(why)), "{object}: {notes:?}"),
            }
        }
    }
}
