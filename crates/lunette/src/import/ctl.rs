//! FreeBSD's ctld: `ctl.conf`.

use std::collections::BTreeMap;

use super::draft::{Host, Lun, Portal, Target, User, Users};
use super::report::{Imported, address};
use super::tree::{self, Statement};
use crate::size::Size;

/// Blocks that are looked up by their names, and settings that concern the daemon and not what it serves.
const SILENT: [&str; 7] = ["auth-group", "lun", "portal-group", "debug", "maxproc", "pidfile", "timeout"];

pub(super) fn import(text: &str, mut imported: Imported) -> Result<Imported, String> {
    let statements = tree::braces(text)?;
    statements.iter().flat_map(|block| &block.body).try_for_each(check_words)?;
    let named = |key: &str| -> Named<'_> {
        let of_kind = statements.iter().filter(|statement| statement.key() == key);
        of_kind.filter_map(|statement| Some((statement.value()?, statement))).collect()
    };
    let context = Context { auth_groups: named("auth-group"), luns: named("lun") };
    for (group, statement) in (1_u16..).zip(statements.iter().filter(|statement| statement.key() == "portal-group")) {
        import_portals(group, statement, &context, &mut imported);
    }
    for statement in &statements {
        match statement.key() {
            "target" => import_target(statement, &context, &mut imported),
            key if SILENT.contains(&key) => {}
            _ => leave_out(&[], statement, &mut imported),
        }
    }
    Ok(imported)
}

/// ctld's own parser needs no line ends. What follows a setting on its line would be lost here, so it is refused.
fn check_words(statement: &Statement) -> Result<(), String> {
    let most = match statement.key() {
        "chap-mutual" => 5,
        "chap" | "lun" | "portal-group" | "option" => 3,
        _ => 2,
    };
    if statement.words.len() > most {
        return Err(format!(
            "line {}: {} and something else; put each setting on a line of its own",
            statement.line,
            statement.key()
        ));
    }
    statement.body.iter().try_for_each(check_words)
}

/// Blocks of one kind, by name.
type Named<'a> = BTreeMap<&'a str, &'a Statement>;

struct Context<'a> {
    auth_groups: Named<'a>,
    luns: Named<'a>,
}

/// Reports a setting, but none of its values: it may be a secret.
fn leave_out(path: &[&str], statement: &Statement, imported: &mut Imported) {
    imported.note(tree::place(path, statement), format!("the setting {}", statement.key()));
}

fn import_portals(group: u16, statement: &Statement, context: &Context<'_>, imported: &mut Imported) {
    let name = statement.value().unwrap_or_default();
    for setting in &statement.body {
        match (setting.key(), setting.value()) {
            ("listen", Some(listen)) => {
                let portal = Portal { address: portal_address(listen), group };
                imported.draft.portal.push(portal);
            }
            ("discovery-auth-group", Some("no-authentication")) => {}
            ("discovery-auth-group", Some(auth_group)) => {
                let Some(rules) = context.auth_groups.get(auth_group) else { continue };
                imported.draft.discovery = users("discovery", rules, imported);
            }
            _ => leave_out(&[name], setting, imported),
        }
    }
}

/// The address of a `listen`: with or without a port, IPv6 in brackets.
fn portal_address(listen: &str) -> String {
    let port = |text: &str| text.parse::<u16>().is_ok();
    match listen.rsplit_once(':') {
        Some((host, text)) if port(text) && (host.ends_with(']') || !host.contains(':')) => address(host, Some(text)),
        _ => address(listen, None),
    }
}

fn import_target(statement: &Statement, context: &Context<'_>, imported: &mut Imported) {
    let Some(name) = statement.value() else { return leave_out(&[], statement, imported) };
    let mut target = Target { name: name.to_ascii_lowercase(), ..Target::default() };
    // Rules in the target itself are an unnamed group.
    let mut rules = statement;
    let mut is_open = false;
    for setting in &statement.body {
        match (setting.key(), setting.value()) {
            ("alias", Some(alias)) => target.alias = Some(alias.into()),
            ("auth-group", Some("no-authentication")) => is_open = true,
            ("auth-group", Some(group)) => match context.auth_groups.get(group) {
                Some(found) => rules = found,
                None => leave_out(&[name], setting, imported),
            },
            ("lun", Some(number)) => {
                let lun = import_lun(name, number, setting, context, imported);
                target.lun.extend(lun);
            }
            ("portal-group" | "chap" | "chap-mutual" | "initiator-name" | "initiator-portal", _) => {}
            _ => leave_out(&[name], setting, imported),
        }
    }
    admit(&mut target, name, rules, is_open, imported);
    imported.draft.target.push(target);
}

/// Which initiators may log in. A target of ctld without rules lets in none.
fn admit(target: &mut Target, name: &str, rules: &Statement, is_open: bool, imported: &mut Imported) {
    let values = |key: &str| rules.all(key).filter_map(Statement::value).map(ToOwned::to_owned).collect::<Vec<_>>();
    let list = |list: Vec<String>| (!list.is_empty()).then_some(list);
    let initiators = list(values("initiator-name").iter().map(|name| name.to_ascii_lowercase()).collect());
    let networks = list(values("initiator-portal"));
    target.users = users(name, rules, imported);
    if networks.is_some() {
        target.host.push(Host { name: "initiators".into(), initiators, networks, ..Host::default() });
    } else if initiators.is_some() {
        target.allow = initiators;
    } else if !is_open && target.users.chap.is_empty() && rules.find("auth-type") != Some("none") {
        target.allow = Some(Vec::new());
    }
}

