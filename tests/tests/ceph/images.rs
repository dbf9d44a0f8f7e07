//! Disks in Ceph: the same bytes for all clients, resizes, holes, and what happens when the cluster does not answer or
//! shuts the server out.
//!
//! The cluster is that of `cargo xtask ceph up`, named in `LUNETTE_CEPH_CONF`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_testkit::{Outcome, ScriptedInitiator, Sense};
use lunette_tests::{
    Ceph, Owned, Ran, Server, attach, lunette, random_bytes, random_file, run, run_at_most, wait_until,
};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_mins(1);

const MIB: u64 = 1 << 20;

const CAPACITY_CHANGED: Sense = (6, 0x2a, 0x09);
const WRITE_PROTECTED: Sense = (7, 0x27, 0);
const SPACE_ALLOCATION_FAILED: Sense = (7, 0x27, 7);
const MANUAL_INTERVENTION_REQUIRED: Sense = (2, 4, 3);

/// GET LBA STATUS provisioning status of deallocated blocks.
const DEALLOCATED: u8 = 1;

fn cp(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().arg("cp").args(arguments))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn same(one: &Path, other: &Path) {
    run("cmp", [one, other]).succeeded();
}

/// The length of a unit in bytes, by READ CAPACITY(10).
fn capacity(initiator: &mut ScriptedInitiator) -> u64 {
    let data = initiator.command(0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], Vec::new(), 8).good();
    let number = |at: usize| u64::from(u32::from_be_bytes(data[at..at + 4].try_into().unwrap()));
    (number(0) + 1) * number(4)
}

/// UNMAP of a range of blocks.
fn unmap(initiator: &mut ScriptedInitiator, lba: u64, blocks: u32) -> Outcome {
    let mut list = vec![0; 24];
    list[1] = 22;
    list[3] = 16;
    list[8..16].copy_from_slice(&lba.to_be_bytes());
    list[16..20].copy_from_slice(&blocks.to_be_bytes());
    initiator.command(0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], list, 0)
}

/// The first descriptor of GET LBA STATUS: blocks, and their provisioning status.
fn lba_status(initiator: &mut ScriptedInitiator, lba: u8) -> (u32, u8) {
    let cdb = [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, 24, 0, 0];
    let data = initiator.command(0, &cdb, Vec::new(), 24).good();
    (u32::from_be_bytes(data[16..20].try_into().unwrap()), data[20] & 0xf)
}

#[test]
fn all_clients_see_the_same_bytes() {
    let (ceph, folder) = (Ceph::shared(), tempfile::tempdir().unwrap());
    let (source, exported, copied) =
        (folder.path().join("source"), folder.path().join("exported"), folder.path().join("copied"));
    random_file(&source, 1, 24);
    let image = ceph.no_image();
    ceph.rbd(&["import", text(&source), &image.name]).succeeded();
    let server = Server::start(&[&image.url()]);
    run("qemu-img", ["compare", "-f", "raw", "-F", "raw", text(&source), server.url(0)]).succeeded();
    cp(&["--verify", server.url(0), text(&copied)]).succeeded();
    same(&source, &copied);

    random_file(&source, 2, 24);
    run("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", text(&source), server.url(0)]).succeeded();
    server.stop();
    ceph.rbd(&["export", &image.name, text(&exported)]).succeeded();
    same(&source, &exported);
}

#[test]
fn what_is_written_is_verified_under_load() {
    let ceph = Ceph::shared();
    let image = ceph.image(32);
    let server = Server::start(&[&image.url(), "--cores", "2"]);
    let bench = ["bench", server.url(0), "--rw", "verify", "--bs", "4k", "--depth", "32", "--time", "3"];
    run_at_most(LIMIT, lunette().args(bench)).succeeded();
    server.stop();
}

#[test]
fn copies_keep_their_holes() {
    let (ceph, folder) = (Ceph::shared(), tempfile::tempdir().unwrap());
    let (source, back) = (folder.path().join("source"), folder.path().join("back"));
    let file = File::create(&source).unwrap();
    file.set_len(256 * MIB).unwrap();
    file.write_all_at(&random_bytes(1, 3 << 20), 100 * MIB).unwrap();
    let image = ceph.image(256);
    cp(&["--verify", text(&source), &image.url()]).succeeded();
    let extents = image.extents();
    assert!(extents.iter().all(|(offset, len)| (100 * MIB..=104 * MIB).contains(&(offset + len))), "{extents:?}");
    cp(&["--verify", &image.url(), text(&back)]).succeeded();
    same(&source, &back);
    assert!(fs::metadata(&back).unwrap().blocks() * 512 <= 4 * MIB);
}

