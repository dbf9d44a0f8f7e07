use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use lunette_session::Secret;

use super::*;
use crate::config::LunEntry;
use crate::config::api::{Api, Place as ApiPlace};
use crate::disks::Place;
use crate::secret::SecretFiles;
use machine::Lack;

/// A machine with these secrets, disks, folders and addresses, and nothing else.
#[derive(Default)]
struct Fake {
    secrets: BTreeMap<PathBuf, &'static str>,
    disks: Vec<String>,
    addresses: Vec<SocketAddr>,
}

#[expect(clippy::needless_pass_by_value, reason = "shorter to call")]
fn there(is_there: bool, what: impl ToString) -> Result<(), Lack> {
    if is_there { Ok(()) } else { Err((Severity::Degraded, format!("{} is not there", what.to_string()))) }
}

impl Machine for Fake {
    fn listen(&self, address: SocketAddr) -> Result<(), Lack> {
        there(self.addresses.contains(&address), address)
    }

    fn interface(&self, name: &str) -> Result<(), Lack> {
        there(false, name)
    }

    fn secrets(&self, files: &[&Path]) -> SecretFiles {
        let secrets = self.secrets.clone();
        let read = move |file: &Path| {
            let secret = secrets.get(file).ok_or_else(|| format!("{} is not there", file.display()))?;
            Ok(Secret::new(secret.as_bytes().to_vec()))
        };
        SecretFiles::default().read_by(files.iter().copied(), read)
    }

    fn disks(&self, entries: &[LunEntry]) -> Vec<Result<(), Lack>> {
        let is_there = |place: &Place| self.disks.contains(&place.to_string());
        entries.iter().map(|entry| there(is_there(&entry.disk.place), &entry.disk.place)).collect()
    }

    fn folder_of(&self, file: &Path) -> Result<(), Lack> {
        there(false, file.display())
    }

    fn certificates(&self, folder: &Path) -> Result<(), Lack> {
        there(false, folder.display())
    }

    fn api(&self, _: &Api, place: &ApiPlace) -> Result<(), Lack> {
        there(false, place)
    }
}

fn fake() -> Fake {
    let secret = |file: &str, secret| (PathBuf::from(file), secret);
    Fake {
        secrets: [
            secret("/a", "a secret of some length"),
            secret("/b", "short"),
            secret("/m", "a secret of some length"),
        ]
        .into(),
        disks: vec!["/d".into(), "mem:1048576".into()],
        addresses: vec!["192.0.2.1:3260".parse().unwrap()],
    }
}

/// File, line, severity and text of each mistake.
fn found(
    main: &str,
    objects: &[(&str, &str)],
    machine: Option<&dyn Machine>,
) -> Vec<(String, usize, Severity, String)> {
    let objects: Vec<_> = objects.iter().map(|(name, text)| ((*name).to_owned(), Ok(*text))).collect();
    let all = of_texts("main.toml", main, &objects, machine);
    all.into_iter().map(|one| (one.file, one.line.unwrap_or_default(), one.severity, one.text)).collect()
}

const WHOLE: &str = "listen = [\"192.0.2.1\"]\n[[target]]\nname = \"iqn.a\"\nlun = [{ number = 0, disk = \"/d\" }]\n";

#[test]
fn a_file_without_mistakes_has_none() {
    assert_eq!(found(WHOLE, &[], Some(&fake())), []);
}

