use super::*;
use crate::config::parse;

const BASE: &str = r#"
    listen = ["192.0.2.1", "192.0.2.2"]
    state = "/state"
    [[target]]
    name = "iqn.a"
    alias = "first"
    allow = ["iqn.host"]
    lun = [{ number = 0, disk = "/a", create = "1G" }, { number = 1, disk = "mem:64M" }]
    [[target]]
    name = "iqn.b"
"#;

/// The result of one edit to the file: the changes as people read them, or the refusals.
fn edit(from: &str, to: &str) -> Result<Vec<String>, Vec<String>> {
    assert!(BASE.contains(from), "{from}");
    let (old, new) = (parse(BASE).unwrap(), parse(&BASE.replacen(from, to, 1)).unwrap());
    between(&old, &new)
        .map(|changes| changes.iter().map(ToString::to_string).collect())
        .map_err(|all| all.iter().map(ToString::to_string).collect())
}

#[test]
fn portals_of_ecl_come_and_go() {
    let with = |ecl: &str| parse(&BASE.replacen("state =", &format!("ecl = [{ecl}]\n    state ="), 1)).unwrap();
    let [old, new] =
        [r#""192.0.2.9:1", "192.0.2.9:3", "eth:lab0""#, r#""192.0.2.9:3", "192.0.2.9:2", "eth:lab1""#].map(with);
    let changes: Vec<String> = between(&old, &new).unwrap().iter().map(ToString::to_string).collect();
    let expected = [
        "portal 192.0.2.9:1 of ecl removed",
        "portal eth:lab0 of ecl removed",
        "portal 192.0.2.9:2 of ecl added",
        "portal eth:lab1 of ecl added",
    ];
    assert_eq!(changes, expected);
}

#[test]
fn every_change_is_found_and_nothing_else() {
    for (from, to, expected) in [
        ("first", "first", &[][..]),
        (
            r#", "192.0.2.2""#,
            r#", "192.0.2.3:1""#,
            &["portal 192.0.2.2:3260 of group 1 removed", "portal 192.0.2.3:1 of group 1 added"],
        ),
        (
            r#", "192.0.2.2"]"#,
            "]\nportal = [{ address = \"192.0.2.2\", group = 2 }]",
            &["portal 192.0.2.2:3260 of group 1 removed", "portal 192.0.2.2:3260 of group 2 added"],
        ),
        (r#""192.0.2.1", "192.0.2.2""#, r#""192.0.2.2", "192.0.2.1""#, &[]),
        ("first", "other", &["target iqn.a: alias changed"]),
        ("alias = \"first\"", "alias = \"first\"\nmax_connections = 3", &["target iqn.a: max_connections changed"]),
        ("alias = \"first\"", "alias = \"first\"\nmarker_interval = 2048", &["target iqn.a: marker_interval changed"]),
        (
            "alias = \"first\"",
            "alias = \"first\"\nredirect = { to = [\"192.0.2.9\"] }",
            &["target iqn.a: redirect changed"],
        ),
        (
            "alias = \"first\"",
            "alias = \"first\"\nsession = { max_outstanding_r2t = 3 }",
            &["target iqn.a: session changed"],
        ),
        ("iqn.host", "iqn.guest", &["target iqn.a: allow changed"]),
        (
            "alias = \"first\"",
            "alias = \"first\"\nchap = [{ user = \"u\", secret_file = \"/s\" }]",
            &["target iqn.a: secrets changed"],
        ),
        (
            "alias = \"first\"",
            "alias = \"first\"\nchap_algorithms = [\"sha256\"]",
            &["target iqn.a: chap_algorithms changed"],
        ),
        ("allow = [\"iqn.host\"]", "", &["target iqn.a: allow changed"]),
        (
            "alias = \"first\"",
            "alias = \"first\"\naccess = { management = \"both\" }",
            &["target iqn.a: target port groups changed"],
        ),
        (
            "alias = \"first\"",
            "alias = \"first\"\nport_group = [{ id = 1 }]",
            &["target iqn.a: target port groups changed"],
        ),
        ("iqn.b", "iqn.c", &["target iqn.b removed", "target iqn.c added"]),
        (r#", { number = 1, disk = "mem:64M" }"#, "", &["target iqn.a: LUN 1 removed"]),
        ("number = 1", "number = 2", &["target iqn.a: LUN 1 removed", "target iqn.a: LUN 2 added"]),
        ("/a", "/c", &["target iqn.a: LUN 0 replaced"]),
        ("mem:64M", "/c", &["target iqn.a: LUN 1 replaced"]),
        ("\"/a\"", "\"/a\", read_only = true", &["target iqn.a: LUN 0 replaced"]),
        ("\"/a\"", "\"/a\", removable = true", &["target iqn.a: LUN 0 replaced"]),
        ("\"/a\"", "\"/a\", serial = \"S\"", &["target iqn.a: LUN 0 replaced"]),
        ("1G", "2G", &["target iqn.a: LUN 0 is to have 2147483648 bytes at least"]),
        (", create = \"1G\"", "", &[]),
        // A different disk may have a different block size.
        ("\"/a\"", "\"/c\", block_size = 4096", &["target iqn.a: LUN 0 replaced"]),
        (
            "\"/a\", create = \"1G\"",
            "\"/a\", serial = \"S\", create = \"2G\"",
            &["target iqn.a: LUN 0 replaced", "target iqn.a: LUN 0 is to have 2147483648 bytes at least"],
        ),
    ] {
        assert_eq!(edit(from, to).unwrap(), expected, "{from} to {to}");
    }
}

#[test]
fn what_needs_a_restart_is_named() {
    for (from, to, expected) in [
        (
            "state = \"/state\"",
            "state = \"/state\"\necl_congestion_control = \"bbr\"",
            "of ecl, only the list of addresses and interfaces can change while the server runs",
        ),
        ("/state", "/other", "state cannot change while the server runs"),
        ("state = \"/state\"", "state = \"/state\"\ncores = 2", "cores cannot change while the server runs"),
        (
            "state = \"/state\"",
            "state = \"/state\"\nlimits = { data_timeout = 5 }",
            "limits cannot change while the server runs",
        ),
        ("state = \"/state\"", "", "state cannot change while the server runs"),
        (
            "\"/a\"",
            "\"/a\", block_size = 4096",
            "target iqn.a: LUN 0: the length of a block (block_size, quantum) cannot change",
        ),
        ("\"/a\"", "\"/a\", provisioning = \"full\"", "target iqn.a: LUN 0: provisioning cannot change"),
        ("1G", "1M", "target iqn.a: LUN 0: create is less than the 1073741824 bytes that it was"),
        ("mem:64M", "mem:65M", "target iqn.a: LUN 1: a disk in memory cannot change its size"),
    ] {
        let refused = edit(from, to).unwrap_err();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].starts_with(expected), "{refused:?}");
    }
}

#[test]
fn all_refusals_are_reported_together_and_no_change_with_them() {
    let new = BASE.replace("/state", "/other").replace("1G", "1M").replace("first", "other");
    let refused = between(&parse(BASE).unwrap(), &parse(&new).unwrap()).unwrap_err();
    assert_eq!(refused.len(), 2, "{refused:?}");
}

#[test]
fn removals_come_before_additions() {
    let moved = BASE
        .replacen("lun = [{ number = 0, disk = \"/a\", create = \"1G\" }, ", "lun = [", 1)
        .replace("name = \"iqn.b\"", "name = \"iqn.c\"\nlun = [{ number = 0, disk = \"/a\" }]");
    let changes = between(&parse(BASE).unwrap(), &parse(&moved).unwrap()).unwrap();
    let text: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["target iqn.a: LUN 0 removed", "target iqn.b removed", "target iqn.c added"]);
}