#[test]
fn an_nbd_client_uses_an_image() {
    let (ceph, folder) = (Ceph::shared(), tempfile::tempdir().unwrap());
    let (source, exported, socket) =
        (folder.path().join("source"), folder.path().join("exported"), folder.path().join("socket"));
    random_file(&source, 5, 8);
    let image = ceph.image(8);
    let server = Server::spawn(lunette().args(["nbd", &image.url(), "--socket", text(&socket)]), 1);
    run("nbdcopy", [text(&source), server.url(0)]).succeeded();
    server.stop();
    ceph.rbd(&["export", &image.name, text(&exported)]).succeeded();
    same(&source, &exported);
}

#[test]
fn initiators_learn_of_a_resize() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let server = Server::start(&[&image.url()]);
    let mut initiator = attach(&server, &[]);
    assert_eq!(capacity(&mut initiator), 8 * MIB);
    for (mebibytes, log) in [(16, "has grown"), (4, "has become shorter")] {
        ceph.rbd(&["resize", &image.name, "--size", &format!("{mebibytes}M"), "--allow-shrink"]).succeeded();
        assert_eq!(initiator.news().1, CAPACITY_CHANGED);
        assert_eq!(initiator.test_unit_ready(0).sense(), CAPACITY_CHANGED);
        assert_eq!(capacity(&mut initiator), mebibytes * MIB);
        server.await_log(log, 1);
    }
    initiator.write(0, (4 * MIB / 512) as u32 - 8, vec![1; 4096]).good();
    server.stop();
}

#[test]
fn a_snapshot_is_read_only() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let server = Server::start(&[&image.url()]);
    let mut initiator = attach(&server, &[]);
    initiator.write(0, 0, vec![1; 512]).good();
    ceph.rbd(&["snap", "create", &format!("{}@then", image.name)]).succeeded();
    initiator.write(0, 0, vec![2; 512]).good();
    let then = Server::start(&[&image.url_of("@then")]);
    let mut reader = attach(&then, &[]);
    assert_eq!(reader.read(0, 0, 1).good(), vec![1; 512]);
    assert_eq!(reader.write(0, 0, vec![3; 512]).sense(), WRITE_PROTECTED);
    assert_eq!(initiator.read(0, 0, 1).good(), vec![2; 512]);
    then.stop();
    server.stop();
}

#[test]
fn an_unmap_makes_holes_and_reads_as_zero() {
    let ceph = Ceph::shared();
    let image = ceph.image(16);
    let server = Server::start(&[&image.url()]);
    let mut initiator = attach(&server, &[]);
    for lba in [0, 8192, 16384] {
        initiator.write(0, lba, vec![1; 64 << 10]).good();
    }
    assert_eq!(lba_status(&mut initiator, 0), (3 * 8192, 0));
    // All of the first object, and a part of the second one that is no whole number of anything.
    unmap(&mut initiator, 0, 8192 + 3).good();
    assert_eq!(lba_status(&mut initiator, 0), (8192, DEALLOCATED));
    assert_eq!(initiator.read(0, 8192, 8).good(), [vec![0; 3 * 512], vec![1; 5 * 512]].concat());
    assert_eq!(initiator.read(0, 16384, 1).good(), vec![1; 512]);
    server.stop();
    assert_eq!(image.extents().first().map(|(offset, _)| *offset), Some(4 * MIB));
}

#[test]
fn an_image_has_one_writer_and_any_number_of_readers() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let server = Server::start(&[&image.url()]);
    let second = run_at_most(LIMIT, lunette().args(["serve", "--listen", "127.0.0.1:0", &image.url()]));
    assert_eq!(second.code, Some(5), "{second}");
    assert!(second.stderr.contains("another client writes to it"), "{second}");
    let reader = Server::start(&[&image.url(), "--read-only"]);
    let (mut one, mut other) = (attach(&server, &[]), attach(&reader, &[]));
    one.write(0, 7, vec![9; 512]).good();
    assert_eq!(other.read(0, 7, 1).good(), vec![9; 512]);
    reader.stop();
    server.stop();
    // The lock is free at once.
    Server::start(&[&image.url()]).stop();
}