fn users(owner: &str, rules: &Statement, imported: &mut Imported) -> Users {
    let mut found = Users::default();
    for rule in rules.all("chap").chain(rules.all("chap-mutual")) {
        let [_, user, secret, rest @ ..] = &*rule.words else { continue };
        found.chap.push(imported.user(owner, user, secret));
        if let [user, secret] = rest {
            let identity = imported.user(owner, user, secret);
            one_identity(owner, rule, identity, &mut found, imported);
        }
    }
    found
}

/// ctld gives each user another identity of the target; ours has one.
fn one_identity(owner: &str, rule: &Statement, identity: User, found: &mut Users, imported: &mut Imported) {
    match &found.mutual_chap {
        Some(known) if *known != identity => {
            imported.note(tree::place(&[owner], rule), "chap-mutual: another identity of the target for another user");
        }
        _ => found.mutual_chap = Some(identity),
    }
}

fn import_lun(
    target: &str,
    number: &str,
    statement: &Statement,
    context: &Context<'_>,
    imported: &mut Imported,
) -> Option<Lun> {
    let shared = statement.words.get(2).and_then(|name| context.luns.get(name.as_str()));
    let settings = shared.copied().unwrap_or(statement);
    let Ok(number) = number.parse() else {
        leave_out(&[target], statement, imported);
        return None;
    };
    let Some(path) = settings.find("path") else {
        imported.note(tree::place(&[target], statement), format!("LUN {number}: a disk without a path"));
        return None;
    };
    let mut lun = Lun { number, disk: path.into(), ..Lun::default() };
    for setting in &settings.body {
        match (setting.key(), setting.value()) {
            ("path", _) | ("blocksize", Some("512")) | ("backend", Some("block")) => {}
            ("size", Some(size)) if let Some(size) = our_size(size) => lun.create = Some(size),
            ("blocksize", Some("4096")) => lun.block_size = Some(4096),
            ("serial", Some(serial)) => lun.serial = Some(serial.into()),
            ("option", Some("readonly")) if setting.words.get(2).is_some_and(|on| on == "on") => lun.read_only = true,
            _ => leave_out(&[target, path], setting, imported),
        }
    }
    Some(lun)
}

/// A size as ours says it: `4G`, where ctld takes `4GB` too.
fn our_size(size: &str) -> Option<String> {
    let size = size.to_ascii_uppercase();
    let size = size.strip_suffix('B').unwrap_or(&size);
    size.parse::<Size>().is_ok().then(|| size.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const CONF: &str = r#"
debug 1
portal-group pg0 {
	discovery-auth-group no-authentication
	listen 0.0.0.0
	listen [::]:860
	foreign
}
portal-group pg1 { discovery-auth-group ag0; listen 192.0.2.1:3260 }
auth-group ag0 {
	chap-mutual "user" "secretsecret" "mutualuser" "mutualsecret"
	initiator-name "iqn.2012-06.com.example:Initiatorhost1"
	initiator-portal 192.0.2.0/24
}
lun zvol { path /dev/zvol/tank/a; blocksize 4096; serial "S1"; device-id "D1"; option readonly on }
target iqn.2012-06.com.example:target0 {
	alias "Example target"
	auth-group no-authentication
	portal-group pg0
	lun 0 {
		path /data/target0-0
		size 4gb
	}
	lun 1 zvol
}
target iqn.2012-06.com.example:target1 {
	auth-group ag0
	lun 0 { backend ramdisk; size 1G }
}
target iqn.2012-06.com.example:target2 { portal-group pg0; lun 0 zvol }
isns-server 192.0.2.9
"#;

    #[test]
    fn targets_disks_and_groups_are_taken_over_and_the_rest_is_named() {
        let imported = import(CONF, Imported::new(Path::new("/s"))).unwrap();
        let expected = r#"
portal = [{ address = "0.0.0.0", group = 1 }, { address = "[::]:860", group = 1 }, { address = "192.0.2.1", group = 2 }]
[discovery]
chap = [{ user = "user", secret_file = "/s/discovery.user" }]
mutual_chap = { user = "mutualuser", secret_file = "/s/discovery.mutualuser" }
[[target]]
name = "iqn.2012-06.com.example:target0"
alias = "Example target"
lun = [
    { number = 0, disk = "/data/target0-0", create = "4G" },
    { number = 1, disk = "/dev/zvol/tank/a", block_size = 4096, serial = "S1", read_only = true },
]
[[target]]
name = "iqn.2012-06.com.example:target1"
chap = [{ user = "user", secret_file = "/s/iqn.2012-06.com.example_target1.user" }]
mutual_chap = { user = "mutualuser", secret_file = "/s/iqn.2012-06.com.example_target1.mutualuser" }
host = [{ name = "initiators", initiators = ["iqn.2012-06.com.example:initiatorhost1"], networks = ["192.0.2.0/24"] }]
[[target]]
name = "iqn.2012-06.com.example:target2"
allow = []
lun = [{ number = 0, disk = "/dev/zvol/tank/a", block_size = 4096, serial = "S1", read_only = true }]
"#;
        let text = imported.to_toml().unwrap();
        assert_eq!(text.parse::<toml::Table>().unwrap(), expected.parse::<toml::Table>().unwrap(), "{text}");
        let notes: Vec<String> = imported.notes().map(ToString::to_string).collect();
        for part in ["pg0: the setting foreign", "the setting device-id", "LUN 0: a disk without a path", "isns-server"]
        {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:?}");
        }
        assert!(!notes.concat().contains("secret"));
    }

    #[test]
    fn settings_that_share_a_line_are_refused() {
        let error = import("portal-group a { listen 0.0.0.0 listen [::] }", Imported::new(Path::new("/s"))).err();
        assert!(error.is_some_and(|why| why.contains("line 1: listen and something else")));
    }
}
