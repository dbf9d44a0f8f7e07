//! Content that moves between pools: streams of snapshots and of changes, volumes from disks, copies to files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::Duration;

use lunette_tests::{attach, lunette, random_bytes, wait_until};
use serde_json::{Value, json};

use super::volumes::{Running, TARGET, filled, serial, take_attentions};

/// The longest that a command has until it has done what a test waits for.
const LIMIT: Duration = Duration::from_secs(30);

const LUN: &str = "targets/iqn.2026-11.org.example:a/luns/0";

impl Running {
    /// The stream of a snapshot.
    fn send(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run(&[&["volume", "send"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        output.stdout
    }

    fn begin(&self, arguments: &[&str]) -> Child {
        let socket = format!("unix:{}", self.place.file("api.sock").display());
        let mut command = lunette();
        command.args(["volume", "--json", "--api", &socket]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs `lunette volume` with this on standard input.
    fn feed(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self.begin(arguments);
        let mut stdin = child.stdin.take().unwrap();
        thread::scope(|scope| {
            // A command that refuses reads no further.
            scope.spawn(move || _ = stdin.write_all(input));
            child.wait_with_output().unwrap()
        })
    }

    fn receive(&self, arguments: &[&str], stream: &[u8]) -> Value {
        let output = self.feed(&[&["receive"], arguments].concat(), stream);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Why a stream is not received, with this exit code.
    fn not_received(&self, arguments: &[&str], stream: &[u8], code: i32) -> String {
        let output = self.feed(&[&["receive"], arguments].concat(), stream);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        text(&output)
    }

    fn image(&self, path: &str) -> Vec<u8> {
        fs::read(self.file(path)).unwrap()
    }

    fn file(&self, path: &str) -> PathBuf {
        self.pool.path().join(path)
    }

    fn stop_serving(&self) {
        let output = self.run(&["ctl", "rm", LUN, "--force"]);
        assert!(output.status.success(), "{}", text(&output));
    }

    fn names(&self, volume: &str) -> Vec<String> {
        let snapshots = self.volume(&["ls", volume]);
        snapshots.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    }

    /// A volume with the snapshots monday and tuesday, between which it was changed, was cut down, and grew.
    fn with_two_snapshots() -> Self {
        let running = Self::start("");
        running.volume(&["create", "tank/db", "--size", "16M", "--label", "of=us"]);
        running.serve(0, "volume:tank/db");
        let mut initiator = attach(&running.server, &[]);
        for block in 0..100_u32 {
            let bytes = random_bytes(u64::from(block), 4096);
            initiator.write(0, block * 100, bytes).good();
        }
        running.volume(&["snapshot", "monday", "tank/db", "--label", "day=1"]);
        running.volume(&["resize", "tank/db", "24M"]);
        take_attentions(&mut initiator, 0);
        initiator.write(0, 0, filled(1)).good();
        initiator.write(0, 100, vec![0; 4096]).good();
        initiator.write(0, 40_000, filled(2)).good();
        running.volume(&["snapshot", "tuesday", "tank/db"]);
        initiator.write(0, 0, filled(9)).good();
        running
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn arguments(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_snapshot_and_what_was_changed_since_move_to_another_server() {
    let (from, to) = (Running::with_two_snapshots(), Running::start(""));
    let monday = from.send(&["tank/db@monday"]);
    let received = to.receive(&["tank/copy"], &monday);
    assert_eq!((&received["labels"], &received["filling"]), (&json!({ "of": "us" }), &json!(false)));
    assert_eq!(received["serial"], from.volume(&["show", "tank/db"])["serial"]);
    let original = from.image("db/snapshots/monday.img");
    assert!(to.image("copy/disk.img") == original && to.image("copy/snapshots/monday.img") == original);
    assert_eq!(to.volume(&["ls", "tank/copy"])[0]["labels"]["day"], "1");

    let changes = from.send(&["tank/db@tuesday", "--since", "monday"]);
    assert!(changes.len() < monday.len() / 4, "{} of {} bytes", changes.len(), monday.len());
    assert_eq!(to.receive(&["tank/copy"], &changes)["size_bytes"], 24 << 20);
    assert_eq!(to.names("tank/copy"), ["monday", "tuesday"]);
    let original = from.image("db/snapshots/tuesday.img");
    assert!(to.image("copy/disk.img") == original && to.image("copy/snapshots/tuesday.img") == original);

    // What is there already is told, and a volume of the serial number has that alone.
    assert!(to.not_received(&["tank/copy"], &changes, 3).contains("has this snapshot already: tuesday"));
    assert!(to.not_received(&["tank/copy"], &monday, 3).contains("already"));
    let second = to.receive(&["tank/second"], &monday);
    assert_ne!(second["serial"], received["serial"]);
    assert_eq!(to.receive(&["tank/third", "--serial", "mine"], &monday)["serial"], "mine");

    // The received volume is one like any other: it is served, changed, and its changes go back.
    to.serve(0, "volume:tank/copy");
    let mut initiator = attach(&to.server, &[]);
    take_attentions(&mut initiator, 0);
    assert_eq!(serial(&mut initiator, 0), received["serial"]);
    initiator.write(0, 48, filled(3)).good();
    to.volume(&["snapshot", "back", "tank/copy"]);
    let back = to.send(&["tank/copy@back", "--since", "tuesday"]);
    assert!(from.not_received(&["tank/db"], &back, 3).contains(LUN));
    from.stop_serving();
    assert!(from.not_received(&["tank/db"], &back, 3).contains("--force"));
    from.receive(&["tank/db", "--force"], &back);
    assert!(from.image("db/disk.img") == to.image("copy/snapshots/back.img"));
    let before = from.names("tank/db").into_iter().find(|name| name.starts_with("before-rollback-")).unwrap();
    let lost = from.image(&format!("db/snapshots/{before}.img"));
    assert_eq!(lost[..4096], filled(9), "what it had is a snapshot");
}

#[test]
fn a_stream_that_is_cut_or_damaged_leaves_the_volume_as_it_was() {
    let (from, to) = (Running::with_two_snapshots(), Running::start(""));
    let (monday, changes) = (from.send(&["tank/db@monday"]), from.send(&["tank/db@tuesday", "--since", "monday"]));
    let broken = |whole: &[u8]| {
        let mut damaged = whole.to_vec();
        damaged[whole.len() / 2] ^= 1;
        [damaged, whole[..whole.len() / 2].to_vec(), whole[..whole.len() - 1].to_vec()]
    };
    for stream in broken(&monday) {
        let why = to.not_received(&["tank/copy"], &stream, 6);
        assert!(why.contains("damaged") || why.contains("cut"), "{why}");
        assert!(why.contains("the unfinished tank/copy was removed"), "{why}");
        assert_eq!(to.volume(&["ls", "tank"]), json!([]));
        assert!(!to.file("copy").exists());
    }
    for (stream, why) in [(&b"no stream at all"[..], "no stream"), (&monday[..10], "cut")] {
        assert!(to.not_received(&["tank/copy"], stream, 6).contains(why));
    }
    to.receive(&["tank/copy"], &monday);
    let original = to.image("copy/disk.img");
    for stream in broken(&changes) {
        let why = to.not_received(&["tank/copy"], &stream, 6);
        assert!(why.contains("tank/copy has its content of before"), "{why}");
        assert!(to.image("copy/disk.img") == original);
        assert_eq!(
            (to.volume(&["show", "tank/copy"])["filling"].clone(), to.names("tank/copy").len()),
            (json!(false), 1)
        );
    }
    to.receive(&["tank/copy"], &changes);
    assert!(to.image("copy/disk.img") == from.image("db/snapshots/tuesday.img"));
}

#[test]
fn changes_are_refused_by_a_volume_without_their_snapshot() {
    let (from, to) = (Running::with_two_snapshots(), Running::start(""));
    let changes = from.send(&["tank/db@tuesday", "--since", "monday"]);
    assert!(to.not_received(&["tank/db"], &changes, 3).contains("no volume db"));
    // The name alone is not enough.
    to.volume(&["create", "tank/db", "--size", "16M"]);
    to.volume(&["snapshot", "monday", "tank/db"]);
    assert!(to.not_received(&["tank/db", "--force"], &changes, 3).contains("has not the snapshot monday"));
    for (arguments, why) in [
        (&["send", "tank/db@none"][..], "no snapshot none"),
        (&["send", "tank/db@monday", "--since", "none"], "no snapshot none"),
        (&["copy", "tank/none@monday", "/dev/null"], "no volume none"),
    ] {
        let refused = to.refused(arguments);
        assert!(refused.contains(why), "{arguments:?}: {refused}");
    }
    let usage = to.run(&["volume", "send", "tank/db"]);
    assert!(usage.status.code() == Some(2) && text(&usage).contains("names no snapshot"), "{}", text(&usage));
}

#[test]
fn a_receive_that_was_cut_goes_on() {
    let (from, mut to) = (Running::with_two_snapshots(), Running::start(""));
    let since = ["tank/db@tuesday", "--since", "monday"];
    for arguments in [&["tank/db@monday"][..], &since] {
        let whole = from.send(arguments);
        let why = to.not_received(&["tank/copy", "--resume"], &whole[..whole.len() * 3 / 4], 6);
        let offset = why.split("--from ").nth(1).and_then(|rest| rest.split([',', ' ']).next()).expect("an offset");
        assert_ne!(offset, "0", "{why}");
        // What has come outlives the server.
        let Running { place, server, pool } = to;
        server.stop();
        let server = place.start(&fs::read_to_string(place.file("config")).unwrap(), 1);
        to = Running { place, server, pool };
        // It is no volume to be used meanwhile.
        assert_eq!(to.volume(&["show", "tank/copy"])["filling"], true);
        for refused in [
            &["snapshot", "s", "tank/copy"][..],
            &["clone", "tank/copy", "tank/other"],
            &["rename", "tank/copy", "other"],
            &["resize", "tank/copy", "64M"],
        ] {
            assert!(to.refused(refused).contains("being filled"), "{refused:?}");
        }
        let rest = from.send(&[arguments, &["--from", offset]].concat());
        assert!(rest.len() < whole.len());
        assert!(to.not_received(&["tank/copy"], &rest, 2).contains("--resume"));
        let received = to.receive(&["tank/copy", "--resume"], &rest);
        assert_eq!(received["filling"], false);
    }
    assert!(to.image("copy/disk.img") == from.image("db/snapshots/tuesday.img"));
    assert!(to.image("copy/snapshots/monday.img") == from.image("db/snapshots/monday.img"));

    // All of it may come again, too, but not a later part than what is missing.
    let whole = from.send(&["tank/db@tuesday"]);
    to.not_received(&["tank/again", "--resume"], &whole[..whole.len() / 2], 6);
    let late = from.send(&["tank/db@tuesday", "--from", "16M"]);
    assert!(to.not_received(&["tank/again", "--resume"], &late, 2).contains("send it --from"));
    let other = from.send(&["tank/db@monday"]);
    assert!(to.not_received(&["tank/again", "--resume"], &other, 3).contains("another content"));
    assert!(to.not_received(&["tank/again"], &whole, 3).contains("go on with --resume"));
    to.receive(&["tank/again", "--resume"], &whole);
    assert!(to.image("again/disk.img") == from.image("db/snapshots/tuesday.img"));
}

#[test]
fn a_receive_that_was_killed_is_never_taken_for_whole() {
    let (from, to) = (Running::with_two_snapshots(), Running::start(""));
    to.receive(&["tank/copy"], &from.send(&["tank/db@monday"]));
    let original = to.image("copy/disk.img");
    let changes = from.send(&["tank/db@tuesday", "--since", "monday"]);
    let filling = || (to.volume(&["show", "tank/copy"])["filling"] == true).then_some(());
    let mut child = to.begin(&["receive", "tank/copy"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&changes[..changes.len() - 40]).unwrap();
    wait_until(LIMIT, || (to.image("copy/disk.img").len() == 24 << 20).then_some(())).expect("it has begun");
    wait_until(LIMIT, filling).expect("it is being filled");
    // The command that writes is the only one that may.
    let written = || (to.image("copy/disk.img")[..4096] == filled(1)).then_some(());
    wait_until(LIMIT, written).expect("it writes");
    assert!(to.not_received(&["tank/copy"], &changes, 3).contains("being filled"));
    let rollback = ["volume", "rollback", "tank/copy@monday", "--wait"];
    assert_eq!(to.run(&rollback).status.code(), Some(1), "while it is written to");
    assert!(to.refused(&["rm", "tank/copy@monday"]).contains("changes since monday"));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(stdin);

    // Neither a LUN nor a restart of the server takes it for whole.
    let Running { place, server, pool } = to;
    server.stop();
    let server = place.start(&fs::read_to_string(place.file("config")).unwrap(), 1);
    let to = Running { place, server, pool };
    assert_eq!(to.volume(&["show", "tank/copy"])["filling"], true);
    let served = to.run(&["ctl", "add", &format!("{TARGET}/luns/0"), "disk=volume:tank/copy"]);
    assert!(!served.status.success() && text(&served).contains("being filled"), "{}", text(&served));
    to.volume(&["label", "tank/copy", "a=b"]);
    assert_eq!(to.volume(&["show", "tank/copy"])["filling"], true);
    to.volume(&["rollback", "tank/copy@monday", "--wait"]);
    let shown = to.volume(&["show", "tank/copy"]);
    assert_eq!((&shown["filling"], &shown["labels"]), (&json!(false), &json!({ "a": "b" })));
    assert!(to.image("copy/disk.img") == original);
    to.receive(&["tank/copy"], &changes);
    assert!(to.image("copy/disk.img") == from.image("db/snapshots/tuesday.img"));
}

#[test]
fn a_filling_that_lacks_only_its_end_is_ended_by_the_next_server() {
    let running = Running::start("");
    running.volume(&["create", "tank/db", "--size", "1M"]);
    running.volume(&["snapshot", "monday", "tank/db", "--label", "lunette.id=abc"]);
    let Running { place, server, pool } = running;
    server.stop();
    // As a server leaves it that dies between the snapshot and the end.
    let record = pool.path().join("db/volume.json");
    let mut volume: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    volume["labels"]["lunette.filling"] = "t abc - 0".into();
    fs::write(&record, volume.to_string()).unwrap();
    let server = place.start(&fs::read_to_string(place.file("config")).unwrap(), 1);
    let running = Running { place, server, pool };
    let ended = || (running.volume(&["show", "tank/db"])["filling"] == false).then_some(());
    assert!(wait_until(LIMIT, ended).is_some(), "{}", running.volume(&["show", "tank/db"]));
}

#[test]
fn a_volume_is_created_from_a_file_a_stream_or_a_disk() {
    let running = Running::start("");
    let bytes = [random_bytes(1, 3 << 20), vec![0; 3 << 20], random_bytes(2, 1000)].concat();
    let file = running.place.file("image.raw");
    fs::write(&file, &bytes).unwrap();
    let is_content = |path: &str| {
        let image = running.image(path);
        image[..bytes.len()] == bytes && image[bytes.len()..].iter().all(|byte| *byte == 0)
    };
    let created = running.volume(&["create", "tank/file", "--from", arguments(&file), "--label", "of=us"]);
    assert_eq!((&created["size_bytes"], &created["filling"]), (&json!((6 << 20) + 1024), &json!(false)));
    assert_eq!(created["labels"], json!({ "of": "us" }));
    assert!(is_content("file/disk.img"));

    let stream = running.feed(&["create", "tank/stream", "--from", "-", "--size", "8M"], &bytes);
    assert!(stream.status.success(), "{}", text(&stream));
    assert!(is_content("stream/disk.img") && running.image("stream/disk.img").len() == 8 << 20);
    running.serve(0, "volume:tank/stream");
    let url = format!("iscsi://{}/iqn.2026-11.org.example:a/0", running.server.address());
    running.volume(&["create", "tank/disk", "--from", &url, "--size", "9M"]);
    assert!(is_content("disk/disk.img") && running.image("disk/disk.img").len() == 9 << 20);

    for (arguments, input, code) in [
        (&["--from", "-"][..], &bytes[..], 2),
        (&["--from", arguments(&file), "--size", "1M"], &[], 2),
        (&["--from", "/nowhere/image"], &[], 5),
        (&["--from", "-", "--size", "4M"], &bytes, 6),
        // Zeroes count, too.
        (&["--from", "-", "--size", "4M"], &bytes[..5 << 20], 6),
    ] {
        let output = running.feed(&[&["create", "tank/none"], arguments].concat(), input);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        assert!(!running.file("none").exists(), "{arguments:?}");
    }
    let taken = running.feed(&["create", "tank/file", "--from", arguments(&file)], &[]);
    assert!(taken.status.code() == Some(3) && text(&taken).contains("already"), "{}", text(&taken));
}

#[test]
fn a_copy_in_a_file_gets_what_was_changed() {
    let running = Running::with_two_snapshots();
    let file = running.place.file("backup.img");
    let copied = running.volume(&["copy", "tank/db@monday", arguments(&file)]);
    assert_eq!(copied["bytes"], 16 << 20);
    assert!(fs::read(&file).unwrap() == running.image("db/snapshots/monday.img"));
    let none = running.place.file("none");
    let refused = running.run(&["volume", "copy", "tank/db@tuesday", arguments(&none), "--since", "monday"]);
    assert!(refused.status.code() == Some(5) && text(&refused).contains("copy all first"), "{}", text(&refused));
    let changed = running.volume(&["copy", "tank/db@tuesday", arguments(&file), "--since", "monday"]);
    assert!(changed["data_bytes"].as_u64() < copied["data_bytes"].as_u64(), "{changed} and {copied}");
    assert!(fs::read(&file).unwrap() == running.image("db/snapshots/tuesday.img"));
}