#[test]
fn what_is_missing_is_named() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    for (url, what) in [
        (image.url_of("@never"), "has no image"),
        (image.url().replace("rbd:rbd/", "rbd:none/"), "the cluster has no pool \"none\""),
        (image.url().replace("rbd:rbd/", "rbd:rbd/tenant/"), "in its namespace \"tenant\""),
        ("rbd:rbd/x?conf=/nowhere/ceph.conf".into(), "name the cluster's ceph.conf with ?conf=FILE"),
    ] {
        let failed = run_at_most(LIMIT, lunette().args(["serve", "--listen", "127.0.0.1:0", &url]));
        assert_eq!(failed.code, Some(5), "{failed}");
        assert!(failed.stderr.contains(what), "{failed}");
    }
    ceph.rbd(&["config", "image", "set", &image.name, "rbd_cache", "true"]).succeeded();
    let failed = run_at_most(LIMIT, lunette().args(["serve", "--listen", "127.0.0.1:0", &image.url()]));
    assert!(failed.failed().contains("rbd config image remove IMAGE rbd_cache"), "{failed}");
}

#[test]
fn monitors_that_do_not_answer_are_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("ceph.conf");
    // Port 1 of this machine: nothing listens there.
    fs::write(&conf, "[global]\nmon host = [v2:127.0.0.1:1/0]\nauth client required = none\n").unwrap();
    let url = format!("rbd:rbd/disk?conf={}", text(&conf));
    let failed = run_at_most(LIMIT, lunette().args(["serve", "--listen", "127.0.0.1:0", &url]));
    assert_eq!(failed.code, Some(5), "{failed}");
    assert!(failed.stderr.contains("do not answer within 30 s"), "{failed}");
}

#[test]
fn a_full_cluster_fails_writes_that_take_space_and_nothing_else() {
    /// Blocks of an object.
    const OBJECT_BLOCKS: u32 = (4 * MIB / 512) as u32;
    let ceph = Ceph::alone();
    let image = ceph.image(4096);
    let server = Server::start(&[&image.url()]);
    let mut initiator = attach(&server, &[]);
    initiator.write(0, 0, vec![1; 512]).good();
    let set = |ratios: [&str; 3]| {
        for (kind, ratio) in ["nearfull", "backfillfull", "full"].into_iter().zip(ratios) {
            ceph.ceph(&["osd", &format!("set-{kind}-ratio"), ratio]).succeeded();
        }
    };
    set(["0.000001"; 3]);
    // The OSD looks at its space every few seconds, and the monitor then makes the pool full.
    let is_full = || ceph.ceph(&["osd", "dump"]).succeeded().contains("hashpspool,full").then_some(());
    assert!(wait_until(LIMIT, is_full).is_some());
    // Each write is to an object that is not there yet; some may come before the OSD learns of the pool's new state.
    let mut objects = 1..1024;
    let refused = wait_until(LIMIT, || {
        let outcome = initiator.write(0, objects.next()? * OBJECT_BLOCKS, vec![2; 512]);
        (outcome.status != 0).then(|| outcome.sense())
    });
    assert_eq!(refused, Some(SPACE_ALLOCATION_FAILED));
    initiator.write(0, 0, vec![3; 512]).good();
    assert_eq!(initiator.read(0, 0, 1).good(), vec![3; 512]);
    set(["0.85", "0.90", "0.95"]);
    let accepted = wait_until(LIMIT, || {
        let outcome = initiator.write(0, 1023 * OBJECT_BLOCKS, vec![4; 512]);
        (outcome.status == 0).then_some(())
    });
    assert!(accepted.is_some(), "there is room again");
    server.stop();
}

