//! Two initiators that compete for one block with COMPARE AND WRITE: no increment is lost.

use std::thread;
use std::time::{Duration, Instant};

use lunette_testkit::ScriptedInitiator;
use lunette_tests::{Server, attach};

const BLOCK_LEN: usize = 512;

/// The time for which they compete.
const FIGHT: Duration = Duration::from_secs(10);

const CHECK_CONDITION: u8 = 2;
const MISCOMPARE: u8 = 0x0e;

/// A block that holds a count. Every byte depends on the number, so that a torn block is not taken for a whole one.
fn block(count: u64) -> Vec<u8> {
    (0..BLOCK_LEN as u64 / 8).flat_map(|place| (count ^ place << 56).to_be_bytes()).collect()
}

/// The count in a block.
fn count(bytes: &[u8]) -> u64 {
    let count = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == block(count), "a torn block: {bytes:02x?}");
    count
}

/// COMPARE AND WRITE of one block (SBC-4 5.3): whether the block was as `expected`.
fn swap(initiator: &mut ScriptedInitiator, lba: u8, expected: u64, new: u64) -> bool {
    let cdb = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, 1, 0, 0];
    let outcome = initiator.command(0, &cdb, [block(expected), block(new)].concat(), 0);
    if outcome.status == CHECK_CONDITION {
        assert_eq!(outcome.sense[2] & 0x0f, MISCOMPARE, "{outcome:02x?}");
        return false;
    }
    outcome.good();
    true
}

/// Increments as often as it can. Returns the number of successes and of failures.
fn increment(server: &Server, lba: u8) -> (u64, u64) {
    let mut initiator = attach(server, &[("DataDigest", "CRC32C")]);
    let (mut won, mut lost) = (0, 0);
    let end = Instant::now() + FIGHT;
    while Instant::now() < end {
        let now = count(&initiator.read(0, lba.into(), 1).good());
        if swap(&mut initiator, lba, now, now + 1) {
            won += 1;
        } else {
            lost += 1;
        }
    }
    (won, lost)
}

fn every_increment_is_accounted_for(disk: &[&str]) {
    const LBA: u8 = 7;
    let server = Server::start(disk);
    let mut witness = attach(&server, &[]);
    witness.write(0, LBA.into(), block(0)).good();
    let fights: Vec<(u64, u64)> = thread::scope(|scope| {
        let fighters = [(); 2].map(|()| scope.spawn(|| increment(&server, LBA)));
        fighters.into_iter().map(|fighter| fighter.join().unwrap()).collect()
    });
    let won: u64 = fights.iter().map(|(won, _)| won).sum();
    println!("won and lost: {fights:?}");
    assert_eq!(count(&witness.read(0, LBA.into(), 1).good()), won);
    assert!(fights.iter().all(|(won, lost)| *won > 0 && *lost > 0), "they never met: {fights:?}");
    drop(witness);
    server.stop();
}

#[test]
fn on_a_disk_in_memory() {
    every_increment_is_accounted_for(&["mem:16M"]);
}

#[test]
fn on_a_disk_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    every_increment_is_accounted_for(&[disk.to_str().unwrap(), "--create", "16M"]);
}
