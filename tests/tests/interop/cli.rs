//! The messages and exit codes of a command that cannot start.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use lunette_tests::{Ran, Server, lunette, run_at_most};

const USAGE: i32 = 2;
const CONFIGURATION: i32 = 3;
const ADDRESS: i32 = 4;
const DISK: i32 = 5;

fn serve(arguments: &[&str]) -> Ran {
    run_at_most(Duration::from_secs(20), lunette().arg("serve").args(arguments))
}

/// Asserts that the command ends with this code and prints these words.
fn fails(code: i32, words: &[&str], arguments: &[&str]) {
    let ran = serve(arguments);
    assert_eq!(ran.code, Some(code), "{ran}");
    assert!(ran.stdout.is_empty(), "it prints a URL and does not serve: {ran}");
    for word in words {
        assert!(ran.stderr.contains(word), "no {word:?} in {ran}");
    }
}

fn written(file: &Path, text: &str) -> String {
    fs::write(file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn bad_usage_is_reported() {
    fails(USAGE, &["DISK"], &[]);
    fails(USAGE, &["--lisen"], &["--lisen", "127.0.0.1:0", "mem:16M"]);
    fails(USAGE, &["some/where"], &["--listen", "some/where", "mem:16M"]);
    fails(USAGE, &["520"], &["--block-size", "520", "mem:16M"]);
    fails(USAGE, &["12Q"], &["mem:12Q"]);
    fails(USAGE, &["not an iSCSI name"], &["--target", "My Disk", "mem:16M"]);
    fails(USAGE, &["--chap"], &["--chap", "user-without-file", "mem:16M"]);
    fails(USAGE, &["--config"], &["--config", "file", "mem:16M"]);
}

#[test]
fn help_shows_how_to_attach() {
    let help = serve(&["--help"]);
    for word in ["qemu", "iscsiadm", "--create", "--chap", "Exit codes"] {
        assert!(help.succeeded().contains(word), "no {word:?} in {help}");
    }
}

#[test]
fn a_bad_configuration_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunette.toml");
    let target = "[[target]]\nname = \"iqn.2026-11.org.example:a\"\n";
    let with = |text: &str| written(&file, &format!("{target}{text}\n"));

    let path = with("lun = []\ncolour = \"red\"");
    fails(CONFIGURATION, &["lunette.toml", "line 4", "colour"], &["--config", &path]);
    let path = with("lun = [{ number = 0, disk = \"mem:16M\", blocksize = 512 }]");
    fails(CONFIGURATION, &["line 3", "blocksize"], &["--config", &path]);
    let path = with("lun = [{ number = 0, disk = \"mem:16M\" }");
    fails(CONFIGURATION, &["lunette.toml"], &["--config", &path]);
    let path = with("lun = [{ number = 20000, disk = \"mem:16M\" }]");
    fails(CONFIGURATION, &["20000"], &["--config", &path]);
    let path = with("lun = [{ number = 0, disk = \"mem:16M\", provisioning = \"full\" }]");
    fails(CONFIGURATION, &["provisioning"], &["--config", &path]);
    fails(CONFIGURATION, &["nowhere.toml"], &["--config", "/nowhere.toml"]);
}

#[test]
fn a_secret_that_cannot_be_read_is_reported_without_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let missing = format!("user:{}/missing", folder.path().display());
    fails(CONFIGURATION, &["missing"], &["--listen", "127.0.0.1:0", "--chap", &missing, "mem:16M"]);

    let secret = written(&folder.path().join("secret"), "one-secret-for-both");
    let chap = format!("user:{secret}");
    let mutual = format!("target:{secret}");
    let arguments = ["--listen", "127.0.0.1:0", "--chap", &chap, "--mutual-chap", &mutual, "mem:16M"];
    fails(CONFIGURATION, &["secret", "initiator"], &arguments);
    assert!(!serve(&arguments).stderr.contains("one-secret-for-both"));
}

#[test]
fn an_address_that_is_taken_or_foreign_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(ADDRESS, &[&address, "in use"], &["--listen", &address, "mem:16M"]);
    fails(ADDRESS, &["192.0.2.1"], &["--listen", "192.0.2.1:0", "mem:16M"]);
}

#[test]
fn a_disk_that_cannot_be_served_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").to_str().unwrap().to_owned();
    let listen = ["--listen", "127.0.0.1:0"];
    let fails = |words: &[&str], disk: &[&str]| fails(DISK, words, &[&listen, disk].concat());
    fails(&[&missing, "create"], &[&missing]);
    fails(&[folder.path().to_str().unwrap()], &[folder.path().to_str().unwrap()]);
    let empty = folder.path().join("empty");
    File::create(&empty).unwrap();
    fails(&["empty"], &[empty.to_str().unwrap()]);
    fails(&["/dev/null"], &["/dev/null"]);
}

#[test]
fn a_disk_is_served_by_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk").to_str().unwrap().to_owned();
    let server = Server::start(&[&disk, "--create", "16M"]);
    fails(DISK, &[&disk, "use"], &["--listen", "127.0.0.1:0", &disk]);
    server.stop();
    Server::start(&[&disk]).stop();
}