#[test]
fn a_server_that_is_shut_out_says_so_and_its_other_disks_go_on() {
    let ceph = Ceph::shared();
    let (one, other) = (ceph.image(8), ceph.image(8));
    let server = Server::start_at("127.0.0.1:0", &[&one.url(), &other.url()], 2);
    let mut initiator = attach(&server, &[]);
    initiator.test_unit_ready(1);
    initiator.write(0, 0, vec![1; 512]).good();
    let status = ceph.rbd(&["status", &one.name]);
    let client = status.succeeded().split("watcher=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    ceph.ceph(&["osd", "blocklist", "add", client]).succeeded();
    // librbd 16.2 may never end this one.
    assert_eq!(initiator.write(0, 0, vec![2; 512]).sense(), MANUAL_INTERVENTION_REQUIRED);
    assert!(server.log().contains("is on the blocklist of its Ceph cluster"));
    assert_eq!(initiator.write(0, 0, vec![2; 512]).sense(), MANUAL_INTERVENTION_REQUIRED);
    assert_eq!(initiator.read(0, 0, 1).sense(), MANUAL_INTERVENTION_REQUIRED);
    initiator.write(1, 0, vec![3; 512]).good();
    drop(initiator);
    server.terminate();
    // What it could not flush is no success, but it ends.
    let (_, log) = server.wait(Duration::from_secs(15));
    assert!(!log.contains("panicked"), "{log}");
    let again = Server::start(&[&one.url()]);
    attach(&again, &[]).write(0, 0, vec![4; 512]).good();
    again.stop();
}

#[test]
fn commands_wait_for_a_cluster_that_does_not_answer() {
    let ceph = Ceph::alone();
    let image = ceph.image(8);
    let server = Server::start_at("127.0.0.1:0", &[&image.url(), "mem:8M"], 2);
    let (mut initiator, mut other) = (attach(&server, &[]), attach(&server, &[("InitiatorAlias", "other")]));
    initiator.test_unit_ready(1);
    initiator.write(0, 0, vec![1; 512]).good();
    ceph.signal_osd(Signal::STOP);
    let (read, write) = (initiator.start_read(0, 8, 8), initiator.start_write(0, 0, vec![2; 512], 512));
    let abort = initiator.start_management(Function::ABORT_TASK, 0, Some(read));
    // The other disk answers, and so does what needs no cluster.
    initiator.write(1, 0, vec![3; 512]).good();
    other.command(0, &[0x12, 0, 0, 0, 36, 0], Vec::new(), 36).good();
    ceph.signal_osd(Signal::CONT);
    assert_eq!(initiator.finish_management(abort), Answer::FUNCTION_COMPLETE);
    initiator.finish(write).good();
    assert_eq!(initiator.read(0, 0, 1).good(), vec![2; 512]);
    server.stop();
}

#[test]
fn a_stop_does_not_wait_for_the_cluster_for_ever() {
    let ceph = Ceph::alone();
    let image = ceph.image(8);
    let server = Server::start(&[&image.url()]);
    let mut initiator = attach(&server, &[]);
    initiator.write(0, 0, vec![1; 512]).good();
    ceph.signal_osd(Signal::STOP);
    initiator.start_write(0, 0, vec![2; 512], 512);
    initiator.round_trip();
    server.terminate();
    let (status, log) = server.wait(Duration::from_secs(20));
    ceph.signal_osd(Signal::CONT);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("did not end in time"), "{log}");
}

#[test]
fn what_a_killed_server_has_answered_is_there_for_the_next_one() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let server = Server::start(&[&image.url()]);
    let mut initiator = attach(&server, &[]);
    for lba in 0..64 {
        initiator.write(0, lba * 8, random_bytes(lba.into(), 4096)).good();
    }
    let locks = || ceph.rbd(&["lock", "ls", &image.name]).succeeded().to_owned();
    let lock_of_the_dead = locks();
    server.kill();
    // The lock of the dead is broken when the cluster has given it up, half a minute later.
    let mut next = lunette();
    next.args(["serve", "--listen", "127.0.0.1:0", &image.url()]).stdout(Stdio::null());
    let mut next = Owned::start(next);
    let has_lock = || Some(locks()).filter(|now| now.contains("auto") && *now != lock_of_the_dead);
    assert!(wait_until(LIMIT, has_lock).is_some());
    lunette_tests::stop(&mut next);
    let exported = tempfile::tempdir().unwrap();
    let path = exported.path().join("image");
    ceph.rbd(&["export", &image.name, text(&path)]).succeeded();
    let bytes = fs::read(&path).unwrap();
    for lba in 0..64 {
        assert!(bytes[lba * 4096..(lba + 1) * 4096] == random_bytes(lba as u64, 4096), "block {lba}");
    }
}
