//! A server that is killed during a load: what was written before a successful SYNCHRONIZE CACHE is there.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lunette_testkit::{ScriptedInitiator, cdb_10};
use lunette_tests::{Server, attach, random_bytes};

const BLOCK_LEN: usize = 512;

/// The number of places, each for one record, that the load covers, so that it overwrites earlier records.
const PLACES: u32 = 512;

/// Blocks of a record: some are sent with the command, others when asked for.
const RECORD_BLOCKS: u32 = 32;

/// Writes in flight between two synchronizations.
const WRITES: u32 = 24;

/// Synchronizations that succeed before the server is killed.
const ROUNDS_BEFORE_KILL: u32 = 20;

/// The initiator's knowledge of one place.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The version that the last synchronization covers; 0 is the empty disk.
    durable: u32,
    /// The last version that was sent.
    sent: u32,
}

/// The blocks of a version. Each names its place and version, so that a torn record is recognized.
fn record(place: u32, version: u32) -> Vec<u8> {
    (0..RECORD_BLOCKS).flat_map(|block| record_block(place, version, block)).collect()
}

fn record_block(place: u32, version: u32, block: u32) -> Vec<u8> {
    let seed = u64::from(place) << 40 | u64::from(block) << 32 | u64::from(version);
    let mut bytes = version.to_be_bytes().to_vec();
    bytes.extend(random_bytes(seed, BLOCK_LEN - 4));
    bytes
}

/// Writes until the connection breaks, and reports every synchronized round.
fn load(server: &Server, places: &mut [Place], round_done: &mpsc::Sender<u32>) {
    let mut initiator = attach(server, &[("DataDigest", "CRC32C")]);
    for round in 1.. {
        let first = round * 7;
        let round_places = (0..WRITES).map(|n| (first + n * 5) % PLACES);
        let mut writes = Vec::new();
        for place in round_places.clone() {
            places[place as usize].sent = round;
            let record = record(place, round);
            let immediate = if place % 2 == 0 { record.len() } else { 0 };
            match initiator.try_start_write(0, place * RECORD_BLOCKS, record, immediate) {
                Ok(write) => writes.push(write),
                Err(_) => return,
            }
        }
        for write in writes {
            match initiator.try_finish(write) {
                Ok(outcome) => drop(outcome.good()),
                Err(_) => return,
            }
        }
        let Ok(flush) = initiator.try_start(0, &cdb_10(0x35, 0, 0), Vec::new(), 0, 0) else { return };
        match initiator.try_finish(flush) {
            Ok(outcome) => drop(outcome.good()),
            Err(_) => return,
        }
        for place in round_places {
            places[place as usize].durable = round;
        }
        // The receiver is gone after the kill.
        let _ = round_done.send(round);
    }
}

/// Asserts that every block of a place has a version that was sent, and none is older than the durable one.
fn check(initiator: &mut ScriptedInitiator, place: u32, known: Place) {
    let bytes = initiator.read(0, place * RECORD_BLOCKS, RECORD_BLOCKS as u16).good();
    for (block, found) in bytes.chunks(BLOCK_LEN).enumerate() {
        let version = u32::from_be_bytes([found[0], found[1], found[2], found[3]]);
        assert!(
            (known.durable..=known.sent).contains(&version),
            "place {place}, block {block}: version {version}, but {} was synchronised (and {} sent)",
            known.durable,
            known.sent
        );
        let expected = if version == 0 { vec![0; BLOCK_LEN] } else { record_block(place, version, block as u32) };
        assert!(found == expected, "place {place}, block {block}: version {version} is damaged");
    }
}

fn kill_and_look(disk: &Path, extra: &[&str]) {
    let arguments = [&[disk.to_str().unwrap(), "--create", "16M"], extra].concat();
    let server = Server::start(&arguments);
    let mut places = vec![Place::default(); PLACES as usize];
    let (round_done, rounds) = mpsc::channel();
    let places = thread::scope(|scope| {
        let server_ref = &server;
        let load = scope.spawn(move || {
            load(server_ref, &mut places, &round_done);
            places
        });
        // The kill comes in the middle of a later round.
        while rounds.recv_timeout(Duration::from_mins(1)).expect("rounds go on") < ROUNDS_BEFORE_KILL {}
        server.kill_now();
        load.join().unwrap()
    });
    server.kill();
    assert!(places.iter().any(|place| place.durable > 0));

    let server = Server::start(&arguments);
    let mut initiator = attach(&server, &[]);
    for (place, known) in places.iter().enumerate() {
        check(&mut initiator, place as u32, *known);
    }
    drop(initiator);
    server.stop();
}

#[test]
fn synchronized_blocks_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..3 {
        kill_and_look(&folder.path().join(format!("disk{n}")), &[]);
    }
}

#[test]
fn a_server_that_was_stopped_normally_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let arguments = [disk.to_str().unwrap(), "--create", "16M"];
    let server = Server::start(&arguments);
    let mut initiator = attach(&server, &[]);
    initiator.write(0, 96, record(3, 1)).good();
    drop(initiator);
    server.stop();

    let server = Server::start(&arguments);
    let mut initiator = attach(&server, &[]);
    check(&mut initiator, 3, Place { durable: 1, sent: 1 });
    drop(initiator);
    server.stop();
}
