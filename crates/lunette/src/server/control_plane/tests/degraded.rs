//! One object that cannot be served, and all others.

use std::net::{TcpListener, TcpStream};

use lunette_initiator::{Request, Session};
use lunette_scsi::{AdditionalSense, Lun, SenseKey};

use super::*;
use crate::server::reload::Spares;

/// The answer to TEST UNIT READY, behind unit attentions.
fn readiness(session: &Session, lun: u16) -> Option<(SenseKey, AdditionalSense)> {
    loop {
        let outcome = wait(session.execute(Request::new(Lun::new(lun).unwrap(), [0; 16])));
        match outcome.result.unwrap().sense_data().map(|sense| (sense.key, sense.code)) {
            Some((SenseKey::UNIT_ATTENTION, _)) => {}
            other => return other,
        }
    }
}

/// The kind and the name of each trouble.
fn troubles(plane: &ControlPlane) -> Vec<(String, String)> {
    plane.troubles().into_iter().map(|trouble| (trouble.kind, trouble.name)).collect()
}

fn is(kind: &str, name: &str) -> (String, String) {
    (kind.into(), name.into())
}

const NOT_READY: Option<(SenseKey, AdditionalSense)> =
    Some((SenseKey::NOT_READY, AdditionalSense::MANUAL_INTERVENTION_REQUIRED));

#[test]
fn what_can_be_served_is_served_and_the_rest_comes_when_it_can() {
    let place = tempfile::tempdir().unwrap();
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let (portal, path) = (busy.local_addr().unwrap(), place.path().to_owned());
    let (disk, secret) = (path.join("disk"), path.join("secret"));
    let text = format!(
        "listen = [\"127.0.0.1:0\", \"{portal}\"]\n\
         [[target]]\nname = \"iqn.a\"\n\
         lun = [{{ number = 0, disk = \"mem:1M\" }}, {{ number = 1, disk = {disk:?}, serial = \"S1\" }}]\n\
         [[target]]\nname = \"iqn.b\"\nchap = [{{ user = \"u\", secret_file = {secret:?} }}]\n\
         [[target.host]]\nname = \"h\"\ninitiators = [\"iqn.h\"]\nchap = [{{ user = \"u\", secret_file = {secret:?} }}]"
    );
    let running = Running::of(place, &text);
    let plane = &running.plane;
    let portal_name = portal.to_string();
    let all = [is("portal", &portal_name), is("target", "iqn.b"), is("lun", "1"), is("host", "h")];
    assert_eq!(troubles(plane), all);
    let initiator = Initiator::start().unwrap();
    let session = wait(running.url.connect(&initiator, Options::new("iqn.i"))).unwrap();
    assert_eq!((readiness(&session, 0), readiness(&session, 1)), (None, NOT_READY));
    // Never more open than with the secret.
    let other = Url::parse(&running.url.to_string().replace("iqn.a", "iqn.b")).unwrap();
    for name in ["iqn.i", "iqn.h"] {
        assert!(wait(other.connect(&initiator, Options::new(name))).is_err(), "{name}");
    }
    plane.recover();
    assert_eq!(troubles(plane), all, "nothing has come");
    assert_eq!(plane.disks()[1].serial, "S1");

    fs::write(&secret, "a secret of some length").unwrap();
    plane.recover();
    assert_eq!(troubles(plane), [is("portal", &portal_name), is("lun", "1")]);
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    plane.reload();
    assert_eq!(troubles(plane), [is("portal", &portal_name)]);
    assert_eq!(readiness(&session, 1), None);
    drop(busy);
    plane.recover();
    assert_eq!(troubles(plane), []);
    std::net::TcpStream::connect(portal).unwrap();
    assert!(wait(session.ping(vec![1])).unwrap(), "the session saw none of it");
}