#[test]
fn contradictions_are_found_all_at_once_with_their_lines() {
    let main = "listen = [\"192.0.2.1\", \"192.0.2.1:3260\"]\ncores = 900\n[[target]]\nname = \"iqn.a\"\nmax_connections = 0\n\
                lun = [\n  { number = 0, disk = \"/d\" },\n  { number = 0, disk = \"mem:1M\", provisioning = \"full\" },\n]\n\
                [[target.host]]\nname = \"h\"\nlun = [{ number = 7 }]\n[[target.host]]\nname = \"i\"\nmutual_chap = { user = \"u\", secret_file = \"/a\" }\n";
    let objects = [("conf.d/target-iqn.a.toml", "[[target]]\nname = \"iqn.a\"\n")];
    let all = found(main, &objects, None);
    for (file, line, part) in [
        ("main.toml", 1, "portal 192.0.2.1:3260 is there twice"),
        ("main.toml", 2, "cores = 900"),
        ("main.toml", 5, "max_connections = 0"),
        ("main.toml", 8, "LUN 0 is there twice"),
        ("main.toml", 8, "memory is always thin"),
        ("main.toml", 12, "the target has no LUN 7"),
        ("main.toml", 15, "mutual_chap needs a chap user too"),
        ("conf.d/target-iqn.a.toml", 2, "target iqn.a is there twice"),
    ] {
        let is_there = |one: &(String, usize, Severity, String)| one.0 == file && one.1 == line && one.3.contains(part);
        assert!(all.iter().any(is_there), "{file} {line} {part}: {all:#?}");
    }
    assert_eq!(all.len(), 8, "{all:#?}");
    // What stands in an object takes the object away, and `cores` the server.
    assert!(all.iter().all(|one| (one.2 == Severity::Error) == (one.0 == "main.toml" && one.1 == 2)), "{all:#?}");
}

#[test]
fn a_setting_that_does_not_fit_is_marked_and_takes_its_unit_alone() {
    let unit = "lun = [{ number = 0, disk = \"mem:1M\", vendor = \"muchtoolongvendor\" }]";
    for main in [format!("{WHOLE}[[target]]\nname = \"iqn.b\"\n{unit}\n"), WHOLE.to_owned()] {
        let objects = [("conf.d/target-iqn.b.toml".to_owned(), format!("[[target]]\nname = \"iqn.b\"\n{unit}\n"))];
        let objects: Vec<_> = objects.iter().map(|(name, text)| (name.clone(), Ok(text.as_str()))).collect();
        let objects = if main == WHOLE { &*objects } else { &[] };
        let all = of_texts("main.toml", &main, objects, Some(&fake()));
        let column = unit.find("\"much").unwrap() + 1;
        assert!(all.len() == 1 && all[0].text.contains("1 to 8 bytes"), "{all:#?}");
        assert_eq!((all[0].severity, all[0].column), (Severity::Degraded, Some(column)), "{all:#?}");
        assert_eq!(all[0].subject, Some(Subject::lun("iqn.b", 0)));
    }
}

