//! Volumes of a pool that are served: what initiators see of snapshots, clones and roll backs.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;
use lunette_pdu::{LoginStatus, Stage};
use lunette_testkit::{ScriptedInitiator, Sense};
use lunette_tests::{Configured, Mount, Server, attach, lunette, wait_until, walks};
use serde_json::{Value, json};

pub(super) const TARGET: &str = "targets/iqn.2026-11.org.example:a";
const LUNS_CHANGED: Sense = (6, 0x3f, 0x0e);
const MEDIUM_CHANGED: Sense = (6, 0x28, 0x00);
const CAPACITY_CHANGED: Sense = (6, 0x2a, 0x09);

/// Bytes of the file system: XFS takes no smaller device.
const DEVICE_BYTES: u64 = 512 << 20;

/// The longest that the server has for what it does by itself.
const LIMIT: Duration = Duration::from_secs(30);

/// Blocks of the commands of these tests.
const BLOCKS: u16 = 8;

pub(super) struct Running {
    pub(super) place: Configured,
    pub(super) server: Server,
    // The server ends before its file system.
    pub(super) pool: Mount,
}

impl Running {
    /// A server with a pool, and a target with a disk in memory. `more` is of the pool.
    pub(super) fn start(more: &str) -> Self {
        let (place, pool) = (Configured::new(), Mount::new("mkfs.xfs", &["-q"], DEVICE_BYTES));
        let folder = pool.path().display().to_string();
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nstate = \"@/state\"\napi = {{ listen = [\"unix:@/api.sock\"] }}\n\
             [[pool]]\nname = \"tank\"\nplace = {folder:?}\n{more}"
        );
        fs::create_dir(place.file("conf.d")).unwrap();
        let target = "[[target]]\nname = \"iqn.2026-11.org.example:a\"\nallow = [\"*\"]\n\
                      lun = [{ number = 9, disk = \"mem:1M\" }]";
        fs::write(place.file("conf.d/target-iqn.2026-11.org.example:a.toml"), target).unwrap();
        let server = place.start(&text, 1);
        Self { place, server, pool }
    }

    pub(super) fn run(&self, arguments: &[&str]) -> std::process::Output {
        let socket = format!("unix:{}", self.place.file("api.sock").display());
        lunette().args(arguments).args(["--api", &socket]).output().unwrap()
    }

    /// The answer to `lunette volume`, as JSON.
    pub(super) fn volume(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[&["volume", "--json"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Why `lunette volume` is refused.
    pub(super) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(&[&["volume"], arguments].concat());
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {why}");
        why
    }

    pub(super) fn serve(&self, lun: u16, disk: &str) {
        let (path, disk) = (format!("{TARGET}/luns/{lun}"), format!("disk={disk}"));
        let output = self.run(&["ctl", "add", &path, &disk]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

pub(super) fn filled(byte: u8) -> Vec<u8> {
    vec![byte; usize::from(BLOCKS) * 512]
}

/// Takes the unit attentions of a logical unit.
pub(super) fn take_attentions(initiator: &mut ScriptedInitiator, lun: u16) {
    while initiator.test_unit_ready(lun).status != 0 {}
}

fn read(initiator: &mut ScriptedInitiator, lun: u16) -> Vec<u8> {
    initiator.read(lun, 0, BLOCKS).good()
}

/// The serial number of a logical unit (VPD page 80h).
pub(super) fn serial(initiator: &mut ScriptedInitiator, lun: u16) -> String {
    let page = initiator.command(lun, &[0x12, 1, 0x80, 0, 255, 0], Vec::new(), 255).good();
    String::from_utf8_lossy(&page[4..]).trim().to_owned()
}

#[test]
fn snapshots_clones_and_roll_backs_have_their_bytes() {
    let running = Running::start("");
    let created = running.volume(&["create", "tank/db", "--size", "16M", "--label", "of=us"]);
    assert_eq!((&created["size_bytes"], &created["labels"]), (&json!(16 << 20), &json!({ "of": "us" })));
    running.serve(0, "volume:tank/db");
    let mut initiator = attach(&running.server, &[]);
    initiator.write(0, 0, filled(1)).good();
    let taken = running.volume(&["snapshot", "monday", "tank/db"]);
    assert_eq!(taken["snapshots"][0]["name"], "monday", "{taken}");
    initiator.write(0, 0, filled(2)).good();
    running.volume(&["clone", "tank/db@monday", "tank/copy"]);
    running.serve(1, "volume:tank/copy");
    running.serve(2, "volume:tank/db@monday");
    assert_eq!(initiator.test_unit_ready(0).sense(), LUNS_CHANGED);
    for (lun, byte) in [(0, 2), (1, 1), (2, 1)] {
        take_attentions(&mut initiator, lun);
        assert_eq!(read(&mut initiator, lun), filled(byte), "LUN {lun}");
    }
    // Each has a serial number of its own, which is that of the volume for life.
    let serials = [0, 1, 2].map(|lun| serial(&mut initiator, lun));
    assert_eq!(created["serial"], serials[0]);
    assert!(serials[0] != serials[1] && serials[1] != serials[2] && serials[0] != serials[2], "{serials:?}");
    assert_eq!(initiator.write(2, 0, filled(3)).sense().0, 7, "a snapshot is write protected");
    // A clone goes its own way.
    initiator.write(1, 0, filled(4)).good();
    assert_eq!(read(&mut initiator, 2), filled(1));

    for (arguments, why) in [
        (&["rm", "tank/copy"][..], "luns/1"),
        (&["rename", "tank/copy", "other"], "luns/1"),
        (&["rm", "tank/db@monday"], "luns/2"),
        (&["resize", "tank/db", "8M"], "force"),
        (&["resize", "tank/db", "8M", "--force"], "luns/0"),
        (&["create", "tank/db", "--size", "1M"], "already"),
        (&["rm", "tank/none"], "not found: there is no volume none"),
        (&["rollback", "tank/db@none"], "not found: there is no snapshot none of volume db"),
        (&["snapshot", "monday", "tank/db"], "already"),
    ] {
        let refused = running.refused(arguments);
        assert!(refused.contains(why), "{arguments:?}: {refused}");
    }

    running.volume(&["rollback", "tank/db@monday", "--wait"]);
    assert_eq!(initiator.test_unit_ready(0).sense(), MEDIUM_CHANGED);
    assert_eq!(read(&mut initiator, 0), filled(1));
    let snapshots = running.volume(&["ls", "tank/db"]);
    let names: Vec<_> =
        snapshots.as_array().unwrap().iter().map(|snapshot| snapshot["name"].as_str().unwrap()).collect();
    assert!(names.len() == 2 && names[1].starts_with("before-rollback-"), "{names:?}");
    running.volume(&["clone", &format!("tank/db@{}", names[1]), "tank/before"]);
    running.serve(3, "volume:tank/before");
    take_attentions(&mut initiator, 3);
    take_attentions(&mut initiator, 0);
    assert_eq!(read(&mut initiator, 3), filled(2), "the content that the roll back has replaced");

    running.volume(&["resize", "tank/db", "32M"]);
    assert_eq!(initiator.test_unit_ready(0).sense(), CAPACITY_CHANGED);
    initiator.write(0, 60_000, filled(5)).good();
    let shown = running.volume(&["show", "tank/db"]);
    assert_eq!((&shown["size_bytes"], &shown["luns"]), (&json!(32 << 20), &json!([format!("{TARGET}/luns/0")])));
    drop(initiator);

    // Nothing of it depends on the server: a file is a raw image, and a new server finds all of it.
    let Running { place, server, pool } = running;
    server.stop();
    let image = fs::read(pool.path().join("db/disk.img")).unwrap();
    assert_eq!((image.len(), &image[..4096]), (32 << 20, &filled(1)[..]));
    let server = place.start(&fs::read_to_string(place.file("config")).unwrap(), 5);
    let mut initiator = attach(&server, &[]);
    take_attentions(&mut initiator, 0);
    assert_eq!(read(&mut initiator, 0), filled(1));
    assert_eq!(serial(&mut initiator, 0), serials[0]);
    server.stop();
}

/// A writer that writes a number to one volume, and when that is acknowledged to the other one.
#[test]
fn a_snapshot_of_several_volumes_has_one_instant() {
    let running = Running::start("");
    let volumes = ["tank/first", "tank/second"];
    for (lun, volume) in (0..).zip(volumes) {
        running.volume(&["create", volume, "--size", "16M"]);
        running.serve(lun, &format!("volume:{volume}"));
    }
    let mut initiator = attach(&running.server, &[]);
    initiator.test_unit_ready(1);
    let ends = AtomicBool::new(false);
    let numbers = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0_u64;
            while !ends.load(Ordering::Relaxed) {
                number += 1;
                for lun in [0, 1] {
                    initiator.write(lun, 0, number.to_be_bytes().repeat(64)).good();
                }
            }
            number
        });
        for number in 0..8 {
            running.volume(&["snapshot", &format!("s{number}"), volumes[0], volumes[1]]);
        }
        ends.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert!(numbers > 8, "the writer has written: {numbers}");
    let number = |volume: &str, snapshot: u32| {
        let path = running.pool.path().join(volume).join(format!("snapshots/s{snapshot}.img"));
        u64::from_be_bytes(fs::read(path).unwrap()[..8].try_into().unwrap())
    };
    for snapshot in 0..8 {
        let (first, second) = (number("first", snapshot), number("second", snapshot));
        assert!(first == second || first == second + 1, "snapshot {snapshot}: {first} and {second}");
    }
}

#[test]
fn a_schedule_takes_snapshots_when_the_server_starts() {
    let schedule = "schedule = [{ name = \"auto\", volumes = [\"d*\"], every = \"1h\", keep = { last = 2 } }]\n";
    let running = Running::start("");
    running.volume(&["create", "tank/db", "--size", "1M"]);
    running.volume(&["create", "tank/log", "--size", "1M"]);
    let Running { place, server, pool } = running;
    server.stop();
    let text = fs::read_to_string(place.file("config")).unwrap() + schedule;
    let server = place.start(&text, 1);
    let running = Running { place, server, pool };
    let taken = || running.volume(&["ls", "tank/db"]).as_array().unwrap().clone();
    let snapshots =
        wait_until(LIMIT, || Some(taken()).filter(|taken| !taken.is_empty())).expect("a snapshot by schedule");
    let others = running.volume(&["ls", "tank/log"]);
    let name = snapshots[0]["name"].as_str().unwrap();
    assert!(snapshots.len() == 1 && name.starts_with("auto-") && name.ends_with("0000Z"), "{snapshots:?}");
    assert_eq!(others, json!([]));
}

#[test]
fn a_file_system_without_reflinks_has_volumes_and_no_snapshots() {
    let place = Configured::new();
    fs::create_dir(place.file("pool")).unwrap();
    let text = "listen = [\"127.0.0.1:0\"]\napi = { listen = [\"unix:@/api.sock\"] }\n\
                [[pool]]\nname = \"tank\"\nplace = \"@/pool\"\n\
                [[target]]\nname = \"iqn.2026-11.org.example:a\"\nallow = [\"*\"]\nlun = [{ number = 0, disk = \"volume:tank/db\" }]";
    let server = place.start(text, 1);
    let socket = format!("unix:{}", place.file("api.sock").display());
    let run = |arguments: &[&str]| lunette().args(["volume", "--api", &socket]).args(arguments).output().unwrap();
    assert!(run(&["create", "tank/db", "--size", "1M"]).status.success());
    let refused = run(&["snapshot", "s", "tank/db"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(3) && why.contains("reflinks"), "{why}");
    // The disk comes as soon as there is a volume.
    let mut initiator = attach(&server, &[]);
    let is_ready = || (initiator.test_unit_ready(0).status == 0).then_some(());
    wait_until(LIMIT, is_ready).expect("the volume is served");
}

/// A target whose initiators get clones of `golden@v1`.
const TEMPLATE: &str = "iqn.2026-11.org.example:boot";

/// Logs in to the target of clones.
fn log_in_as(server: &Server, initiator: &str) -> ScriptedInitiator {
    let mut scripted = ScriptedInitiator::connect(server.address());
    let keys = [("InitiatorName", initiator), ("SessionType", "Normal"), ("TargetName", TEMPLATE)];
    let (csg, nsg) = (Stage::LoginOperationalNegotiation, Some(Stage::FullFeaturePhase));
    let (response, _) = scripted.login_step(csg, nsg, &keys).unwrap();
    assert_eq!(response.status, LoginStatus::SUCCESS, "{initiator}");
    scripted
}

fn initiator(number: usize) -> String {
    format!("iqn.2026-11.org.example:web{number}")
}

/// A server with a golden image that is all ones, and a host with `keys` that makes clones of it.
fn with_template(keys: &str) -> Running {
    let running = Running::start("");
    let target =
        format!("[[target]]\nname = {TEMPLATE:?}\n[[target.host]]\nname = \"web\"\nclone = \"tank/golden@v1\"\n{keys}");
    running.volume(&["create", "tank/golden", "--size", "16M"]);
    running.serve(0, "volume:tank/golden");
    let mut first = attach(&running.server, &[]);
    first.write(0, 0, filled(1)).good();
    running.volume(&["snapshot", "v1", "tank/golden"]);
    let file = running.place.file(&format!("conf.d/target-{TEMPLATE}.toml"));
    fs::write(file, target).unwrap();
    running.server.hang_up(&["changes applied"]);
    running
}

fn clones(running: &Running) -> Vec<String> {
    let volumes = running.volume(&["ls", "tank"]);
    let names = volumes.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("golden-")).collect()
}

#[test]
fn each_initiator_of_a_template_gets_a_clone_and_keeps_it() {
    let running = with_template("max_clones = 2");
    let mut serials = Vec::new();
    for number in 0..2 {
        let mut here = log_in_as(&running.server, &initiator(number));
        take_attentions(&mut here, 0);
        assert_eq!(read(&mut here, 0), filled(1));
        here.write(0, 0, filled(10 + u8::try_from(number).unwrap())).good();
        here.command(0, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], Vec::new(), 0).good();
        serials.push(serial(&mut here, 0));
    }
    assert_eq!(clones(&running).len(), 2);
    for removal in [&["rm", "tank/golden@v1"][..], &["rename", "tank/golden", "old"]] {
        let refused = running.refused(removal);
        assert!(refused.contains("hosts/web makes clones of tank/golden@v1"), "{refused}");
    }
    let mut third = ScriptedInitiator::connect(running.server.address());
    let third_name = initiator(2);
    let keys = [("InitiatorName", &*third_name), ("SessionType", "Normal"), ("TargetName", TEMPLATE)];
    let (csg, nsg) = (Stage::LoginOperationalNegotiation, Some(Stage::FullFeaturePhase));
    let (refused, _) = third.login_step(csg, nsg, &keys).unwrap();
    assert_eq!(refused.status, LoginStatus::SERVICE_UNAVAILABLE, "there are as many as there may be");

    let Running { place, server, pool } = running;
    server.stop();
    let server = place.start(&fs::read_to_string(place.file("config")).unwrap(), 2);
    for number in [1, 0] {
        let mut again = log_in_as(&server, &initiator(number));
        take_attentions(&mut again, 0);
        assert_eq!(read(&mut again, 0), filled(10 + u8::try_from(number).unwrap()));
        assert_eq!(serial(&mut again, 0), serials[number]);
    }
    server.stop();
    drop(pool);
}

#[test]
fn an_ephemeral_clone_goes_with_its_initiator() {
    let running = with_template("ephemeral = \"0\"");
    let mut here = log_in_as(&running.server, &initiator(0));
    take_attentions(&mut here, 0);
    here.write(0, 0, filled(2)).good();
    let [clone] = &*clones(&running) else { panic!("one clone") };
    running.volume(&["snapshot", "mine", &format!("tank/{clone}")]);
    // Its LUN is none that a user removes.
    let refused = running.refused(&["rename", &format!("tank/{clone}"), "mine"]);
    assert!(refused.contains("the clone of an initiator"), "{refused}");
    here.send_logout();
    here.wait_for_end();
    wait_until(LIMIT, || clones(&running).is_empty().then_some(())).expect("the end of the clone");
    let mut again = log_in_as(&running.server, &initiator(0));
    take_attentions(&mut again, 0);
    assert_eq!(read(&mut again, 0), filled(1), "a new clone of the golden image");
}

/// A rack of machines starts at once after a power cut.
#[test]
fn many_initiators_that_come_at_once_get_a_clone_each() {
    const INITIATORS: usize = 256;
    let running = with_template("");
    let sessions: Vec<_> = thread::scope(|scope| {
        let log_in = |number| {
            scope.spawn({
                let server = &running.server;
                move || log_in_as(server, &initiator(number))
            })
        };
        let logins: Vec<_> = (0..INITIATORS).map(log_in).collect();
        logins.into_iter().map(|login| login.join().unwrap()).collect()
    });
    assert_eq!(clones(&running).len(), INITIATORS);
    for mut session in sessions {
        take_attentions(&mut session, 0);
        assert_eq!(read(&mut session, 0), filled(1));
    }
}

#[test]
fn a_kill_in_the_midst_of_changes_loses_nothing() {
    let arguments = walks::Arguments::parse_from(["volumes", "--seeds", "3", "--jobs", "3"]);
    let tally = lunette_tests::volumes::run(&arguments);
    assert!(tally.is_good(), "{tally}");
}
