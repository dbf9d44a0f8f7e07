//! What `lunette` refuses for the sake of encrypted disks: plain text over them, and a second use of one at the same time.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use lunette_tests::keys::{CHEAP, Place, keys, refusal};
use lunette_tests::{Ran, Server, lunette, random_bytes, run_at_most};

const LIMIT: Duration = Duration::from_mins(1);

fn on(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().args(arguments))
}

/// A key file with a passphrase, and a file `plain` of 1 MiB.
fn owner() -> Place {
    let place = Place::new();
    let passphrase = place.file("passphrase", "correct horse\n");
    keys(&[&["create", &place.text("keys"), "--passphrase-file", &passphrase], &CHEAP[..]].concat()).succeeded();
    fs::write(place.path("plain"), random_bytes(3, 1 << 20)).unwrap();
    place
}

/// The disk with where its keys are.
fn keyed(place: &Place, disk: &str) -> String {
    format!("{disk}?keys=file:{}&passphrase_file={}", place.text("keys"), place.text("passphrase"))
}

/// Makes a volume in the file `name`, and returns its path.
fn volume(place: &Place, name: &str) -> String {
    let disk = place.text(name);
    on(&["quanta", "format", &keyed(place, &disk), "--create", "4M"]).succeeded();
    disk
}

#[test]
fn plain_text_takes_the_place_of_a_volume_only_when_it_is_asked_for() {
    let place = owner();
    let (disk, plain) = (volume(&place, "disk"), place.text("plain"));
    let sealed = fs::read(&disk).unwrap();
    for destination in [&disk, &place.text("link")] {
        if *destination != disk {
            std::os::unix::fs::symlink(&disk, destination).unwrap();
        }
        let (code, said) = refusal(&on(&["cp", &plain, destination]));
        assert!(code == 2 && said.contains("has the encrypted volume"), "{said}");
        assert!(said.contains("?keys=") && said.contains("--overwrite-volume"), "{said}");
    }
    let stream = lunette()
        .args(["cp", "-", &disk])
        .stdin(Stdio::from(fs::File::open(&plain).unwrap()))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(stream.wait_with_output().unwrap().status.code(), Some(2));
    assert!(fs::read(&disk).unwrap() == sealed, "a copy that is refused changes nothing");

    // A volume as it is may be copied over another one: a backup that is put back.
    let backup = place.text("backup");
    on(&["cp", &disk, &backup]).succeeded();
    on(&["cp", &backup, &disk]).succeeded();
    assert!(fs::read(&disk).unwrap() == sealed);

    on(&["cp", "--overwrite-volume", &plain, &disk]).succeeded();
    assert!(fs::read(&disk).unwrap() == fs::read(&plain).unwrap());
    // An empty file has nothing to lose.
    fs::write(&disk, "").unwrap();
    on(&["cp", &plain, &disk]).succeeded();
}

#[test]
fn plain_text_takes_the_place_of_a_volume_on_a_target_only_when_it_is_asked_for() {
    let place = owner();
    let server = Server::start(&[&place.text("disk"), "--create", "4M", "--quantum", "4096"]);
    let (disk, plain) = (server.url(0), place.text("plain"));
    on(&["quanta", "format", &keyed(&place, disk)]).succeeded();
    let whole = place.text("whole");
    fs::write(&whole, random_bytes(4, 4160 * 100)).unwrap();
    let (code, said) = refusal(&on(&["cp", &whole, disk]));
    assert!(code == 2 && said.contains("has the encrypted volume"), "{said}");
    on(&["cp", &plain, &keyed(&place, disk)]).succeeded();
    on(&["cp", "--overwrite-volume", &whole, disk]).succeeded();
    server.stop();
}

#[test]
fn info_leaves_a_volume_as_it_is_after_a_rotation() {
    let place = owner();
    let file = place.path("disk");
    let far = Server::start(&[&place.text("disk"), "--create", "4M"]);
    on(&["quanta", "format", &keyed(&place, far.url(0))]).succeeded();
    keys(&["rotate", &place.text("keys"), "--passphrase-file", &place.text("passphrase")]).succeeded();
    let before = fs::read(&file).unwrap();
    on(&["info", &keyed(&place, far.url(0))]).succeeded();
    on(&["bench", "--rw", "randread", "--time", "1", &keyed(&place, far.url(0))]).succeeded();
    assert!(fs::read(&file).unwrap() == before);
    far.stop();
}

#[test]
fn nbd_warns_of_a_volume_that_it_serves_as_it_is() {
    let place = owner();
    let (disk, socket) = (volume(&place, "disk"), place.text("socket"));
    for (more, warns) in [(&[][..], true), (&["--read-only"], false)] {
        let nbd = Server::spawn(lunette().args(["nbd", &disk, "--socket", &socket]).args(more), 1);
        let log = nbd.stop();
        assert_eq!(log.contains("has the encrypted volume"), warns, "{log}");
    }
    let nbd = Server::spawn(lunette().args(["nbd", &keyed(&place, &disk), "--socket", &socket]), 1);
    let log = nbd.stop();
    assert!(!log.contains("warning"), "{log}");
}