#[test]
fn a_mistake_in_a_host_or_a_unit_leaves_its_target_to_all_others() {
    let text = |lun: &str, host: &str| {
        format!(
            "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.a\"\n\
             lun = [{{ number = 0, disk = \"mem:1M\" }}, {{ number = 1, disk = \"mem:1M\"{lun} }}]\n\
             [[target.host]]\nname = \"h\"\ninitiators = [\"iqn.h\"]\nlun = [{{ number = 1 }}]{host}\n\
             [[target.host]]\nname = \"rest\"\n"
        )
    };
    let running = Running::of(tempfile::tempdir().unwrap(), &text(", blok_size = 512", "\nreed_only = true"));
    assert_eq!(troubles(&running.plane), [is("lun", "1"), is("host", "h")]);
    let initiator = Initiator::start().unwrap();
    let session = wait(running.url.connect(&initiator, Options::new("iqn.i"))).unwrap();
    assert_eq!(readiness(&session, 0), None);
    let connect = || wait(running.url.connect(&initiator, Options::new("iqn.h")));
    assert!(connect().is_err(), "the next host is not for it");

    let main = running.place.path().join("main.toml");
    fs::write(&main, text("", "")).unwrap();
    running.plane.reload();
    assert_eq!(troubles(&running.plane), []);
    assert_eq!(readiness(&connect().unwrap(), 1), None);
    assert!(wait(session.ping(vec![1])).unwrap(), "the session saw none of it");

    fs::write(&main, text("", "\nreed_only = true")).unwrap();
    running.plane.reload();
    assert_eq!(troubles(&running.plane), [is("host", "h")]);
    assert_eq!(readiness(&connect().unwrap(), 1), None, "what was served goes on");

    fs::write(&main, text(", vendor = \"muchtoolongvendor\"", "")).unwrap();
    running.plane.reload();
    assert_eq!(troubles(&running.plane), [is("lun", "1")]);
    assert_eq!(readiness(&connect().unwrap(), 1), None, "what was served goes on");
}

const BECOMING_READY: Option<(SenseKey, AdditionalSense)> =
    Some((SenseKey::NOT_READY, AdditionalSense::BECOMING_READY));

/// A disk of another target that takes the connection, and never answers.
struct Silent(TcpListener);

impl Silent {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn lun(&self, number: u16) -> String {
        format!("{{ number = {number}, disk = \"iscsi://{}/iqn.far/0\" }}", self.0.local_addr().unwrap())
    }

    /// The connection of one attempt. The attempt fails when that is dropped.
    fn attempt(&self) -> TcpStream {
        self.0.accept().unwrap().0
    }

    /// Whether no other attempt has connected.
    fn is_quiet(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        self.0.accept().is_err()
    }
}

/// Serves what is open by then, each time that an attempt ends, until `is_met`.
fn settle_until(plane: &ControlPlane, is_met: impl Fn() -> bool) {
    let (openings, mut ends) = (plane.openings(), 0);
    let limit = Instant::now() + Duration::from_mins(1);
    while !is_met() {
        assert!(Instant::now() < limit, "{:?}", plane.troubles());
        ends = openings.wait_for_more(ends, limit);
        plane.settle();
    }
}

#[test]
fn a_disk_that_does_not_answer_holds_up_no_other_and_comes_when_it_does() {
    let (place, silent) = (tempfile::tempdir().unwrap(), Silent::new());
    let disk = place.path().join("disk");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.a\"\n\
         lun = [{}, {{ number = 1, disk = {disk:?}, create = \"1M\" }}]\n",
        silent.lun(0)
    );
    // Nothing is open in no time at all.
    let running = Running::within(Some(Duration::ZERO), place, &text);
    let plane = &running.plane;
    let initiator = Initiator::start().unwrap();
    let session = wait(running.url.connect(&initiator, Options::new("iqn.i"))).unwrap();
    assert_eq!(readiness(&session, 0), BECOMING_READY);
    let attempt = silent.attempt();
    settle_until(plane, || troubles(plane) == [is("lun", "0")]);
    assert_eq!((readiness(&session, 0), readiness(&session, 1)), (BECOMING_READY, None));
    assert!(plane.troubles()[0].text.contains("does not answer yet"));
    // Neither a reload nor a retry begins another attempt.
    plane.reload();
    let begun = plane.retry();
    assert_eq!((begun.len(), silent.is_quiet()), (1, true));
    drop(attempt);
    settle_until(plane, || readiness(&session, 0) == NOT_READY);
    assert!(!plane.troubles()[0].text.contains("does not answer yet"), "{:?}", plane.troubles());
    assert!(disk.exists());
}

