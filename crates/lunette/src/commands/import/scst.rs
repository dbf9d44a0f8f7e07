//! SCST: `scst.conf`, as `scstadmin` writes it.

mod proofs;

use std::collections::BTreeMap;

use lunette_scsi::MAX_FLAT_LUN;
use lunette_session::folded_name;

use super::draft::{Host, Lun, MappedLun, Target, Users};
use super::report::{Imported, is_on, names, plain_name};
use super::stanzas;
use super::tree::{self, Statement};
use proofs::{Proof, Proofs};

/// The driver whose targets are imported.
const ISCSI: &str = "iscsi";

/// The owner of secrets, and the place, of discovery.
const DISCOVERY: &str = "discovery";

/// Attributes of a device that change nothing that an initiator could rely on, or that ours has anyway.
const SILENT: [&str; 15] = [
    "size",
    "size_mb",
    "active",
    "enabled",
    "rel_tgt_id",
    "nv_cache",
    "write_through",
    "threads_num",
    "threads_pool_type",
    "rotational",
    "thin_provisioned",
    "per_portal_acl",
    "cpu_mask",
    "tst",
    "o_direct",
];

pub(super) fn import(text: &str, mut imported: Imported) -> Result<Imported, String> {
    let statements = stanzas::read(text, &mut imported)?;
    let mut devices = BTreeMap::new();
    for handler in statements.iter().filter(|statement| statement.key() == "HANDLER") {
        let kind = handler.value().unwrap_or_default();
        for device in handler.all("DEVICE") {
            devices.insert(device.value().unwrap_or_default(), (kind, device));
        }
    }
    for statement in &statements {
        match (statement.key(), statement.value()) {
            ("TARGET_DRIVER", Some(ISCSI)) => import_driver(statement, &devices, &mut imported),
            ("HANDLER", _) | ("TARGET_DRIVER", Some("copy_manager")) => {}
            _ => leave_out(&[], statement, &mut imported),
        }
    }
    Ok(imported)
}

/// The devices by name, each with its handler.
type Devices<'a> = BTreeMap<&'a str, (&'a str, &'a Statement)>;

/// Reports a setting, but none of its values: it may be a secret.
fn leave_out(path: &[&str], statement: &Statement, imported: &mut Imported) {
    let name = statement.body.is_empty().then(String::new).or_else(|| statement.value().map(|name| format!(" {name}")));
    imported.note(tree::place(path, statement), format!("{}{}", statement.key(), name.unwrap_or_default()));
}

/// Whether a driver or a target is enabled, which takes a word of the file.
fn is_enabled(statement: &Statement, imported: &mut Imported) -> bool {
    let is_enabled = statement.find("enabled").is_some_and(is_on);
    if !is_enabled {
        let what = format!("{}: it is not enabled; write enabled 1", statement.value().unwrap_or_default());
        imported.note(tree::place(&[], statement), what);
    }
    is_enabled
}

fn import_driver(driver: &Statement, devices: &Devices<'_>, imported: &mut Imported) {
    if !is_enabled(driver, imported) {
        return;
    }
    for statement in &driver.body {
        match statement.key() {
            "TARGET" if !is_enabled(statement, imported) => {}
            "TARGET" => import_target(statement, devices, imported),
            "enabled" => {}
            key if Proof::of(key).is_some() => {}
            _ => leave_out(&[ISCSI], statement, imported),
        }
    }
    import_discovery(driver, imported);
}

/// The users of discovery. One without a secret, or a proof that is not known, keeps it closed.
fn import_discovery(driver: &Statement, imported: &mut Imported) {
    let Proofs { mut users, without_secret, has_unknown } = Proofs::of(DISCOVERY, driver, imported);
    if has_unknown || users.chap.is_empty() && without_secret.is_some() {
        let name = without_secret.filter(|name| !name.is_empty());
        let user = imported.user_without_secret(DISCOVERY, name.as_deref().unwrap_or("unknown"));
        imported.note_closed_discovery(tree::place(&[], driver), &user);
        users = Users { chap: vec![user], mutual_chap: None };
    }
    imported.draft.discovery = users;
}

