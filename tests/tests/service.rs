//! Lunette as a service of systemd.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use lunette_tests::{Server, lunette};

#[test]
fn the_service_manager_learns_of_the_start_and_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let told = || {
        let mut bytes = [0; 256];
        let len = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let arguments = ["serve", "--listen", "127.0.0.1:0", "mem:1M"];
    let server = Server::spawn(lunette().args(arguments).env("NOTIFY_SOCKET", &path), 1);
    assert_eq!(told(), "READY=1\nSTATUS=Serving 1 logical units of 1 targets");
    server.stop();
    assert_eq!(told(), "STOPPING=1");
}

/// Needs Debian's package `systemd`.
#[test]
fn the_unit_is_hardened() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/lunette.service");
    let output = Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=20", unit]).output();
    let output = output.expect("install Debian's package systemd: it has systemd-analyze");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "an exposure of more than 2.0:\n{told}");
}