#[test]
fn a_disk_that_is_no_longer_asked_for_leaves_nothing() {
    let (place, silent) = (tempfile::tempdir().unwrap(), Silent::new());
    let text = format!("listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.a\"\nlun = [{}]\n", silent.lun(0));
    let running = Running::within(Some(Duration::ZERO), place, &text);
    let (plane, main) = (&running.plane, running.place.path().join("main.toml"));
    let hung = silent.attempt();
    let disk = running.place.path().join("disk");
    fs::write(&main, text.replace(&silent.lun(0), &format!("{{ number = 0, disk = {disk:?}, create = \"1M\" }}")))
        .unwrap();
    plane.reload();
    assert_eq!(troubles(plane), [], "what is asked for now is served while the old attempt hangs");
    let ends = plane.openings().ends();
    drop(hung);
    // An attempt behind it in its lane has its turn when it has ended.
    let name: DiskName = format!("iscsi://{}/iqn.far/0", silent.0.local_addr().unwrap()).parse().unwrap();
    let nothing = || Err(crate::failure::Failure::other("nothing"));
    let behind = plane.openings().begin(name.place.plain_identity(), nothing).unwrap();
    assert!(behind.wait(None));
    plane.settle();
    assert_eq!((troubles(plane), plane.openings().ends()), (vec![], ends + 1));
}

#[test]
fn a_disk_that_was_opened_for_what_is_changed_is_closed_before_it_is_opened_again() {
    let place = tempfile::tempdir().unwrap();
    let (folder, disk) = (place.path().join("conf.d"), place.path().join("disk"));
    fs::create_dir(&folder).unwrap();
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let file = folder.join("target-iqn.d.toml");
    let text = |serial: &str| {
        format!("[[target]]\nname = \"iqn.d\"\nlun = [{{ number = 0, disk = {disk:?}, serial = \"{serial}\" }}]")
    };
    fs::write(&file, text("S1")).unwrap();
    let running = Running::within(Some(Duration::ZERO), place, MAIN);
    let plane = &running.plane;
    // Both disks are open now, and in no place yet.
    let mut ends = 0;
    while ends < 2 {
        ends = plane.openings().wait_for_more(ends, Instant::now() + Duration::from_mins(1));
    }
    let document = json!({ "lun": [{ "number": 0, "disk": disk, "serial": "S2" }] });
    let Value::Object(document) = document else { unreachable!() };
    let edit: Edit = Box::new(move |catalog| {
        let mut objects = catalog.objects.clone();
        objects.put(Key::new(Kind::Target, "iqn.d").unwrap(), document)?;
        Ok(objects)
    });
    plane.change(order(edit)).unwrap();
    plane.settle();
    assert_eq!((troubles(plane), plane.disks()[1].serial.as_str()), (vec![], "S2"));
}