fn import_target(statement: &Statement, devices: &Devices<'_>, imported: &mut Imported) {
    let Some(name) = statement.value() else { return leave_out(&[], statement, imported) };
    let mut target = Target { name: imported.normal_name(tree::place(&[], statement), name), ..Target::default() };
    for setting in &statement.body {
        match setting.key() {
            "LUN" | "GROUP" => {}
            key if Proof::of(key).is_some() => {}
            key if SILENT.contains(&key) => {}
            _ => leave_out(&[name], setting, imported),
        }
    }
    let proofs = Proofs::of(name, statement, imported);
    target.users = proofs.users;
    let default = luns(name, statement, &mut target.lun, devices, imported);
    let mut left_out = Vec::new();
    for group in statement.all("GROUP") {
        let initiators = initiators(name, group, &mut left_out, imported);
        let luns = luns(name, group, &mut target.lun, devices, imported);
        let group = plain_name(group.value().unwrap_or_default());
        target.host.push(Host { name: group, initiators, lun: Some(luns), ..Host::default() });
    }
    if proofs.has_unknown || target.users.chap.is_empty() && proofs.without_secret.is_some() {
        target.close();
    }
    match (target.host.is_empty(), default.is_empty()) {
        _ if target.allow.is_some() => {}
        // They could be of a group whose pattern is not known here.
        (false, false) if !left_out.is_empty() => {
            imported.note(
                tree::place(&[name], statement),
                "initiators of no group are not let in, because patterns of groups were left out",
            );
        }
        // Initiators of no group see the LUNs of the target itself.
        (false, false) => target.host.push(Host { name: "others".into(), lun: Some(default), ..Host::default() }),
        (true, true) => target.allow = Some(Vec::new()),
        _ => {}
    }
    imported.draft.target.push(target);
}

/// The initiators of a group; `None` are all. SCST takes the first group that an initiator fits, so those that fit a
/// pattern that was left out of a group before, or may, are left out of this one, too.
fn initiators<'a>(
    target: &str,
    group: &'a Statement,
    left_out: &mut Vec<&'a str>,
    imported: &mut Imported,
) -> Option<Vec<String>> {
    let name = group.value().unwrap_or_default();
    let (before, mut names, mut is_open) = (left_out.clone(), Vec::new(), false);
    for statement in group.all("INITIATOR") {
        let Some(initiator) = statement.value() else { continue };
        let what = match initiator {
            "*" if before.is_empty() => {
                is_open = true;
                continue;
            }
            "*" => "they may be of a group before whose pattern was left out".to_owned(),
            _ if initiator.contains(MARKS) => {
                left_out.push(initiator);
                "only whole names, or *".to_owned()
            }
            _ => {
                let Some(pattern) = before.iter().find(|pattern| fits(pattern, initiator)) else {
                    names.push(folded_name(initiator));
                    continue;
                };
                format!("it is of the group with the pattern {pattern}, which was left out")
            }
        };
        imported.note(tree::place(&[target, name], statement), format!("INITIATOR {initiator}: {what}"));
    }
    (!is_open).then_some(names)
}

/// The characters that make a pattern of a name. Behind `#` and `@` is a portal.
const MARKS: [char; 5] = ['*', '?', '!', '#', '@'];

/// Whether a pattern of SCST fits a name at some portal: `*` is any text, `?` a character, and `!` the opposite.
fn fits(pattern: &str, name: &str) -> bool {
    let pattern = pattern.split(['#', '@']).next().unwrap_or_default().to_lowercase();
    let name = name.to_lowercase();
    match pattern.strip_prefix('!') {
        Some(other) => !fits_here(other.as_bytes(), name.as_bytes()),
        None => fits_here(pattern.as_bytes(), name.as_bytes()),
    }
}

