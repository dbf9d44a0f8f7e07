//! A server that is killed and started again with its state file: initiators find what they were promised.

use std::fs;
use std::time::Duration;

use lunette_testkit::{Outcome, ScriptedInitiator};
use lunette_tests::{Server, attach, wait_until};

const BLOCK_LEN: usize = 512;
const TEST_UNIT_READY: [u8; 6] = [0; 6];
const RESERVATION_CONFLICT: u8 = 0x18;

/// A disk with a state file, which is served again and again.
struct Disk {
    folder: tempfile::TempDir,
    size: &'static str,
}

impl Disk {
    fn new(size: &'static str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), size }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn serve(&self) -> Server {
        Server::start(&[&self.path("disk"), "--create", self.size, "--state", &self.path("state")])
    }
}

fn good(initiator: &mut ScriptedInitiator, cdb: &[u8], data_out: Vec<u8>) {
    initiator.command(0, cdb, data_out, 0).good();
}

/// Sense key, ADDITIONAL SENSE CODE and its qualifier, from the fixed format.
fn sense(outcome: &Outcome) -> [u8; 3] {
    assert_eq!(outcome.status, 2, "{outcome:02x?}");
    [outcome.sense[2] & 0x0f, outcome.sense[12], outcome.sense[13]]
}

#[test]
fn a_reservation_with_aptpl_survives_a_kill() {
    let disk = Disk::new("1M");
    let server = disk.serve();
    let mut holder = attach(&server, &[]);
    let list = |key: u64, action_key: u64, aptpl: u8| {
        [&key.to_be_bytes()[..], &action_key.to_be_bytes(), &[0, 0, 0, 0, aptpl, 0, 0, 0]].concat()
    };
    good(&mut holder, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], list(0, 7, 1));
    good(&mut holder, &[0x5f, 1, 3, 0, 0, 0, 0, 0, 24, 0], list(7, 0, 0));
    server.kill();

    let server = disk.serve();
    let mut other = attach(&server, &[]);
    let reservation = other.command(0, &[0x5e, 1, 0, 0, 0, 0, 0, 0, 24, 0], Vec::new(), 24).good();
    assert_eq!(reservation[8..16], 7u64.to_be_bytes());
    assert_eq!(reservation[21], 3, "exclusive access");
    let write = other.start_write(0, 0, vec![1; BLOCK_LEN], 0);
    assert_eq!(other.finish(write).status, RESERVATION_CONFLICT);
    server.stop();
}

#[test]
fn saved_mode_pages_survive_a_kill() {
    let disk = Disk::new("1M");
    let server = disk.serve();
    let mut initiator = attach(&server, &[]);
    let control = |initiator: &mut ScriptedInitiator| {
        initiator.command(0, &[0x1a, 0x08, 0x0a, 0, 255, 0], Vec::new(), 255).good()
    };
    let mut list = control(&mut initiator);
    assert_eq!(list[4], 0x8a, "PS: the page can be saved");
    list[0] = 0;
    list[4] &= 0x7f;
    list[6] |= 0x04;
    good(&mut initiator, &[0x15, 0x11, 0, 0, list.len() as u8, 0], list);
    server.kill();

    let server = disk.serve();
    let mut initiator = attach(&server, &[]);
    assert_eq!(control(&mut initiator)[6] & 0x04, 0x04, "D_SENSE");
    let refused = initiator.command(0, &[0xff], Vec::new(), 0);
    assert_eq!(refused.sense[0], 0x72, "descriptor format");
    server.stop();
}

#[test]
fn a_sanitize_operation_continues_after_a_kill() {
    const PASSES: u8 = 15;
    const BLOCKS: usize = (64 << 20) / BLOCK_LEN;
    const IN_PROGRESS: [u8; 3] = [0x02, 0x04, 0x1b];
    let disk = Disk::new("64M");
    let server = disk.serve();
    let mut initiator = attach(&server, &[]);
    initiator.write(0, BLOCKS as u32 - 1, vec![0x5a; BLOCK_LEN]).good();
    // With IMMED and INVERT.
    good(&mut initiator, &[0x48, 0x81, 0, 0, 0, 0, 0, 0, 6, 0], vec![0x80 | PASSES, 0, 0, 2, 0xca, 0xfe]);
    let outcome = initiator.command(0, &TEST_UNIT_READY, Vec::new(), 0);
    assert_eq!(sense(&outcome), IN_PROGRESS);
    server.kill();

    let server = disk.serve();
    let mut initiator = attach(&server, &[]);
    let mut ready = || {
        let outcome = initiator.command(0, &TEST_UNIT_READY, Vec::new(), 0);
        (outcome.status == 0).then_some(()).ok_or(outcome)
    };
    assert_eq!(sense(&ready().unwrap_err()), IN_PROGRESS, "before anything can be read");
    wait_until(Duration::from_mins(2), || ready().ok()).expect("it comes to its end");
    let bytes = initiator.read(0, BLOCKS as u32 - 1, 1).good();
    assert!(bytes.chunks(2).all(|pair| pair == [0xca, 0xfe]));
    drop(initiator);
    server.stop();
    let file = fs::read(disk.path("disk")).unwrap();
    assert!(file.chunks(2).all(|pair| pair == [0xca, 0xfe]), "every block");
}
