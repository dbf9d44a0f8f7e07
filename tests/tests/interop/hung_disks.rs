//! Disks that do not answer, beside others that do. `docs/disks.md` has the table.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lunette_testkit::Sense;
use lunette_tests::{Configured as Place, Server, attach, lunette, run_at_most};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::disk_files::{NOT_READY, attentions, config};

const LIMIT: Duration = Duration::from_secs(30);

const BECOMING_READY: Sense = (2, 4, 1);

/// A file system whose server never answers (FUSE). What asks it for a file waits.
struct Hung {
    folder: TempDir,
    server: Option<File>,
}

impl Hung {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "hung"]).arg(folder.path());
        let mounted = mount.stdin(server.try_clone().unwrap()).output().unwrap();
        assert!(mounted.status.success(), "{mounted:?}");
        Self { folder, server: Some(server) }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// All that waits fails.
    fn end(&mut self) {
        self.server = None;
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.end();
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

#[test]
fn disks_that_do_not_answer_delay_neither_the_start_nor_a_reload_nor_the_stop() {
    let (mut hung, silent) = (Hung::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (file, url) = (hung.file(), format!("iscsi://{}/iqn.far/0", silent.local_addr().unwrap()));
    let place = Place::new();
    let luns = format!(
        "{{ number = 0, disk = {file:?} }}, {{ number = 1, disk = {url:?} }}, {{ number = 2, disk = \"@/disk\", create = \"1M\" }}"
    );
    let server = place.start(&config(&luns), 3);
    let mut initiator = attach(&server, &[]);
    for (number, disk) in [(0, file.display().to_string()), (1, url)] {
        server.await_log(&format!("LUN {number}: {disk}: it does not answer yet"), 1);
        assert_eq!(attentions(&mut initiator, number).1, Some(BECOMING_READY));
    }
    assert_eq!(attentions(&mut initiator, 2).1, None);
    initiator.write(2, 0, vec![1; 512]).good();

    let log = place.change(&server, &config(&format!("{luns}, {{ number = 3, disk = \"@/other\", create = \"1M\" }}")));
    assert!(log.contains("LUN 3 added"), "{log}");
    assert_eq!(attentions(&mut initiator, 3).1, None);
    assert_eq!(attentions(&mut initiator, 0).1, Some(BECOMING_READY));
    assert_eq!(attentions(&mut initiator, 2).1, None);
    assert_eq!(initiator.read(2, 0, 1).good(), [1; 512]);
    hung.end();
    server.await_log(&format!("LUN 0: {}: cannot look it up", file.display()), 1);
    assert_eq!(attentions(&mut initiator, 0).1, Some(NOT_READY));
    drop(initiator);
    // The other target still does not answer.
    server.stop();
}

#[test]
fn a_check_names_disks_that_do_not_answer_and_ends() {
    let (hung, place) = (Hung::new(), Place::new());
    place.write(&config(&format!("{{ number = 0, disk = {:?} }}, {{ number = 1, disk = \"mem:1M\" }}", hung.file())));
    let checked = run_at_most(LIMIT, lunette().arg("check").arg(place.file("config")));
    assert!(checked.code == Some(5) && checked.to_string().contains("disk: it does not answer"), "{checked}");
}

#[test]
fn a_hangup_before_the_server_is_ready_is_answered_when_it_is() {
    let (place, silent) = (Place::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let url = format!("iscsi://{}/iqn.far/0", silent.local_addr().unwrap());
    place.write(&config(&format!("{{ number = 0, disk = {url:?} }}")));
    let server = Server::spawn(lunette().args(["serve", "--config"]).arg(place.file("config")), 0);
    // It waits for its disk now, and for two seconds.
    let attempt = silent.accept().unwrap();
    server.signal(Signal::HUP);
    server.await_log("configuration read again: nothing has changed", 1);
    server.await_log("LUN 0: iscsi://", 1);
    drop(attempt);
    server.stop();
}
