//! The refusals of `lunette` for the sake of encrypted disks: plain text over them, and a second use of one at the same
//! time.

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

/// A server that reads the configuration of one target, in which `luns` are its disks.
fn write_config(place: &Place, luns: &str) -> String {
    let text =
        format!("listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{luns}]\n");
    place.file("config", &text)
}

#[test]
fn an_encrypted_disk_is_never_opened_twice() {
    let place = owner();
    let far = Server::start(&[&place.text("disk"), "--create", "4M"]);
    on(&["quanta", "format", &keyed(&place, far.url(0))]).succeeded();
    let (one, two) = (keyed(&place, far.url(0)), format!("{}&data_digest=crc32c", keyed(&place, far.url(0))));
    let entry = |number: u16, disk: &str| format!("{{ number = {number}, disk = \"{disk}\" }}");
    for second in [&two, far.url(0)] {
        let config = write_config(&place, &[entry(0, &one), entry(1, second)].join(", "));
        let (code, said) = refusal(&on(&["serve", "--strict", "--config", &config]));
        assert!(code == 3 && said.contains("one encrypted disk"), "{said}");
    }

    let config = write_config(&place, &entry(0, &one));
    let near = Server::spawn(lunette().args(["serve", "--config", &config]), 1);
    let reload = |luns: &str| {
        write_config(&place, luns);
        near.hang_up(&["changes applied", "nothing has changed", "configuration refused"])
    };
    for (times, other) in (1..).zip([entry(0, &two), entry(7, &one), entry(0, far.url(0)), entry(7, &one)]) {
        let log = reload(&other);
        assert!(log.contains("changes applied") && log.contains("encrypted disk that is still open"), "{log}");
        // It is opened when the one before is closed.
        near.await_log("is served as configured again", times);
    }
    near.stop();
    far.stop();
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
fn format_names_every_cipher_in_its_help() {
    let help = on(&["quanta", "format", "--help"]);
    for cipher in ["aegis-256 ", "aes-256-gcm-siv", "aegis-256x4"] {
        assert!(help.succeeded().contains(cipher), "{cipher}: {help}");
    }
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