#[test]
fn a_disk_whose_place_is_open_under_other_settings_holds_up_no_other() {
    let place = tempfile::tempdir().unwrap();
    let disk = place.path().join("disk");
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let text = |keys: &str, more: &str| {
        format!(
            "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.a\"\n\
             lun = [{{ number = 0, disk = \"{}{keys}\" }}{more}]\n",
            disk.display()
        )
    };
    let running = Running::of(place, &text("", ""));
    let (plane, main) = (&running.plane, running.place.path().join("main.toml"));
    let initiator = Initiator::start().unwrap();
    let session = wait(running.url.connect(&initiator, Options::new("iqn.i"))).unwrap();
    assert_eq!(readiness(&session, 0), None);
    // Two open volumes would write over each other, and a plain disk beside one as well.
    let more = ", { number = 1, disk = \"mem:1M\" }";
    fs::write(&main, text("?keys=file:/nowhere/keys", more)).unwrap();
    plane.reload();
    assert_eq!(troubles(plane), [is("lun", "0")]);
    assert_eq!((readiness(&session, 0), readiness(&session, 1)), (NOT_READY, None));
    // It is tried until the last command of the plain disk has ended.
    let limit = Instant::now() + Duration::from_mins(1);
    while !plane.troubles()[0].text.contains("/nowhere/keys") {
        assert!(Instant::now() < limit, "{:?}", plane.troubles());
        plane.recover();
    }
    fs::write(&main, text("", more)).unwrap();
    plane.reload();
    assert_eq!((troubles(plane), readiness(&session, 0)), (vec![], None));
}

#[test]
fn a_strict_start_is_refused_at_the_deadline_with_the_name_of_the_disk() {
    let silent = Silent::new();
    let text = format!("strict = true\n[[target]]\nname = \"iqn.a\"\nlun = [{}]\n", silent.lun(3));
    let refused =
        Served::open_within(&crate::config::parse(&text).unwrap(), Some(Duration::ZERO), &mut Spares::default())
            .err()
            .unwrap();
    let address = silent.0.local_addr().unwrap();
    let expected = format!("LUN 3 of iqn.a: iscsi://{address}/iqn.far/0: it does not answer");
    assert!(refused.to_string().starts_with(&expected), "{refused}");
}

#[test]
fn a_reload_serves_what_it_can_and_a_client_is_told_what_it_cannot() {
    let running = Running::start();
    let initiator = Initiator::start().unwrap();
    let session = wait(running.url.connect(&initiator, Options::new("iqn.i"))).unwrap();
    let (plane, folder) = (&running.plane, running.place.path().to_owned());
    let absent = folder.join("absent");
    let lun = |number: u16| format!("{{ number = {number}, disk = {absent:?} }}");
    let more = format!("{}, {}]", MAIN.trim_end_matches(']'), lun(1));
    fs::write(folder.join("main.toml"), &more).unwrap();
    plane.reload();
    assert_eq!(troubles(plane), [is("lun", "1")]);
    assert_eq!((readiness(&session, 0), readiness(&session, 1)), (None, NOT_READY));
    let edit = |name: &'static str, disk: &str| -> Edit {
        let document = serde_json::json!({ "lun": [{ "number": 0, "disk": disk }] });
        Box::new(move |catalog| {
            let mut objects = catalog.objects.clone();
            let serde_json::Value::Object(document) = document else { unreachable!() };
            objects.put(Key::new(Kind::Target, name).unwrap(), document)?;
            Ok(objects)
        })
    };
    let obstacles = |edit: Edit| -> Vec<Option<String>> {
        plane.plan(order(edit)).unwrap().changes.into_iter().map(|change| change.obstacle).collect()
    };
    let expected = obstacles(edit("iqn.b", absent.to_str().unwrap()));
    assert!(expected.len() == 1 && expected[0].as_ref().unwrap().contains(absent.to_str().unwrap()), "{expected:?}");
    assert_eq!(obstacles(edit("iqn.b", "mem:1M")), [None]);
    let refused = plane.change(order(edit("iqn.b", absent.to_str().unwrap()))).unwrap_err();
    assert!(refused.detail.contains(absent.to_str().unwrap()), "{refused}");
    plane.change(order(edit("iqn.c", "mem:1M"))).unwrap();
    assert_eq!(troubles(plane), [is("lun", "1")], "the trouble of another object refuses no change");
    fs::write(folder.join("main.toml"), MAIN).unwrap();
    plane.reload();
    assert_eq!(troubles(plane), [], "what is not configured is not in trouble");
}

