//! FreeBSD's ctld: `ctl.conf`.

mod access;
mod numbers;

use std::collections::{BTreeMap, BTreeSet};

use super::draft::{Lun, Portal, Redirect, Target, Users};
use super::report::{Imported, address, is_on, names};
use super::tree::{self, Statement};
use access::{RULES, admit, refusal, rules_of, users};
use numbers::{expand, our_size};

/// Blocks that are looked up by their names, and settings that concern the daemon and not what it serves.
const SILENT: [&str; 7] = ["auth-group", "lun", "portal-group", "debug", "maxproc", "pidfile", "timeout"];

pub(super) fn import(text: &str, mut imported: Imported) -> Result<Imported, String> {
    let statements: Vec<Statement> = tree::braces(text)?.into_iter().flat_map(separate).collect();
    let named = |key: &str| -> Named<'_> {
        let of_kind = statements.iter().filter(|statement| statement.key() == key);
        of_kind.filter_map(|statement| Some((statement.value()?, statement))).collect()
    };
    let context = Context { auth_groups: named("auth-group"), luns: named("lun") };
    import_portal_groups(&statements, &context, &mut imported);
    for statement in &statements {
        match statement.key() {
            "target" => import_target(statement, &context, &mut imported),
            key if SILENT.contains(&key) => {}
            _ => leave_out(&[], statement, &mut imported),
        }
    }
    imported.note_portals("ctld has a portal group for each target");
    Ok(imported)
}

/// The group of portals, and of rules, that counts where a target names none.
const DEFAULT: &str = "default";

/// The name of discovery in the files of secrets.
const DISCOVERY: &str = "discovery";

/// The portals of the default group, unless the file says others.
const DEFAULT_PORTALS: [&str; 2] = ["0.0.0.0", "[::]"];