#[test]
fn a_serial_number_belongs_to_one_disk() {
    let main = |first: &str, second: &str| {
        format!(
            "[[target]]\nname = \"iqn.a\"\nlun = [{{ number = 0, {first} }}]\n[[target]]\nname = \"iqn.b\"\nlun = [{{ number = 0, {second} }}]\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let [disk, link] = ["disk", "link"].map(|name| folder.path().join(name));
    std::fs::write(&disk, "").unwrap();
    std::os::unix::fs::symlink(&disk, &link).unwrap();
    let read_only = |path: &Path| format!("disk = {path:?}, read_only = true, serial = \"S\"");
    // The number that a disk of iqn.a without one has.
    let derived = crate::config::one_lun("disk = \"/x\"").serial_at("iqn.a");
    for (first, second, is_one) in [
        ("disk = \"/x\", serial = \"S\"".into(), "disk = \"/y\", serial = \"S\"".into(), true),
        ("disk = \"mem:1M\", serial = \"S\"".into(), "disk = \"mem:1M\", serial = \"S\"".into(), true),
        ("disk = \"/x\"".into(), format!("disk = \"/y\", serial = {derived:?}"), true),
        ("disk = \"/x\", serial = \"S\"".into(), "disk = \"/y\", serial = \"s\"".into(), false),
        (read_only(&disk), read_only(&link), false),
        ("disk = \"/x\"".into(), "disk = \"/y\"".into(), false),
    ] {
        let all = found(&main(&first, &second), &[], None);
        let twice: Vec<_> = all.iter().filter(|one| one.3.contains("another disk")).map(|one| (one.1, one.2)).collect();
        let expected = if is_one { vec![(6, Severity::Degraded)] } else { Vec::new() };
        assert_eq!(twice, expected, "{first} {second}: {all:?}");
    }
}

#[test]
fn what_the_machine_lacks_is_found_and_refused_only_where_it_is_strict() {
    let main = "listen = [\"192.0.2.1\", \"198.51.100.7\"]\necl = [\"eth:eno9\"]\n[[target]]\nname = \"iqn.a\"\n\
                chap = [{ user = \"b\", secret_file = \"/b\" }, { user = \"c\", secret_file = \"/c\" }]\nlun = [\n  { number = 0, disk = \"/none\" },\n]\n";
    let expected = [
        (1, Severity::Degraded, "198.51.100.7:3260 is not there"),
        (2, Severity::Degraded, "eno9 is not there"),
        (5, Severity::Note, "the secret of b is shorter than 12 bytes"),
        (5, Severity::Degraded, "/c is not there"),
        (7, Severity::Degraded, "/none is not there"),
    ];
    let all = found(main, &[], Some(&fake()));
    assert_eq!(all.len(), expected.len(), "{all:#?}");
    for ((_, line, severity, text), (of, wanted, part)) in all.iter().zip(expected) {
        assert!(*line == of && *severity == wanted && text.contains(part), "{text}: {of} {part}");
    }
    let strict = found(&format!("strict = true\n{main}"), &[], Some(&fake()));
    assert_eq!(strict.iter().filter(|one| one.2 == Severity::Error).count(), 4, "{strict:#?}");
    assert_eq!(found(main, &[], None), [], "the text alone has no mistake");
    let objects = [("conf.d/target-iqn.b.toml", "[[target]]\nname = \"iqn.b\"\nlun = [{ number = 0, disk = \"/x\" }]")];
    let of_object = found(WHOLE, &objects, Some(&fake()));
    assert_eq!(of_object, [("conf.d/target-iqn.b.toml".into(), 3, Severity::Degraded, "/x is not there".into())]);
}

#[test]
fn certificates_that_cannot_be_used_are_found_at_their_keys() {
    let portal = "[[portal]]\naddress = \"192.0.2.1:3260\"\ngroup = 2\ntls = \"/p\"\n";
    let nbd = "[nbd]\nlisten = [\"192.0.2.1:3260\"]\ntls = \"/n\"\n";
    let all = found(&format!("{portal}{nbd}{}", WHOLE.split_once('\n').unwrap().1), &[], Some(&fake()));
    let of_tls: Vec<_> = all.iter().map(|(_, line, severity, text)| (*line, *severity, &**text)).collect();
    let expected = [(4, Severity::Degraded, "/p is not there"), (7, Severity::Degraded, "/n is not there")];
    assert_eq!(of_tls, expected);
}

#[test]
fn one_secret_in_both_directions_shuts_a_rule() {
    let main = format!(
        "{WHOLE}chap = [{{ user = \"a\", secret_file = \"/a\" }}]\nmutual_chap = {{ user = \"t\", secret_file = \"/m\" }}\n"
    );
    let all = found(&main, &[], Some(&fake()));
    assert!(all.len() == 1 && all[0].2 == Severity::Degraded && all[0].3.contains("RFC 7143"), "{all:#?}");
}

#[test]
fn the_secret_of_a_login_to_another_target_proves_nothing_here() {
    let lun = "lun = [{ number = 3, disk = \"iscsi://u@192.0.2.9/iqn.x/0?chap_secret_file=/a\" }]\n";
    let main = format!(
        "[[target]]\nname = \"iqn.d\"\n{lun}chap = [{{ user = \"a\", secret_file = \"/b\" }}]\n\
         mutual_chap = {{ user = \"t\", secret_file = \"/m\" }}\n"
    );
    let all = found(&main, &[], Some(&fake()));
    let is_it = |(_, line, severity, text): &(_, usize, Severity, String)| {
        (*line, *severity) == (5, Severity::Degraded) && text.contains("disk of LUN 3")
    };
    assert!(all.iter().any(is_it), "{all:#?}");
}

#[test]
fn two_rules_of_one_name_that_share_a_secret_are_looked_at_once() {
    let host = "[[target.host]]\nname = \"h\"\n";
    let shared =
        "chap = [{ user = \"a\", secret_file = \"/a\" }]\nmutual_chap = { user = \"t\", secret_file = \"/m\" }\n";
    let all = found(&format!("{WHOLE}{host}{host}{shared}"), &[], Some(&fake()));
    assert!(all.iter().any(|one| one.3.contains("there twice") || one.3.contains("same name")), "{all:#?}");
}

#[test]
fn a_mistake_in_one_object_is_degraded_and_an_error_where_that_refuses_the_start() {
    let objects = [
        ("conf.d/target-iqn.b.toml", "[[target]]\nname = \"iqn.b\"\ncolour = 1\n"),
        ("conf.d/target-iqn.c.toml", "[[target]\n"),
        ("conf.d/copy.toml", "[[target]]\nname = \"iqn.a\"\n"),
    ];
    let main = format!(
        "{WHOLE}[[target]]\nname = \"iqn.d\"\nlun = [{{ number = 0, disk = \"mem:1Q\" }}]\n[[target]]\nalias = \"x\"\n"
    );
    let severities = |text: &str, objects: &[(&str, &str)]| {
        let all = found(text, objects, None);
        all.into_iter().map(|(file, line, severity, _)| (file, line, severity)).collect::<Vec<_>>()
    };
    let expected = |severity| {
        [
            ("conf.d/copy.toml", 0),
            ("conf.d/target-iqn.b.toml", 3),
            ("conf.d/target-iqn.c.toml", 1),
            ("conf.d/target-iqn.c.toml", 1),
            ("main.toml", 7),
            ("main.toml", 8),
        ]
        .map(|(file, line)| (file.to_owned(), line, severity))
    };
    assert_eq!(severities(&main, &objects), expected(Severity::Degraded));
    let strict = severities(&format!("strict = true\n{main}"), &objects);
    assert!(strict.len() == 6 && strict.iter().all(|one| one.2 == Severity::Error), "{strict:?}");
    // Nothing is left, and no API can mend it.
    let alone = "[[target]]\nname = \"iqn.a\"\nmax_connections = 0\n";
    assert_eq!(severities(alone, &[]), [("main.toml".into(), 3, Severity::Error)]);
    assert_eq!(
        severities(&format!("[api]\nlisten = [\"unix:/a\"]\n{alone}"), &[]),
        [("main.toml".into(), 5, Severity::Degraded)]
    );
    let unreadable = of_texts("main.toml", WHOLE, &[("conf.d/target-iqn.b.toml".into(), Err("denied".into()))], None);
    assert_eq!(unreadable[0].to_string(), "conf.d/target-iqn.b.toml: degraded: denied");
}

#[test]
fn a_disk_under_two_numbers_is_found() {
    let main = |first: &str, second: &str| {
        format!(
            "[[target]]\nname = \"iqn.a\"\nlun = [{{ number = 0, {first} }}]\n[[target]]\nname = \"iqn.b\"\nlun = [{{ number = 0, {second} }}]\n"
        )
    };
    for (first, second, expected) in [
        ("disk = \"/x\"", "disk = \"/x\"", Some(Severity::Degraded)),
        ("disk = \"/x\"", "disk = \"/x\", read_only = true", Some(Severity::Degraded)),
        ("disk = \"/x\", read_only = true", "disk = \"/x\", read_only = true", Some(Severity::Note)),
        ("disk = \"/x\"", "disk = \"/x?keys=file:k\"", Some(Severity::Degraded)),
        ("disk = \"iscsi://h/iqn.c/0\"", "disk = \"iscsi://h/iqn.c/0\"", Some(Severity::Note)),
        ("disk = \"/x\"", "disk = \"/y\"", None),
        ("disk = \"mem:1M\"", "disk = \"mem:1M\"", None),
    ] {
        let all = found(&main(first, second), &[], None);
        assert_eq!(
            all.iter().map(|one| (one.1, one.2)).collect::<Vec<_>>(),
            expected.map(|severity| (6, severity)).into_iter().collect::<Vec<_>>(),
            "{first} {second}: {all:?}"
        );
    }
}

#[test]
fn each_entry_of_a_list_has_its_own_mistake() {
    let target = "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 0, disk = \"/d\" }]\n";
    let host = "[[target.host]]\nname = \"h\"\n";
    for (main, wrong) in [
        (format!("listen = [\"1.2.3\", \"192.0.2.1\", \"x y\"]\n{target}"), &["\"1.2.3\"", "\"x y\""][..]),
        (format!("ecl = [\"eth:\", \"x y\"]\n{target}"), &["\"eth:\"", "\"x y\""]),
        (format!("{target}redirect = {{ to = [\"h:p\", \"h\", \"h,70000\"] }}"), &["\"h:p\"", "\"h,70000\""]),
        (format!("{target}{host}networks = [\"lab\", \"::\", \"192.0.2.7/24\"]"), &["\"lab\"", "\"192.0.2.7/24\""]),
        (
            format!(
                "{target}{host}initiators = [\"Db 1\", \"iqn.x\", \"Db 2\"]\nlun = [{{ number = 7 }}, {{ number = 8 }}]"
            ),
            &["\"Db 1\"", "\"Db 2\"", "{ number = 7", "{ number = 8"],
        ),
    ] {
        let all = of_texts("main.toml", &main, &[], None);
        let places: Vec<_> = all.iter().map(|one| (one.line.unwrap(), one.column.unwrap())).collect();
        let place = |part: &&str| {
            let before = &main[..main.find(part).unwrap()];
            (before.matches('\n').count() + 1, before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1)
        };
        assert_eq!(places, wrong.iter().map(place).collect::<Vec<_>>(), "{main}: {all:#?}");
    }
}

#[test]
fn a_mistake_is_told_once_and_alone() {
    for (rest, expected) in [
        ("[metrics]\nlisten = [\"localhost:9\"]", "socket address"),
        ("[nbd]\nlisten = []", "nbd: listen is empty"),
        ("[metrics]\nlisten = [\"192.0.2.1:3260\"]\nnetworks = [\"foo\"]", "no network"),
        ("[api]\nlisten = [\"x y\"]", "x y"),
        ("[api]\nlisten = [\"192.0.2.1:1\"]", "needs tls and tokens"),
    ] {
        let all = found(&format!("{WHOLE}{rest}\n"), &[], Some(&fake()));
        assert!(all.len() == 1 && all[0].3.contains(expected), "{rest}: {all:#?}");
    }
}

#[test]
fn a_portal_that_another_one_covers_is_found() {
    let target = "[[target]]\nname = \"iqn.a\"\n";
    for (listen, is_double) in [
        ("\"*:1\", \"127.0.0.1:1\"", true),
        ("\"[::1]:1\", \"*:1\"", true),
        ("\"0.0.0.0:1\", \"[::1]:1\"", false),
        ("\"*:0\", \"127.0.0.1:0\"", false),
        ("\"127.0.0.1:1\", \"127.0.0.2:1\"", false),
    ] {
        let all = found(&format!("listen = [{listen}]\n{target}"), &[], Some(&fake()));
        let doubles = all.iter().filter(|one| one.3.contains("listens there, too")).count();
        assert_eq!(doubles, usize::from(is_double), "{listen}: {all:?}");
    }
}

#[test]
fn all_secrets_that_are_used_twice_are_named() {
    let target = |name: &str, chap: &str| {
        format!("[[target]]\nname = {name:?}\nlun = [{{ number = 0, disk = \"mem:1M\" }}]\n{chap}\n")
    };
    let both = "chap = [{ user = \"a\", secret_file = \"/a\" }]\nmutual_chap = { user = \"t\", secret_file = \"/m\" }";
    let main = format!("listen = [\"192.0.2.1\"]\n{}{}", target("iqn.a", both), target("iqn.b", both));
    let all = found(&main, &[], Some(&fake()));
    assert_eq!(
        all.iter().map(|one| (one.1, one.2)).collect::<Vec<_>>(),
        [(6, Severity::Degraded), (11, Severity::Degraded)]
    );
    let twice = "chap = [{ user = \"a\", secret_file = \"/a\" }, { user = \"a\", secret_file = \"/b\" }]";
    let all = found(&format!("listen = [\"192.0.2.1\"]\n{}", target("iqn.a", twice)), &[], Some(&fake()));
    assert!(all.iter().any(|one| one.2 == Severity::Note && one.3.contains("a is there twice")), "{all:?}");
}

#[test]
fn md5_alone_and_algorithms_without_users_are_noted() {
    let chap = "chap = [{ user = \"a\", secret_file = \"/a\" }]\n";
    let weak = "chap_algorithms = [\"md5\"]\n";
    let target = "listen = [\"192.0.2.1\"]\n[[target]]\nname = \"iqn.a\"\n";
    for (text, line, part) in [
        (format!("{target}{chap}{weak}"), 5, "MD5 alone"),
        (format!("{target}{weak}"), 4, "no effect without chap users"),
        (format!("{target}{weak}[[target.host]]\nname = \"h\"\n{chap}"), 4, "MD5 alone"),
        (format!("{target}[[target.host]]\nname = \"h\"\n{chap}{weak}"), 7, "MD5 alone"),
        (format!("listen = [\"192.0.2.1\"]\n[discovery]\n{weak}[[target]]\nname = \"iqn.a\""), 3, "no effect"),
    ] {
        let all = found(&text, &[], Some(&fake()));
        assert_eq!(all.len(), 1, "{text}: {all:?}");
        let (_, at, severity, said) = &all[0];
        assert!((*at, *severity) == (line, Severity::Note) && said.contains(part), "{text}: {all:?}");
    }
    for fine in ["chap_algorithms = [\"sha256\", \"md5\"]", "chap_algorithms = [\"sha3-256\"]", ""] {
        assert_eq!(found(&format!("{target}{chap}{fine}"), &[], Some(&fake())), [], "{fine}");
    }
}

#[test]
fn a_plan_names_the_secrets_that_stand_in_the_way() {
    let config = |rest: &str| crate::config::parse(&format!("{WHOLE}{rest}")).unwrap();
    let old = config("");
    let chap = |file: &str| format!("chap = [{{ user = \"a\", secret_file = {file:?} }}]\n");
    let mutual = "mutual_chap = { user = \"t\", secret_file = \"/m\" }\n";
    for (rest, expected) in [
        (chap("/nope"), Some("is not there")),
        (chap("/b"), None),
        (chap("/a") + mutual, Some("RFC 7143")),
        (format!("{}[[target]]\nname = \"iqn.b\"\n{}{mutual}", chap("/a"), chap("/b")), Some("RFC 7143")),
        (format!("[[target.host]]\nname = \"h\"\n{}", chap("/nope")), Some("is not there")),
    ] {
        let new = config(&rest);
        let changes = crate::config::diff::between(&old, &new).unwrap();
        let obstacles = machine::obstacles(&changes, &new, &|_| true, &fake());
        assert!(!changes.is_empty());
        for obstacle in obstacles {
            assert_eq!(obstacle.is_some(), expected.is_some(), "{rest}: {obstacle:?}");
            assert!(obstacle.unwrap_or_default().contains(expected.unwrap_or_default()), "{rest}");
        }
    }
}

#[test]
fn a_part_with_a_mistake_causes_no_others() {
    let main = "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 0, disk = \"mem:1X\" }]\n[[target.host]]\nname = \"h\"\nlun = [{ number = 0 }]\n";
    let all = found(main, &[], Some(&fake()));
    assert!(all.len() == 1 && all[0].3.contains("not a size"), "{all:#?}");
}