#[test]
fn a_broken_file_takes_nothing_away_and_is_not_written_over() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("conf.d");
    fs::create_dir(&folder).unwrap();
    let torn = folder.join("target-iqn.torn.toml");
    fs::write(&torn, "[[target]").unwrap();
    fs::write(folder.join("target-iqn.good.toml"), "[[target]]\nname = \"iqn.good\"").unwrap();
    let running = Running::of(place, MAIN);
    let plane = &running.plane;
    assert_eq!(troubles(plane), [is("target", "iqn.torn")]);
    let served = || plane.shown().targets.keys().cloned().collect::<Vec<_>>();
    assert_eq!(served(), ["iqn.a", "iqn.good"]);
    // Other objects can be changed; a file that is not understood is not lost.
    plane.change(order(add("iqn.new"))).unwrap();
    let refused = plane.change(order(add("iqn.torn"))).unwrap_err();
    assert!(
        refused.status == 409 && refused.detail.contains("target-iqn.torn.toml") && refused.detail.contains("line 1"),
        "{refused}"
    );
    assert_eq!(fs::read_to_string(&torn).unwrap(), "[[target]");
    // What is served stays while its file is broken, and follows the file when that is mended.
    fs::write(&torn, "[[target]]\nname = \"iqn.torn\"\nlun = [{ number = 0, disk = \"mem:1M\" }]").unwrap();
    plane.reload();
    assert_eq!((troubles(plane), plane.disks().len()), (vec![], 2));
    fs::write(&torn, "[[target]]\nname = \"iqn.torn\"\nlun = [{ number = 0, disk = \"mem:1M\" }]\ncolour = 1").unwrap();
    plane.reload();
    assert_eq!((troubles(plane), plane.disks().len()), (vec![is("target", "iqn.torn")], 2));
    plane.change(order(add("iqn.more"))).unwrap();
    fs::remove_file(&torn).unwrap();
    plane.reload();
    assert_eq!(
        (troubles(plane), served()),
        (vec![], ["iqn.a", "iqn.good", "iqn.more", "iqn.new"].map(str::to_owned).to_vec())
    );
}

#[test]
fn what_cannot_change_while_it_is_served_holds_no_other_change_up() {
    let running = Running::start();
    let (plane, main) = (&running.plane, running.place.path().join("main.toml"));
    fs::write(
        &main,
        format!("{}, {{ number = 1, disk = \"mem:2M\" }}]", MAIN.replace("mem:1M", "mem:3M").trim_end_matches(']')),
    )
    .unwrap();
    plane.reload();
    assert_eq!(troubles(plane), [is("lun", "0")]);
    assert_eq!(plane.disks().iter().map(|disk| disk.size_bytes >> 20).collect::<Vec<_>>(), [1, 2]);
    plane.change(order(add("iqn.b"))).unwrap();
    fs::write(&main, format!("strict = true\n{}", MAIN.replace("mem:1M", "mem:3M"))).unwrap();
    plane.reload();
    assert_eq!(plane.disks().len(), 2, "strict refuses the whole");
}