fn fits_here(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // The last star, and what of the name it stands for.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[read] => (at, read) = (at + 1, read + 1),
            _ => {
                let Some((begin, end)) = star else { return false };
                star = Some((begin, end + 1));
                (at, read) = (begin + 1, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The LUNs of a target or of one of its groups. A device is one logical unit of the target, whoever sees it under
/// which number.
fn luns(
    target: &str,
    owner: &Statement,
    all: &mut Vec<Lun>,
    devices: &Devices<'_>,
    imported: &mut Imported,
) -> Vec<MappedLun> {
    let mut mapped = Vec::new();
    for statement in owner.all("LUN") {
        let (Some(Ok(seen_as)), Some(device)) = (statement.value().map(str::parse), statement.words.get(2)) else {
            leave_out(&[target], statement, imported);
            continue;
        };
        let read_only = statement.find("read_only").is_some_and(is_on);
        if let Some((number, protected)) = unit(target, device, seen_as, all, devices, imported) {
            mapped.push(MappedLun::new(number, seen_as, read_only || protected));
        }
    }
    mapped
}

/// The number of a device in its target, and whether it is read only where another device of the same file is not. It
/// gets the number that it is seen as first, if that is free.
fn unit(
    target: &str,
    device: &str,
    wish: u16,
    all: &mut Vec<Lun>,
    devices: &Devices<'_>,
    imported: &mut Imported,
) -> Option<(u16, bool)> {
    let Some((kind, statement)) = devices.get(device) else {
        imported.note(target, format!("the device {device} is not in the file"));
        return None;
    };
    let lun = import_device(kind, statement, imported)?;
    if let Some(known) = all.iter().find(|known| known.disk == lun.disk) {
        return Some((known.number, lun.read_only && !known.read_only));
    }
    let is_free = |number: &u16| !all.iter().any(|known| known.number == *number);
    let number = std::iter::once(wish).chain(0..=MAX_FLAT_LUN).find(is_free)?;
    all.push(Lun { number, ..lun });
    Some((number, false))
}

fn import_device(kind: &str, device: &Statement, imported: &mut Imported) -> Option<Lun> {
    let name = device.value().unwrap_or_default();
    let disk = match kind {
        "vdisk_fileio" | "vdisk_blockio" => device.find("filename"),
        _ => None,
    };
    let Some(disk) = disk else {
        imported.note(tree::place(&[], device), format!("{name}: a device of the handler {kind}"));
        return None;
    };
    let refusal = match device.find("blocksize") {
        Some(other) if !matches!(other, "512" | "4096") => Some(format!("blocks of {other} bytes")),
        _ if device.find("active").is_some_and(|active| !is_on(active)) => Some("it is not active".into()),
        _ => None,
    };
    if let Some(what) = refusal {
        imported.note(tree::place(&[], device), format!("{name}: {what}"));
        return None;
    }
    let value = |key: &str| device.find(key);
    let mut lun = Lun {
        disk: disk.into(),
        block_size: value("blocksize").filter(|size| *size == "4096").map(|_| 4096),
        read_only: value("read_only").is_some_and(is_on),
        removable: value("removable").is_some_and(is_on),
        ..Lun::default()
    };
    for what in names(&mut lun, value("t10_vend_id"), value("prod_id"), value("prod_rev_lvl"), value("usn")) {
        imported.note(tree::place(&[name], device), what);
    }
    for setting in &device.body {
        match (setting.key(), setting.value()) {
            (
                "filename" | "blocksize" | "usn" | "read_only" | "removable" | "t10_vend_id" | "prod_id"
                | "prod_rev_lvl",
                _,
            ) => {}
            (key, _) if SILENT.contains(&key) => {}
            _ => leave_out(&[name], setting, imported),
        }
    }
    Some(lun)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const CONF: &str = r#"
# Automatically generated by SCST Configurator v3.
HANDLER vdisk_blockio {
        DEVICE db {
                filename /dev/vg0/db
                nv_cache 1
                usn 5a1e
                blocksize 4096
        }
}
HANDLER vdisk_fileio {
        DEVICE boot {
                filename /srv/boot.img
                t10_dev_id 0123
        }
}
HANDLER dev_tape {
        DEVICE 1:0:0:0
}
TARGET_DRIVER iscsi {
        enabled 1
        IncomingUser "scan secret-of-scan"
        TARGET iqn.2007-05.org.example:T {
                enabled 1
                IncomingUser "joe the secret of joe"
                allowed_portal 192.0.2.1
                LUN 0 boot {
                        read_only 1
                }
                GROUP nodes {
                        LUN 0 db
                        LUN 1 boot
                        LUN 2 1:0:0:0
                        INITIATOR iqn.x:Node-A
                        INITIATOR iqn.x:rack-*
                }
        }
        TARGET iqn.2007-05.org.example:off {
                enabled 0
        }
}
TARGET_DRIVER copy_manager {
}
TARGET_DRIVER qla2x00t {
        TARGET 50:01
}
"#;

    #[test]
    fn targets_devices_and_groups_are_taken_over_and_the_rest_is_named() {
        let mut imported = import(CONF, Imported::new(Path::new("/s"))).unwrap();
        let expected = r#"
discovery = { chap = [{ user = "scan", secret_file = "/s/discovery.scan" }] }
[[target]]
name = "iqn.2007-05.org.example:t"
chap = [{ user = "joe", secret_file = "/s/iqn.2007-05.org.example_T.joe" }]
lun = [{ number = 0, disk = "/srv/boot.img" }, { number = 1, disk = "/dev/vg0/db", serial = "5a1e", block_size = 4096 }]
host = [
    { name = "nodes", initiators = ["iqn.x:node-a"], lun = [{ number = 1, as = 0 }, { number = 0, as = 1 }] },
]
"#;
        let text = imported.finish().unwrap();
        assert_eq!(text.parse::<toml::Table>().unwrap(), expected.parse::<toml::Table>().unwrap(), "{text}");
        let notes: Vec<String> = imported.notes().map(ToString::to_string).collect();
        for part in [
            "allowed_portal",
            "boot: t10_dev_id",
            "INITIATOR iqn.x:rack-*",
            "a device of the handler dev_tape",
            "example:off: it is not enabled",
            "TARGET_DRIVER qla2x00t",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:?}");
        }
        assert!(!notes.concat().contains("secret"));
    }

    /// The result for what stands in the driver beside `enabled`, and the notes.
    fn with_driver(body: &str) -> (toml::Table, Vec<String>) {
        let text = format!(
            "HANDLER vdisk_fileio {{\nDEVICE a {{\nfilename /a\n}}\n}}\nTARGET_DRIVER iscsi {{\nenabled 1\n{body}\n}}\n"
        );
        let mut imported = import(&text, Imported::new(Path::new("/s"))).unwrap();
        let table = imported.finish().unwrap().parse().unwrap();
        (table, imported.notes().map(ToString::to_string).collect())
    }

    #[test]
    fn users_have_numbers_behind_their_keys() {
        let (table, _) = with_driver(
            "IncomingUser0 \"scan secret-of-scan\"\nOutgoingUser1 \"disks secret-of-disks\"\nTARGET iqn.a {\nenabled 1\nLUN 0 a\n\
             IncomingUser1 \"joe 12charsecret\"\nIncomingUser02 \"eve 34charsecret\"\nOutgoingUser \"me 56charsecret\"\n}",
        );
        let expected = r#"
[discovery]
chap = [{ user = "scan", secret_file = "/s/discovery.scan" }]
mutual_chap = { user = "disks", secret_file = "/s/discovery.disks" }
[[target]]
name = "iqn.a"
chap = [{ user = "joe", secret_file = "/s/iqn.a.joe" }, { user = "eve", secret_file = "/s/iqn.a.eve" }]
mutual_chap = { user = "me", secret_file = "/s/iqn.a.me" }
lun = [{ number = 0, disk = "/a" }]
"#;
        assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{table}");
    }

    #[test]
    fn users_without_a_secret_are_named() {
        let (table, notes) = with_driver(
            "TARGET iqn.a {\nenabled 1\nLUN 0 a\nIncomingUser \"joe 12charsecret\"\nIncomingUser mary\nOutgoingUser o\n}\n\
             TARGET iqn.b {\nenabled 1\nOutgoingUser \"o 12charsecret\"\n}",
        );
        assert_eq!(table["target"][0]["chap"].as_array().unwrap().len(), 1, "{table}");
        for part in [
            "line 12, iqn.a: IncomingUser: a user without a secret",
            "line 13, iqn.a: OutgoingUser: a user without a secret; the target does not prove itself",
            "iqn.b: OutgoingUser: no user of initiators is there",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:#?}");
        }
    }

    #[test]
    fn discovery_without_a_known_secret_is_not_open() {
        for (user, name) in
            [("IncomingUser scan", "scan"), ("IncomingUser1 \"scan \"", "scan"), ("chap_user a", "unknown")]
        {
            let (table, notes) = with_driver(&format!("{user}\nTARGET iqn.a {{\nenabled 1\nLUN 0 a\n}}"));
            let file = format!("/s/discovery.{name}.unknown");
            let expected = format!("chap = [{{ user = \"{name}\", secret_file = \"{file}\" }}]");
            assert_eq!(table["discovery"], toml::Value::Table(expected.parse().unwrap()), "{user}: {table}");
            assert!(notes.concat().contains(&format!("closed until its secret is in {file}")), "{user}: {notes:?}");
        }
    }

    #[test]
    fn a_pattern_fits_names_as_in_scst() {
        for (pattern, name, expected) in [
            ("iqn.x:*", "iqn.x:a", true),
            ("iqn.x:*", "iqn.y:a", false),
            ("IQN.x:a?*c", "iqn.x:abbc", true),
            ("iqn.*:a*b", "iqn.x:ab:acb", true),
            ("iqn.*:a*b", "iqn.x:ab:acbc", false),
            ("iqn.x:a?", "iqn.x:a", false),
            ("!iqn.x:*", "iqn.x:a", false),
            ("!iqn.x:*", "iqn.y:a", true),
            ("iqn.x:a#192.0.2.1", "iqn.x:a", true),
            ("*@eth0", "iqn.x:a", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn an_initiator_of_a_pattern_sees_no_disks_of_later_groups() {
        let text = "HANDLER vdisk_fileio {\nDEVICE a {\nfilename /a\n}\nDEVICE c {\nfilename /c\n}\n}\n\
                    TARGET_DRIVER iscsi {\nenabled 1\nTARGET iqn.a {\nenabled 1\n\
                    GROUP first {\nLUN 0 a\nINITIATOR iqn.x:01:*\nINITIATOR iqn.x:01:b\n}\n\
                    GROUP named {\nLUN 0 c\nINITIATOR iqn.x:01:c\nINITIATOR iqn.x:02:c\n}\n\
                    GROUP all {\nLUN 0 c\nINITIATOR *\n}\n}\n}\n";
        let mut imported = import(text, Imported::new(Path::new("/s"))).unwrap();
        let table = imported.finish().unwrap().parse::<toml::Table>().unwrap();
        let hosts = table["target"][0]["host"].as_array().unwrap();
        let of = |host: &toml::Value| host["initiators"].clone().try_into::<Vec<String>>().unwrap();
        assert_eq!(hosts.iter().map(of).collect::<Vec<_>>(), [vec!["iqn.x:01:b"], vec!["iqn.x:02:c"], vec![]]);
        let notes: Vec<String> = imported.notes().map(ToString::to_string).collect();
        for part in [
            "first: INITIATOR iqn.x:01:*",
            "named: INITIATOR iqn.x:01:c: it is of the group",
            "all: INITIATOR *: they may",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:?}");
        }
    }

    #[test]
    fn no_initiator_is_let_in_that_scst_keeps_out() {
        let head = "HANDLER vdisk_fileio {\nDEVICE a {\nfilename /a\nt10_vend_id ACME\n}\nDEVICE b {\nfilename /a\nread_only 1\n}\n\
                    DEVICE c {\nfilename /c\nblocksize 2048\n}\n}\n";
        for (body, expected) in [
            ("LUN 0 a", "lun = [{ number = 0, disk = \"/a\", vendor = \"ACME\" }]"),
            ("LUN 0 a\nIncomingUser joe", "allow = []\nlun = [{ number = 0, disk = \"/a\", vendor = \"ACME\" }]"),
            ("IncomingUser1 joe\nLUN 0 c", "allow = []"),
            ("IncomingUser \"joe \"\nLUN 0 c", "allow = []"),
            ("IncomingUser \"joe 12charsecret\"\nIncomingUserX \"eve 12charsecret\"\nLUN 0 c", "allow = []"),
            ("chap_user \"joe 12charsecret\"\nLUN 0 c\nGROUP g {\nINITIATOR iqn.h\n}", "allow = []"),
            ("LUN 0 c", "allow = []"),
            (
                "LUN 0 a\nGROUP g {\nLUN 0 b\nINITIATOR iqn.h\n}",
                "lun = [{ number = 0, disk = \"/a\", vendor = \"ACME\" }]\nhost = [{ name = \"g\", initiators = [\"iqn.h\"], lun = [{ number = 0, read_only = \
                 true }] }, { name = \"others\", lun = [{ number = 0 }] }]",
            ),
        ] {
            let text = format!("{head}TARGET_DRIVER iscsi {{\nenabled 1\nTARGET iqn.a {{\nenabled 1\n{body}\n}}\n}}\n");
            let mut imported = import(&text, Imported::new(Path::new("/s"))).unwrap();
            let table = imported.finish().unwrap().parse::<toml::Table>().unwrap();
            let expected = format!("[[target]]\nname = \"iqn.a\"\n{expected}");
            assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{body}: {table}");
        }
    }
}
