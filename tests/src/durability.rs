//! A load of writes and flushes whose server is killed, and what must be there afterwards.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lunette_testkit::{ScriptedInitiator, cdb_10};

use crate::initiator::attach;
use crate::random::random_bytes;
use crate::server::Server;

const BLOCK_LEN: usize = 512;

/// The number of places, each for one record, that the load covers, so that it overwrites earlier records.
const PLACES: u32 = 512;

/// Blocks of a record: some are sent with the command, others when asked for.
const RECORD_BLOCKS: u32 = 32;

/// Writes in flight between two synchronizations.
const WRITES: u32 = 24;

/// The longest time of a round of the load.
const ROUND_LIMIT: Duration = Duration::from_mins(1);

/// The initiator's knowledge of the disk under a load, which has 512-byte blocks and 8 MiB at least.
pub struct Durable {
    places: Vec<Place>,
    /// The last round. A load on the same disk goes on from there.
    round: u32,
}

/// The initiator's knowledge of one place.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The version that the last synchronization covers; 0 is the empty disk.
    durable: u32,
    /// The last version that was sent.
    sent: u32,
}

impl Durable {
    /// An empty disk.
    #[expect(clippy::new_without_default, reason = "the disk is not made by it")]
    pub fn new() -> Self {
        Self { places: vec![Place::default(); PLACES as usize], round: 0 }
    }

    /// Writes until the connection breaks. `kill` is called in the middle of a round, when `rounds` were synchronized.
    pub fn load(&mut self, server: &Server, rounds: u32, kill: impl FnOnce()) {
        let (round_done, done) = mpsc::channel();
        thread::scope(|scope| {
            let load = &mut *self;
            // The sender goes with the load, so that its end shows.
            scope.spawn(move || load.write(server, &round_done));
            for _ in 0..rounds {
                done.recv_timeout(ROUND_LIMIT).expect("rounds go on");
            }
            kill();
        });
        assert!(self.places.iter().any(|place| place.durable > 0));
    }

    /// Asserts that every block has a version that was sent, and none is older than the durable one.
    pub fn check(&self, server: &Server) {
        let mut initiator = attach(server, &[]);
        for (place, known) in self.places.iter().enumerate() {
            check(&mut initiator, place as u32, *known);
        }
    }

    /// Writes one record in an orderly way.
    pub fn write_one(&mut self, server: &Server, place: u32) {
        attach(server, &[]).write(0, place * RECORD_BLOCKS, record(place, 1)).good();
        self.places[place as usize] = Place { durable: 1, sent: 1 };
    }

    /// Writes until the connection breaks, and reports every synchronized round.
    fn write(&mut self, server: &Server, round_done: &mpsc::Sender<()>) {
        let places = &mut self.places;
        let mut initiator = attach(server, &[("DataDigest", "CRC32C")]);
        loop {
            self.round += 1;
            let round = self.round;
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
            let _ = round_done.send(());
        }
    }
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