#[test]
fn a_secret_in_both_directions_shuts_one_rule_alone() {
    let place = tempfile::tempdir().unwrap();
    let secret = |name: &str| {
        let path = place.path().join(name);
        fs::write(&path, format!("{name} secret of some length")).unwrap();
        path
    };
    let (one, two, three) = (secret("one"), secret("two"), secret("three"));
    let target = |name: &str, chap: &std::path::Path, mutual: &std::path::Path| {
        format!(
            "\n[[target]]\nname = \"{name}\"\nchap = [{{ user = \"u\", secret_file = {chap:?} }}]\n\
             mutual_chap = {{ user = \"t\", secret_file = {mutual:?} }}"
        )
    };
    let main = place.path().join("main.toml");
    let before = format!("{MAIN}{}", target("iqn.b", &one, &two));
    let running = Running::of(place, &before);
    let plane = &running.plane;
    assert_eq!(troubles(plane), []);
    let client = Initiator::start().unwrap();
    let enters = |target: &str, file: &std::path::Path| {
        let url = Url::parse(&running.url.to_string().replace("iqn.a", target)).unwrap();
        let secret = lunette_session::Secret::new(fs::read(file).unwrap());
        let mut options = Options::new("iqn.i");
        let initiator = lunette_session::Credentials { user: "u".into(), secret };
        options.chap = Some(lunette_initiator::ChapIdentity {
            initiator,
            target: None,
            algorithms: lunette_session::ChapAlgorithms::ALL,
        });
        wait(url.connect(&client, options)).is_ok()
    };
    assert!(enters("iqn.b", &one));
    // The newcomer asks for what the server proves itself with.
    fs::write(&main, format!("{before}{}", target("iqn.c", &two, &three))).unwrap();
    plane.reload();
    assert_eq!(troubles(plane), [is("target", "iqn.c")]);
    assert!(enters("iqn.b", &one) && !enters("iqn.c", &two));
    plane.recover();
    assert_eq!(troubles(plane), [is("target", "iqn.c")]);
    // At a start no rule is older: the one that proves itself goes.
    let config = Files::new(main.clone(), Vec::new(), false).read(None).unwrap().config;
    let served = Served::open(&config).unwrap();
    assert_eq!(served.troubles().len(), 1);
    assert!(Served::open(&Config { strict: true, ..config }).is_err());
    fs::write(&two, "another secret of some length").unwrap();
    plane.reload();
    assert_eq!(troubles(plane), [is("target", "iqn.c")], "both rules read the file, so both have the other secret");
    fs::write(&main, format!("{before}{}", target("iqn.c", &one, &three))).unwrap();
    plane.reload();
    assert_eq!(troubles(plane), []);
    assert!(enters("iqn.c", &one));
    // The server logs in to the target of a disk with what it proves itself with here.
    let lun = format!(
        "lun = [{{ number = 0, disk = \"iscsi://u@127.0.0.1:1/iqn.x/0?chap_secret_file={}\" }}]",
        two.display()
    );
    fs::write(&main, format!("{before}\n[[target]]\nname = \"iqn.d\"\n{lun}")).unwrap();
    plane.reload();
    assert!(troubles(plane).contains(&is("target", "iqn.b")), "{:?}", troubles(plane));
    assert!(!enters("iqn.b", &one));
}

#[test]
fn strict_refuses_the_whole() {
    let place = tempfile::tempdir().unwrap();
    let main = place.path().join("main.toml");
    let with = |head: &str, keys: &str| {
        fs::write(&main, format!("{head}\n[[target]]\nname = \"iqn.a\"\n{keys}")).unwrap();
        let read = |strict| Files::new(main.clone(), Vec::new(), strict).read(None).unwrap().config;
        let open = |config| Served::open(&config).err().map(|failure| failure.to_string());
        (open(read(false)), open(read(true)))
    };
    let absent = place.path().join("absent");
    for keys in [
        format!("lun = [{{ number = 0, disk = {absent:?} }}]"),
        format!("chap = [{{ user = \"u\", secret_file = {absent:?} }}]"),
        format!("[[target.host]]\nname = \"h\"\nchap = [{{ user = \"u\", secret_file = {absent:?} }}]"),
    ] {
        let (lenient, strict) = with("", &keys);
        assert_eq!(lenient, None, "{keys}");
        assert!(strict.unwrap().contains(absent.to_str().unwrap()), "{keys}");
        assert!(with("strict = true", &keys).0.is_some(), "{keys}");
    }
}

#[test]
fn a_portal_whose_zone_is_not_known_takes_no_other_away() {
    let text = MAIN.replacen("\"127.0.0.1:0\"", "\"127.0.0.1:0\", \"[fe80::1%nowhere]:3260\"", 1);
    let running = Running::of(tempfile::tempdir().unwrap(), &text);
    let expected = [("portal".to_owned(), "[fe80::1%nowhere]:3260".to_owned())];
    assert_eq!(troubles(&running.plane), expected);
    running.plane.recover();
    assert_eq!(troubles(&running.plane), expected, "it is looked up again, and still not known");
}
