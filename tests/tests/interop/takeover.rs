//! Disks of other servers that volumes take over: used from the first moment on, and copied in the background.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lunette_testkit::ScriptedInitiator;
use lunette_tests::{Configured, Server, attach, random_bytes, random_file, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::nbd_client::{Export, MEBIBYTES, able_nbdkit};
use super::volumes::{Running, take_attentions};

/// The longest that a copy takes.
const LIMIT: Duration = Duration::from_mins(1);

const LUN: &str = "targets/iqn.2026-11.org.example:a/luns/0";

/// Blocks of the longest command of these tests.
const MAX_BLOCKS: u64 = 200;

/// A server that takes a quarter of a minute to give all of its disk.
fn slow_qemu(file: &Path, socket: &Path) -> Command {
    let mut command = Command::new("qemu-nbd");
    command.args(["--persistent", "--read-only", "--shared=8", "--export-name=disk"]);
    command.args(["--object", "throttle-group,id=slow,x-bps-total=1048576", "--image-opts", "--socket"]).arg(socket);
    let disk = format!("file.driver=raw,file.file.driver=file,file.file.filename={}", file.display());
    command.arg(format!("driver=throttle,throttle-group=slow,{disk}"));
    command
}

/// A disk that is written to and read, and what it must have.
struct Used {
    model: Vec<u8>,
    commands: u64,
}

impl Used {
    /// Executes this many commands at random places.
    fn walk(&mut self, initiator: &mut ScriptedInitiator, count: u64) {
        for _ in 0..count {
            self.commands += 1;
            let dice = random_bytes(self.commands, 8);
            let dice = u64::from_le_bytes(dice.try_into().unwrap());
            let blocks = 1 + (dice >> 32) % MAX_BLOCKS;
            let at = dice % (MEBIBYTES * 2048 - blocks);
            let bytes = &mut self.model[(at * 512) as usize..((at + blocks) * 512) as usize];
            if dice & (1 << 60) == 0 {
                assert!(initiator.read(0, at as u32, blocks as u16).good() == bytes, "{blocks} blocks at {at}");
            } else {
                bytes.copy_from_slice(&random_bytes(dice, bytes.len()));
                initiator.write(0, at as u32, bytes.to_vec()).good();
            }
        }
    }

    fn check_all(&self, initiator: &mut ScriptedInitiator) {
        for (block, bytes) in (0..).step_by(1024).zip(self.model.chunks(512 << 10)) {
            assert!(initiator.read(0, block, 1024).good() == bytes, "the blocks from {block} on");
        }
    }
}

fn initiator(server: &Server) -> ScriptedInitiator {
    let mut initiator = attach(server, &[]);
    let ready = || (initiator.test_unit_ready(0).status == 0).then_some(());
    assert!(wait_until(LIMIT, ready).is_some(), "LUN 0 does not become ready");
    initiator
}

fn copy(running: &Running) -> Value {
    running.volume(&["show", "tank/db"])["taking_over"].clone()
}

fn await_end(running: &Running) {
    let ended = || copy(running).is_null().then_some(());
    assert!(wait_until(LIMIT, ended).is_some(), "{}", copy(running));
}

/// The folders of the volumes of the pool.
fn folders(running: &Running) -> Vec<String> {
    let entries = fs::read_dir(running.pool.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.map(|name| name.into_string().unwrap());
    names.filter(|name| name == "db" || name.starts_with("map-")).collect()
}

#[test]
fn a_disk_is_used_while_it_is_taken_over_and_servers_die() {
    let mut export = Export::new(slow_qemu);
    random_file(&export.file(), 1, MEBIBYTES);
    let original = fs::read(export.file()).unwrap();
    let source = export.start();
    let running = Running::start("");
    let created = running.volume(&["create", "tank/db", "--take-over", &export.url(), "--label", "of=us"]);
    assert_eq!((&created["size_bytes"], &created["labels"]), (&json!(MEBIBYTES << 20), &json!({ "of": "us" })));
    assert_eq!(created["taking_over"]["source"], export.url());
    running.serve(0, "volume:tank/db");
    let mut used = Used { model: original.clone(), commands: 0 };
    let mut first = initiator(&running.server);
    used.walk(&mut first, 8);
    drop(first);
    assert!(copy(&running)["done_bytes"].as_u64().unwrap() < MEBIBYTES << 20, "{}", copy(&running));
    for refused in [
        &["snapshot", "s", "tank/db"][..],
        &["clone", "tank/db", "tank/c"],
        &["resize", "tank/db", "32M"],
        &["rename", "tank/db", "other"],
    ] {
        assert!(running.refused(refused).contains("wait for the end"), "{refused:?}");
    }

    // The server dies, and what it has acknowledged is there when the next one has begun.
    let Running { place, server, pool } = running;
    server.kill();
    let server = place.start(&fs::read_to_string(place.file("config")).unwrap(), 2);
    let running = Running { place, server, pool };
    let mut second = initiator(&running.server);
    used.walk(&mut second, 8);
    assert!(!copy(&running).is_null());

    // The source dies, and comes back faster.
    drop(source);
    export.command = able_nbdkit;
    let source = export.start();
    used.check_all(&mut second);
    await_end(&running);
    used.walk(&mut second, 20);
    assert_eq!(running.volume(&["ls", "tank"]).as_array().unwrap().len(), 1);
    assert!(wait_until(LIMIT, || (folders(&running) == ["db"]).then_some(())).is_some(), "{:?}", folders(&running));
    drop(source);
    // From now on it is a volume like any other.
    running.volume(&["snapshot", "s", "tank/db"]);
    running.volume(&["resize", "tank/db", "32M"]);
    take_attentions(&mut second, 0);
    second.write(0, 60_000, vec![5; 512]).good();
    let shown = running.volume(&["show", "tank/db"]);
    assert_eq!((&shown["size_bytes"], &shown["labels"]), (&json!(32 << 20), &json!({ "of": "us" })));
    drop(second);
    let Running { server, pool, .. } = running;
    server.stop();
    assert!(fs::read(pool.path().join("db/disk.img")).unwrap()[..used.model.len()] == used.model);
    assert!(fs::read(export.file()).unwrap() == original, "nothing was written to the source");
}

#[test]
fn a_volume_goes_while_it_takes_a_disk_over() {
    let export = Export::new(slow_qemu);
    random_file(&export.file(), 2, MEBIBYTES);
    let _source = export.start();
    let running = Running::start("");
    running.volume(&["create", "tank/db", "--take-over", &export.url(), "--size", "32M"]);
    running.serve(0, "volume:tank/db");
    assert_eq!(folders(&running).len(), 2);
    assert!(running.refused(&["rm", "tank/db"]).contains("luns/0"));
    let map = folders(&running).into_iter().find(|name| name.starts_with("map-")).unwrap();
    assert!(running.refused(&["rm", &format!("tank/{map}")]).contains("takes over"));
    assert!(running.run(&["ctl", "rm", LUN, "--force"]).status.success());
    running.volume(&["rm", "tank/db"]);
    assert_eq!(folders(&running), [""; 0]);
    running.server.stop();
}

#[test]
fn the_length_of_a_block_stays_that_of_the_disk_that_was_taken_over() {
    let text = "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.org.example:old\"\nallow = [\"*\"]\n\
                lun = [{ number = 0, disk = \"mem:16M\", block_size = 4096 }]";
    let (_place, old) = Configured::serve(text, 1);
    let running = Running::start("");
    running.volume(&["create", "tank/db", "--take-over", old.url(0), "--wait"]);
    // The other server is not needed any more.
    old.stop();
    running.volume(&["snapshot", "s", "tank/db"]);
    running.volume(&["clone", "tank/db@s", "tank/clone"]);
    for (lun, volume) in [(0, "tank/db"), (1, "tank/clone")] {
        running.serve(lun, &format!("volume:{volume}"));
        let mut initiator = attach(&running.server, &[]);
        take_attentions(&mut initiator, lun);
        let capacity = initiator.command(lun, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], Vec::new(), 8).good();
        assert_eq!(capacity[4..], 4096_u32.to_be_bytes(), "{volume}");
    }
    running.server.stop();
}

#[test]
fn another_disk_in_the_place_of_the_source_is_not_copied() {
    // Long enough that not all of it is copied at once.
    let text = |port: u16, serial: &str| {
        format!(
            "listen = [\"127.0.0.1:{port}\"]\n[[target]]\nname = \"iqn.2026-11.org.example:old\"\nallow = [\"*\"]\n\
             lun = [{{ number = 0, disk = \"mem:64G\", serial = {serial:?} }}]"
        )
    };
    let (old_place, old) = Configured::serve(&text(0, "first"), 1);
    let port = old.address().port();
    let running = Running::start("");
    running.volume(&["create", "tank/db", "--take-over", old.url(0)]);
    old.signal(Signal::STOP);
    let Running { place, server, pool } = running;
    server.kill();
    old.kill();
    let _other = old_place.start(&text(port, "other"), 1);
    let server = place.start(&fs::read_to_string(place.file("config")).unwrap(), 1);
    let running = Running { place, server, pool };
    let why = || copy(&running)["trouble"].as_str().filter(|why| why.contains("another disk")).map(drop);
    assert!(wait_until(LIMIT, why).is_some(), "{}", copy(&running));
    running.volume(&["rm", "tank/db"]);
    assert_eq!(folders(&running), [""; 0]);
    running.server.stop();
}

#[test]
fn a_disk_that_cannot_be_taken_over_makes_no_volume() {
    let running = Running::start("");
    let file = running.place.file("old").display().to_string();
    for (source, why) in [
        ("mem:1M", "in memory"),
        ("volume:tank/x", "cloned"),
        ("nbd+unix:///x?socket=/nowhere", "does the server listen there"),
        (&file, "old"),
    ] {
        let refused = running.refused(&["create", "tank/db", "--take-over", source]);
        assert!(refused.contains(why), "{source}: {refused}");
    }
    File::create(&file).unwrap().write_all_at(&[1; 512], 1 << 20).unwrap();
    assert!(running.refused(&["create", "tank/db", "--take-over", &file, "--size", "1M"]).contains("not shorter"));
    running.serve(0, &file);
    assert!(running.refused(&["create", "tank/db", "--take-over", &file]).contains(LUN));
    assert_eq!(running.volume(&["ls", "tank"]), json!([]));
    assert_eq!(folders(&running), [""; 0]);
    running.server.stop();
}