/// Takes over the portals of groups that targets use: portals of ours lead to all targets, and the others lead to none.
fn import_portal_groups(statements: &[Statement], context: &Context<'_>, imported: &mut Imported) {
    let mut used = BTreeSet::new();
    for target in statements.iter().filter(|statement| statement.key() == "target") {
        let names: Vec<&str> = target.all("portal-group").filter_map(Statement::value).collect();
        if names.is_empty() && target.find("port").is_none() {
            used.insert(DEFAULT);
        }
        for name in names {
            used.insert(name);
            let is_known = |group: &Statement| group.key() == "portal-group" && group.value() == Some(name);
            if name != DEFAULT && !statements.iter().any(is_known) {
                let place = tree::place(&[target.value().unwrap_or_default()], target);
                imported.note(place, format!("the portal group {name} is not in the file, so it has no portal"));
            }
        }
    }
    let groups = statements.iter().filter(|statement| statement.key() == "portal-group");
    let mut default = used.contains(DEFAULT);
    for (number, statement) in (1_u16..).zip(groups.clone()) {
        let name = statement.value().unwrap_or_default();
        default &= name != DEFAULT;
        if used.contains(name) {
            import_portals(number, statement, context, imported);
        } else {
            imported.note(tree::place(&[], statement), format!("the portal group {name}: no target uses it"));
        }
    }
    let number = u16::try_from(groups.count()).unwrap_or(u16::MAX).saturating_add(1);
    for address in DEFAULT_PORTALS.into_iter().filter(|_| default) {
        if !imported.draft.portal.iter().any(|known| known.address == address) {
            imported.draft.portal.push(Portal { address: address.into(), group: number });
        }
    }
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

/// Reports a setting, but none of its values: it may be a secret. Of an option it says which.
fn leave_out(path: &[&str], statement: &Statement, imported: &mut Imported) {
    let option = statement.value().filter(|_| statement.key() == "option");
    let option = option.map(|option| format!(" {option}")).unwrap_or_default();
    imported.note(tree::place(path, statement), format!("the setting {}{option}", statement.key()));
}

fn import_portals(group: u16, statement: &Statement, context: &Context<'_>, imported: &mut Imported) {
    let name = statement.value().unwrap_or_default();
    for setting in &statement.body {
        match (setting.key(), setting.value()) {
            ("listen", Some(listen)) => {
                let address = portal_address(listen);
                if !imported.draft.portal.iter().any(|known| known.address == address) {
                    imported.draft.portal.push(Portal { address, group });
                }
            }
            ("discovery-auth-group", _) => {}
            _ => leave_out(&[name], setting, imported),
        }
    }
    let auth_group = statement.find("discovery-auth-group").unwrap_or(DEFAULT);
    if auth_group == "no-authentication" {
        return;
    }
    let mut discovery = Users::default();
    if let Some(rules) = context.auth_groups.get(auth_group) {
        let is_open = |setting: &Statement| setting.key() == "auth-type" && setting.value() == Some("none");
        if rules.body.iter().all(is_open) && !rules.body.is_empty() {
            return;
        }
        discovery = users(DISCOVERY, rules, imported);
        if refusal(rules, &discovery).is_some() {
            discovery = Users::default();
        }
    }
    // Ours has one rule for all portals. Of two that differ neither holds, and without a user discovery is denied.
    let known = &imported.draft.discovery;
    let is_closed = discovery.chap.is_empty() || !known.is_empty() && *known != discovery;
    if is_closed {
        let user = imported.user_without_secret(DISCOVERY, "unknown");
        imported.note_closed_discovery(tree::place(&[name], statement), &user);
        discovery = Users { chap: vec![user], mutual_chap: None };
    }
    imported.draft.discovery = discovery;
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
    for setting in &statement.body {
        match (setting.key(), setting.value()) {
            ("alias", Some(alias)) => target.alias = Some(alias.into()),
            ("redirect", Some(to)) => target.redirect = Some(Redirect { to: vec![to.into()] }),
            ("lun", Some(number)) => {
                let lun = import_lun(name, number, setting, context, imported);
                target.lun.extend(lun);
            }
            ("auth-group" | "portal-group", Some(_)) => {}
            (key, _) if RULES.contains(&key) => {}
            _ => leave_out(&[name], setting, imported),
        }
    }
    match rules_of(statement, context, imported) {
        Some(rules) => admit(&mut target, name, rules, imported),
        None => target.allow = Some(Vec::new()),
    }
    imported.draft.target.push(target);
}

fn import_lun(
    target: &str,
    number: &str,
    statement: &Statement,
    context: &Context<'_>,
    imported: &mut Imported,
) -> Option<Lun> {
    let Some(number) = expand(number).and_then(|number| number.try_into().ok()) else {
        leave_out(&[target], statement, imported);
        return None;
    };
    let named = statement.words.get(2).map(|name| (name, context.luns.get(name.as_str())));
    let settings = match named {
        None => statement,
        Some((_, Some(shared))) => shared,
        Some((name, None)) => {
            let what = format!("LUN {number}: the lun {name} is not in the file");
            imported.note(tree::place(&[target], statement), what);
            return None;
        }
    };
    let size = settings.find("size").and_then(our_size);
    let block_size = settings.find("blocksize").and_then(expand);
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
        (Some(other), _) if !matches!(block_size, Some(512 | 4096)) => Some(format!("blocks of {other} bytes")),
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
        block_size: (block_size == Some(4096)).then_some(4096),
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
	portal-group pg1
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

    /// Imports a text, and leaves out the portals with the rules of discovery that are theirs.
    fn without_portals(text: &str) -> (toml::Table, Vec<String>) {
        let (mut table, notes) = imported(text);
        table.remove("portal");
        table.remove("discovery");
        (table, notes)
    }

    #[test]
    fn settings_may_share_a_line() {
        let (table, notes) = imported(
            "portal-group a { foreign discovery-auth-group no-authentication listen 0.0.0.0 listen [::] } target iqn.a { auth-group no-authentication portal-group a lun 3 { path /a \
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
    fn a_target_that_has_moved_sends_logins_on() {
        for (to, expected) in [
            ("192.0.2.9", "redirect = { to = [\"192.0.2.9\"] }"),
            ("[2001:db8::9]:860", "redirect = { to = [\"[2001:db8::9]:860\"] }"),
            ("\"no host\"", ""),
        ] {
            let (table, notes) =
                without_portals(&format!("target iqn.a {{\nauth-group no-authentication\nredirect {to}\n}}\n"));
            let expected = format!("[[target]]\nname = \"iqn.a\"\n{expected}");
            assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{to}: {table} {notes:?}");
            assert_eq!(notes.is_empty(), !expected.ends_with('\n'), "{to}: {notes:?}");
        }
    }

    #[test]
    fn a_portal_group_that_is_not_there_is_named() {
        let (table, notes) = imported("target iqn.a { auth-group no-authentication; portal-group gone }");
        assert_eq!(table.get("portal"), None);
        assert!(notes[0].contains("the portal group gone is not in the file"), "{notes:?}");
    }

    #[test]
    fn a_user_of_the_target_without_a_secret_is_named() {
        let (table, notes) = imported("target iqn.a { chap-mutual u secretsecret m }");
        assert_eq!(table["target"][0].get("mutual_chap"), None);
        assert!(notes.concat().contains("chap-mutual: the target has no secret"), "{notes:?}");
    }

    /// Rules that say themselves that no initiator is let in.
    const IS_PLAIN: [&str; 2] = ["", "auth-group no-access"];

    #[test]
    fn no_initiator_is_let_in_that_ctld_keeps_out() {
        for (rules, expected) in [
            ("", "allow = []"),
            ("initiator-name iqn.h", "allow = []"),
            ("initiator-portal 192.0.2.0/24", "allow = []"),
            ("auth-type deny\nchap u secretsecret", "allow = []"),
            ("auth-type none\ninitiator-name iqn.H", "allow = [\"iqn.h\"]"),
            ("auth-group no-access", "allow = []"),
            // ctld refuses a group beside rules.
            ("auth-group open\ninitiator-name iqn.h", "allow = []"),
            ("auth-group open\nchap u secretsecret", "allow = []"),
            ("auth-group no-authentication\nauth-group open", "allow = []"),
            ("auth-group no-authentication\nauth-group no-access", "allow = []"),
            ("auth-group open", ""),
            ("auth-type none\nauth-type deny", "allow = []"),
            ("auth-type none\nchap u", "allow = []"),
            ("auth-type none\nchap u \"\"", "allow = []"),
            ("auth-type none\nchap-other u secretsecret", "allow = []"),
            ("auth-group open\nchap-other u secretsecret", "allow = []"),
            ("auth-group no-authentication", ""),
            ("auth-type none\ninitiator-portal host.example", "host = [{ name = \"initiators\", networks = [] }]"),
            (
                "auth-type none\ninitiator-portal 192.0.2.7/24",
                "host = [{ name = \"initiators\", networks = [\"192.0.2.0/24\"] }]",
            ),
        ] {
            let (table, notes) =
                without_portals(&format!("auth-group open {{ auth-type none }}\ntarget iqn.a {{\n{rules}\n}}\n"));
            assert!(!expected.contains("allow = []") || !notes.is_empty() || IS_PLAIN.contains(&rules), "{rules}");
            let expected = format!("[[target]]\nname = \"iqn.a\"\n{expected}");
            assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{rules}: {table} {notes:?}");
        }
    }

    #[test]
    fn what_is_no_disk_of_ours_is_left_out_and_the_rest_is_there() {
        let (table, notes) = without_portals(
            "target iqn.a {\nauth-group no-authentication\nlun 0 { path /a; blocksize 2048 }\nlun 1 { path /b; device-type cdrom }\n\
             lun x { path /c }\nlun 2 { path /d option pblocksize 4096 option insecure_tpc on }\nlun 2 { path /e }\nlun 3 missing\n}\ntarget not_a_name { auth-group no-authentication }\n",
        );
        let expected = "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 2, disk = \"/d\" }]";
        assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{table}");
        for part in [
            "LUN 0: blocks of 2048",
            "LUN 1: a device of the type cdrom",
            "line 5",
            "LUN 2: it is there twice",
            "LUN 3: the lun missing is not in the file",
            "the setting option pblocksize",
            "the setting option insecure_tpc",
            "not_a_name",
        ] {
            assert!(notes.iter().any(|note| note.contains(part)), "{part} in {notes:#?}");
        }
    }

    #[test]
    fn the_rules_of_a_target_are_those_of_its_portal_groups() {
        const GROUPS: &str = "auth-group a { chap u secretsecret }\nauth-group b { auth-type none }\nauth-group c { chap u secretsecret }\n\
                              portal-group p { listen 192.0.2.1 }\nportal-group q { listen 192.0.2.2 }\n";
        let chap = "chap = [{ user = \"u\", secret_file = \"/s/iqn.t.u\" }]";
        for (rules, expected) in [
            ("portal-group p", "allow = []"),
            ("portal-group p b", ""),
            ("auth-group a\nportal-group p", chap),
            ("auth-group b\nportal-group p a", chap),
            ("auth-group no-authentication\nportal-group p a\nportal-group q a", chap),
            // Rules that differ, of which ours could have one.
            ("auth-group b\nportal-group p\nportal-group q a", "allow = []"),
            ("portal-group p b\nportal-group q", "allow = []"),
            ("portal-group p no-such-group", "allow = []"),
        ] {
            let (table, notes) = without_portals(&format!("{GROUPS}target iqn.t {{\n{rules}\n}}\n"));
            let expected = format!("[[target]]\nname = \"iqn.t\"\n{expected}");
            assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{rules}: {table} {notes:?}");
        }
    }

    #[test]
    fn discovery_is_as_closed_as_that_of_ctld() {
        for (rules, is_open) in [
            ("discovery-auth-group no-authentication", true),
            ("discovery-auth-group open", true),
            ("", false),
            ("discovery-auth-group some", false),
            ("discovery-auth-group no-such-group", false),
        ] {
            let groups = "auth-group open { auth-type none }\nauth-group some { initiator-name iqn.h }\n";
            let (table, notes) = imported(&format!(
                "{groups}portal-group p {{\nlisten 192.0.2.1\n{rules}\n}}\ntarget iqn.t {{\nportal-group p open\n}}\n"
            ));
            assert_eq!(table.get("discovery").is_none(), is_open, "{rules}: {table}");
            assert_eq!(notes.iter().any(|note| note.contains("discovery is closed")), !is_open, "{rules}: {notes:?}");
        }
        // One rule for all portals.
        let groups = "auth-group a { chap u secretsecret }\nauth-group b { chap v othersecret1 }\nauth-group d { auth-type deny; chap u secretsecret }\n";
        let target = "target iqn.t { auth-group no-authentication; portal-group p; portal-group q }\n";
        for (first, second, user) in [
            ("discovery-auth-group a", "discovery-auth-group a", "u"),
            ("discovery-auth-group a", "discovery-auth-group no-authentication", "u"),
            ("discovery-auth-group a", "discovery-auth-group b", "unknown"),
            ("discovery-auth-group a", "", "unknown"),
            ("", "discovery-auth-group a", "unknown"),
            ("discovery-auth-group d", "discovery-auth-group d", "unknown"),
        ] {
            let group = |name: &str, rules: &str| format!("portal-group {name} {{\nlisten 192.0.2.1\n{rules}\n}}\n");
            let (table, _) = imported(&format!("{groups}{}{}{target}", group("p", first), group("q", second)));
            assert_eq!(table["discovery"]["chap"][0]["user"].as_str(), Some(user), "{first} {second}: {table}");
        }
    }

    #[test]
    fn the_default_groups_count_where_a_target_names_none() {
        for (text, expected) in [
            (
                "target iqn.t { lun 0 { path /a } }",
                "portal = [{ address = \"0.0.0.0\", group = 1 }, { address = \"[::]\", group = 1 }]\n[[target]]\nname = \"iqn.t\"\nallow = []",
            ),
            (
                "auth-group default { auth-type none; initiator-portal [2001:db8::]/32 }\nportal-group default { listen [2001:db8::1]:860 }\n\
                 portal-group unused { listen 192.0.2.1 }\ntarget iqn.t { lun 0 { path /a } }",
                "discovery = { chap = [{ user = \"unknown\", secret_file = \"/s/discovery.unknown.unknown\" }] }\n\
                 portal = [{ address = \"[2001:db8::1]:860\", group = 1 }]\n[[target]]\nname = \"iqn.t\"\n\
                 host = [{ name = \"initiators\", networks = [\"2001:db8::/32\"] }]",
            ),
        ] {
            let (mut table, notes) = imported(text);
            assert!(table["target"][0].as_table_mut().unwrap().remove("lun").is_some());
            assert_eq!(table, expected.parse::<toml::Table>().unwrap(), "{text}: {table} {notes:?}");
        }
    }
}
