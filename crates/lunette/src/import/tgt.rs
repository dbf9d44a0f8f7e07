//! tgt: `targets.conf`, as `tgt-admin` reads it.

use std::net::IpAddr;

use ipnet::IpNet;

use super::draft::{Host, Lun, Target};
use super::report::Imported;
use super::tree::{self, Statement};

/// The first LUN of a disk: LUN 0 is tgt's controller.
const FIRST_LUN: u16 = 1;

/// Settings that change nothing that an initiator could rely on, or that ours has anyway.
const SILENT: [&str; 6] = ["default-driver", "driver", "allow-in-use", "write-cache", "bs-type", "bsoflags"];

pub(super) fn import(text: &str, mut imported: Imported) -> Result<Imported, String> {
    let statements = tree::tags(text)?;
    for statement in &statements {
        match statement.key() {
            "target" => import_target(statement, &mut imported),
            "incomingdiscoveryuser" => {
                let user = user("discovery", statement, &mut imported);
                imported.draft.discovery.chap.extend(user);
            }
            "outgoingdiscoveryuser" => {
                imported.draft.discovery.mutual_chap = user("discovery", statement, &mut imported);
            }
            key if SILENT.contains(&key) => {}
            _ => leave_out(&[], statement, &mut imported),
        }
    }
    if imported.draft.discovery.chap.is_empty() {
        imported.draft.discovery.mutual_chap = None;
    }
    Ok(imported)
}

/// Reports a setting, but none of its values: it may be a secret.
fn leave_out(path: &[&str], statement: &Statement, imported: &mut Imported) {
    imported.note(tree::place(path, statement), format!("the setting {}", statement.key()));
}

fn user(owner: &str, statement: &Statement, imported: &mut Imported) -> Option<super::draft::User> {
    let [_, user, secret, ..] = &*statement.words else { return None };
    Some(imported.user(owner, user, secret))
}

fn import_target(statement: &Statement, imported: &mut Imported) {
    let Some(name) = statement.value() else { return leave_out(&[], statement, imported) };
    let mut target = Target { name: name.to_ascii_lowercase(), ..Target::default() };
    let (mut addresses, mut names) = (Vec::new(), Vec::new());
    for setting in &statement.body {
        match (setting.key(), setting.value()) {
            ("backing-store" | "direct-store", Some(path)) => {
                let lun = import_lun(name, path, setting, &target.lun, imported);
                target.lun.push(lun);
            }
            // `tgt-admin --dump` calls addresses names, too.
            ("initiator-address" | "initiator-name", Some(address)) if is_network(address) => {
                addresses.push(address.to_owned());
            }
            ("initiator-address" | "initiator-name", Some("ALL")) => {}
            ("initiator-name", Some(initiator)) => names.push(initiator.to_ascii_lowercase()),
            ("incominguser", _) => target.users.chap.extend(user(name, setting, imported)),
            ("outgoinguser", _) => target.users.mutual_chap = user(name, setting, imported),
            (key, _) if SILENT.contains(&key) => {}
            _ => leave_out(&[name], setting, imported),
        }
    }
    if target.users.chap.is_empty() {
        target.users.mutual_chap = None;
    }
    let list = |list: Vec<String>| (!list.is_empty()).then_some(list);
    let (networks, initiators) = (list(addresses), list(names));
    if networks.is_some() {
        target.host.push(Host { name: "initiators".into(), initiators, networks, ..Host::default() });
    } else {
        target.allow = initiators;
    }
    imported.draft.target.push(target);
}

fn is_network(text: &str) -> bool {
    text.parse::<IpNet>().is_ok() || text.parse::<IpAddr>().is_ok()
}

fn import_lun(target: &str, path: &str, statement: &Statement, others: &[Lun], imported: &mut Imported) -> Lun {
    let next = others.iter().map(|lun| lun.number + 1).max().unwrap_or(FIRST_LUN);
    let mut lun = Lun { number: next, disk: path.into(), ..Lun::default() };
    for setting in &statement.body {
        match (setting.key(), setting.value()) {
            ("lun", Some(number)) if let Ok(number) = number.parse() => lun.number = number,
            ("scsi_sn", Some(serial)) => lun.serial = Some(serial.into()),
            ("block-size", Some("4096")) => lun.block_size = Some(4096),
            ("readonly", Some("1" | "yes" | "on")) => lun.read_only = true,
            ("removable", Some("1" | "yes" | "on")) => lun.removable = true,
            ("block-size", Some("512")) | ("readonly" | "removable", _) => {}
            (key, _) if SILENT.contains(&key) => {}
            _ => leave_out(&[target, path], setting, imported),
        }
    }
    lun
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const CONF: &str = r#"
default-driver iscsi
include /etc/tgt/temp/*.conf
incomingdiscoveryuser scan secret-of-scan
<target iqn.2008-09.org.example:server.one>
    backing-store /dev/vg0/one   # the first
    <backing-store /srv/two.img>
        scsi_sn S2
        lun 7
        readonly 1
        block-size 4096
        vendor_id ACME
        write-cache off
    </backing-store>
    backing-store /srv/three.img
    incominguser alice "secret of alice"
    initiator-address 192.0.2.0/24
    initiator-address 198.51.100.9
    initiator-name iqn.x:a
    initiator-name 203.0.113.0/24
</target>
<target iqn.2008-09.org.example:two>
    driver iser
    initiator-address ALL
    initiator-name iqn.x:B
    MaxConnections 2
</target>
"#;

    #[test]
    fn targets_disks_and_rules_are_taken_over_and_the_rest_is_named() {
        let imported = import(CONF, Imported::new(Path::new("/s"))).unwrap();
        let expected = r#"
discovery = { chap = [{ user = "scan", secret_file = "/s/discovery.scan" }] }
[[target]]
name = "iqn.2008-09.org.example:server.one"
chap = [{ user = "alice", secret_file = "/s/iqn.2008-09.org.example_server.one.alice" }]
lun = [
    { number = 1, disk = "/dev/vg0/one" },
    { number = 7, disk = "/srv/two.img", serial = "S2", read_only = true, block_size = 4096 },
    { number = 8, disk = "/srv/three.img" },
]
host = [{ name = "initiators", initiators = ["iqn.x:a"], networks = ["192.0.2.0/24", "198.51.100.9", "203.0.113.0/24"] }]
[[target]]
name = "iqn.2008-09.org.example:two"
allow = ["iqn.x:b"]
"#;
        let text = imported.to_toml().unwrap();
        assert_eq!(text.parse::<toml::Table>().unwrap(), expected.parse::<toml::Table>().unwrap(), "{text}");
        let notes: Vec<String> = imported.notes().map(ToString::to_string).collect();
        let expected = [
            "line 3: the setting include",
            "line 12, iqn.2008-09.org.example:server.one, /srv/two.img: the setting vendor_id",
            "line 26, iqn.2008-09.org.example:two: the setting MaxConnections",
        ];
        assert_eq!(notes, expected);
    }
}