#[test]
fn a_portal_that_is_listed_twice_counts_twice() {
    let once = parse("listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.a\"").unwrap();
    let twice = parse("listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.a\"").unwrap();
    assert!(matches!(between(&once, &twice).unwrap()[..], [Change::PortalAdded(_)]));
    assert!(matches!(between(&twice, &once).unwrap()[..], [Change::PortalRemoved(_)]));
    assert_eq!(between(&twice, &twice).unwrap(), []);
}

#[test]
fn disks_of_several_gateways_come_and_go_and_do_not_change() {
    let text = |groups: &str, luns: &str| {
        let text = format!(
            "portal = [{{ address = \"::1\", group = 1 }}]\n[[target]]\nname = \"iqn.a\"\n\
             gateways = {{ group = 1, groups = [{groups}] }}\nlun = [{luns}]\n"
        );
        parse(&text).unwrap()
    };
    let (one, two) = ("{ number = 0, disk = \"rbd:p/a\" }", "{ number = 1, disk = \"rbd:p/b\" }");
    let both = text("1, 2", &format!("{one}, {two}"));
    for (old, new, expected) in [
        (&text("1, 2", one), &both, "target iqn.a: LUN 1 added"),
        (&both, &text("1, 2", two), "target iqn.a: LUN 0 removed"),
    ] {
        let changes: Vec<_> = between(old, new).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(changes, [expected]);
    }
    let other = "{ number = 0, disk = \"rbd:p/c\" }";
    let serial = "{ number = 0, disk = \"rbd:p/a\", serial = \"s\" }";
    for new in [text("1, 2", other), text("1, 2", serial), text("1, 3", one)] {
        let refused = between(&text("1, 2", one), &new).unwrap_err();
        assert!(refused[0].to_string().contains("disks may come and go"), "{}", refused[0]);
    }
}
