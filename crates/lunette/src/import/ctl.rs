//! FreeBSD's ctld: `ctl.conf`.

use std::collections::BTreeMap;

use lunette_session::folded_name;

use super::draft::{Host, Lun, Portal, Target, User, Users};
use super::report::{Imported, address, is_on, names, network};
use super::tree::{self, Statement};
use crate::size::Size;

/// Blocks that are looked up by their names, and settings that concern the daemon and not what it serves.
const SILENT: [&str; 7] = ["auth-group", "lun", "portal-group", "debug", "maxproc", "pidfile", "timeout"];

pub(super) fn import(text: &str, mut imported: Imported) -> Result<Imported, String> {
    let statements: Vec<Statement> = tree::braces(text)?.into_iter().flat_map(separate).collect();
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

/// Settings with one word behind them.
const WITH_ONE_WORD: [&str; 33] = [
    "alias",
    "auth-group",
    "auth-type",
    "backend",
    "blocksize",
    "ctl-lun",
    "debug",
    "device-id",
    "device-type",
    "discovery-auth-group",
    "discovery-filter",
    "dscp",
    "foreign",
    "initiator-name",
    "initiator-portal",
    "isns-period",
    "isns-server",
    "isns-timeout",
    "listen",
    "listen-iser",
    "lun",
    "maxproc",
    "offload",
    "path",
    "pcp",
    "pidfile",
    "port",
    "portal-group",
    "redirect",
    "serial",
    "size",
    "tag",
    "timeout",
];

/// Settings with more words.
const WITH_MORE: [(&str, usize); 3] = [("chap", 2), ("chap-mutual", 4), ("option", 2)];

/// Settings behind which a second word may stand.
const WITH_A_SECOND: [&str; 2] = ["lun", "portal-group"];

/// ctld needs no line ends between settings. A statement of the tree is what stands on a line, so it may be several
/// settings. What stands between braces belongs to the last.
fn separate(statement: Statement) -> Vec<Statement> {
    let Statement { file, line, words, body } = statement;
    let body: Vec<Statement> = body.into_iter().flat_map(separate).collect();
    let mut settings = Vec::new();
    let mut rest = words.as_slice();
    while let Some(key) = rest.first() {
        let is_setting =
            |word: &String| WITH_ONE_WORD.contains(&&**word) || WITH_MORE.iter().any(|(known, _)| word == known);
        let more = WITH_MORE.iter().find(|(known, _)| known == key).map(|(_, count)| *count);
        let count = match more {
            Some(count) => count,
            None if key == "foreign" => 0,
            None if WITH_A_SECOND.contains(&&**key) && rest.get(2).is_some_and(|word| !is_setting(word)) => 2,
            None if WITH_ONE_WORD.contains(&&**key) || key == "target" => 1,
            // It is not known what belongs to it.
            None => rest.len(),
        };
        let (words, behind) = rest.split_at(rest.len().min(count + 1));
        settings.push(Statement { file: file.clone(), line, words: words.into(), body: Vec::new() });
        rest = behind;
    }
    if let Some(last) = settings.last_mut() {
        last.body = body;
    }
    settings
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
                if let Some(rules) = context.auth_groups.get(auth_group) {
                    imported.draft.discovery = users("discovery", rules, imported);
                }
                if imported.draft.discovery.chap.is_empty() {
                    let what = format!(
                        "discovery-auth-group {auth_group}: it has no user of CHAP, and ours asks for no proof"
                    );
                    imported.note(tree::place(&[name], setting), what);
                }
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
    let mut target = Target { name: imported.normal_name(tree::place(&[], statement), name), ..Target::default() };
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

/// Which initiators may log in. A target of ctld without rules lets in none, nor do rules that ask for no kind of
/// proof.
fn admit(target: &mut Target, name: &str, rules: &Statement, is_open: bool, imported: &mut Imported) {
    let values = |key: &str| rules.all(key).filter_map(Statement::value).collect::<Vec<_>>();
    let list = |list: Vec<String>| (!list.is_empty()).then_some(list);
    let initiators = list(values("initiator-name").into_iter().map(folded_name).collect());
    target.users = users(name, rules, imported);
    let is_denied = rules.find("auth-type") == Some("deny");
    let asks_for_none = is_open || rules.find("auth-type") == Some("none");
    if is_denied || target.users.chap.is_empty() && !asks_for_none {
        if rules
            .body
            .iter()
            .any(|rule| ["chap", "chap-mutual", "initiator-name", "initiator-portal"].contains(&rule.key()))
        {
            imported.note(
                tree::place(&[name], rules),
                "rules without a kind of proof (chap, auth-type none) let in no initiator",
            );
        }
        target.users = Users::default();
        target.allow = Some(Vec::new());
        return;
    }
    let portals = values("initiator-portal");
    let networks: Vec<String> = portals.iter().filter_map(|portal| network(portal)).collect();
    if networks.len() < portals.len() {
        imported
            .note(tree::place(&[name], rules), "initiator-portal: only addresses and networks, such as 192.0.2.0/24");
    }
    if portals.is_empty() {
        target.allow = initiators;
    } else {
        target.host.push(Host { name: "initiators".into(), initiators, networks: Some(networks), ..Host::default() });
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
    let size = settings.find("size").and_then(our_size);
    let disk = match (settings.find("path"), settings.find("backend"), &size) {
        (Some(path), ..) => path.to_owned(),
        (None, Some("ramdisk"), Some(size)) => format!("mem:{size}"),
        _ => {
            imported.note(tree::place(&[target], statement), format!("LUN {number}: a disk without a path"));
            return None;
        }
    };
    let option = |key: &str| {
        let of_key = settings.all("option").filter(|option| option.value() == Some(key));
        of_key.filter_map(|option| option.words.get(2).map(String::as_str)).last()
    };
    let refusal = match (settings.find("blocksize"), settings.find("device-type")) {
        (Some(other), _) if !matches!(other, "512" | "4096") => Some(format!("blocks of {other} bytes")),
        (_, Some(kind)) if !matches!(kind, "0" | "disk" | "direct") => Some(format!("a device of the type {kind}")),
        _ => None,
    };
    if let Some(what) = refusal {
        imported.note(tree::place(&[target], statement), format!("LUN {number}: {what}"));
        return None;
    }
    let mut lun = Lun {
        number,
        create: size.filter(|_| settings.find("path").is_some()),
        block_size: settings.find("blocksize").filter(|size| *size == "4096").map(|_| 4096),
        read_only: option("readonly").is_some_and(is_on),
        removable: option("removable").is_some_and(is_on),
        disk,
        ..Lun::default()
    };
    let serial = settings.find("serial");
    for what in names(&mut lun, option("vendor"), option("product"), option("revision"), serial) {
        imported.note(tree::place(&[target], statement), format!("LUN {number}: {what}"));
    }
    for setting in &settings.body {
        match (setting.key(), setting.value()) {
            ("path" | "blocksize" | "serial" | "device-type", _)
            | ("backend", Some("block" | "ramdisk"))
            | ("option", Some("readonly" | "removable" | "vendor" | "product" | "revision")) => {}
            ("size", Some(size)) if our_size(size).is_some() => {}
            _ => leave_out(&[target, &lun.disk], setting, imported),
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
        let mut imported = import(CONF, Imported::new(Path::new("/s"))).unwrap();
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
lun = [{ number = 0, disk = "mem:1G" }]
host = [{ name = "initiators", initiators = ["iqn.2012-06.com.example:initiatorhost1"], networks = ["192.0.2.0/24"] }]
[[target]]
name = "iqn.2012-06.com.example:target2"
allow = []
lun = [{ number = 0, disk = "/dev/zvol/tank/a", block_size = 4096, serial = "S1", read_only = true }]
"#;
        let text = imported.finish().unwrap();
        assert_eq!(text.parse::<toml::Table>().unwrap(), expected.parse::<toml::Table>().unwrap(), "{text}");
        let notes: Vec<String> = imported.notes().map(ToString::to_string).collect();
        for part in ["pg0: the setting foreign", "the setting device-id", "isns-server"] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:?}");
        }
        assert!(!notes.concat().contains("secret"));
    }

    fn imported(text: &str) -> (toml::Table, Vec<String>) {
        let mut imported = import(text, Imported::new(Path::new("/s"))).unwrap();
        let text = imported.finish().unwrap();
        (text.parse().unwrap(), imported.notes().map(ToString::to_string).collect())
    }

    #[test]
    fn settings_may_share_a_line() {
        let (table, notes) = imported(
            "portal-group a { foreign listen 0.0.0.0 listen [::] } target iqn.a { auth-group no-authentication portal-group a lun 3 { path /a \
             blocksize 4096 option readonly on option vendor ACME } alias x lun 4 { path /b } }",
        );
        let expected = r#"
portal = [{ address = "0.0.0.0", group = 1 }, { address = "[::]", group = 1 }]
[[target]]
name = "iqn.a"
alias = "x"
lun = [{ number = 3, disk = "/a", block_size = 4096, read_only = true, vendor = "ACME" }, { number = 4, disk = "/b" }]
"#;
        assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{table} {notes:?}");
    }

    #[test]
    fn no_initiator_is_let_in_that_ctld_keeps_out() {
        for (rules, expected) in [
            ("", "allow = []"),
            ("initiator-name iqn.h", "allow = []"),
            ("initiator-portal 192.0.2.0/24", "allow = []"),
            ("auth-type deny\nchap u secretsecret", "allow = []"),
            ("auth-type none\ninitiator-name iqn.H", "allow = [\"iqn.h\"]"),
            ("auth-group no-access", "allow = []"),
            ("auth-group no-authentication", ""),
            ("auth-type none\ninitiator-portal host.example", "host = [{ name = \"initiators\", networks = [] }]"),
            (
                "auth-type none\ninitiator-portal 192.0.2.7/24",
                "host = [{ name = \"initiators\", networks = [\"192.0.2.0/24\"] }]",
            ),
        ] {
            let (table, notes) = imported(&format!("target iqn.a {{\n{rules}\n}}\n"));
            let expected = format!("[[target]]\nname = \"iqn.a\"\n{expected}");
            assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{rules}: {table} {notes:?}");
        }
    }

    #[test]
    fn what_is_no_disk_of_ours_is_left_out_and_the_rest_is_there() {
        let (table, notes) = imported(
            "target iqn.a {\nauth-group no-authentication\nlun 0 { path /a; blocksize 2048 }\nlun 1 { path /b; device-type cdrom }\n\
             lun x { path /c }\nlun 2 { path /d }\nlun 2 { path /e }\n}\ntarget not_a_name { auth-group no-authentication }\n",
        );
        let expected = "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 2, disk = \"/d\" }]";
        assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{table}");
        for part in [
            "LUN 0: blocks of 2048",
            "LUN 1: a device of the type cdrom",
            "line 5",
            "LUN 2: it is there twice",
            "not_a_name",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:#?}");
        }
    }
}
