//! One object that cannot be served, and all others.

use std::net::TcpListener;

use lunette_initiator::{Request, Session};
use lunette_scsi::{AdditionalSense, Lun, SenseKey};

use super::*;

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
fn strict_refuses_the_whole() {
    let place = tempfile::tempdir().unwrap();
    let main = place.path().join("main.toml");
    let with = |head: &str, keys: &str| {
        fs::write(&main, format!("{head}\n[[target]]\nname = \"iqn.a\"\n{keys}")).unwrap();
        let read = |strict| Files::new(main.clone(), Vec::new(), strict).read().unwrap().1;
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
