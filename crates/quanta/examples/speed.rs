//! How fast quanta are sealed and opened, beside `memcpy` of the same plain text:
//! `cargo run --release -p lunette-quanta --example speed [CIPHER]`, pinned with `taskset -c 1`.
//!
//! Contestants take turns in each round. A figure in GB/s is the median of the rounds; a ratio is the median of the
//! ratios within one round, because other work on the machine slows the contestants of one round alike. *Cold*: source
//! and destination were last used far more than a cache's size of bytes ago, in an order that a prefetcher does not
//! guess. *Warm*: the same two buffers each time. Nonces are made from one seed for each request; the system call that
//! a client makes for a seed is not in the figures.

#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use lunette_quanta::{Codec, DataKey, Holes, KeyRing, QuantumSize, Sealing, Seed, TABLE, VolumeId};

const ARENA_LEN: usize = 256 << 20;
const ROUNDS: usize = 101;
const BYTES_PER_SAMPLE: usize = 1 << 20;
const CONTESTANTS: [&str; 3] = ["memcpy", "seal", "open"];

/// A request's worth of plain text, EDUs and a copy's destination, many times over.
struct Arena {
    plain: Vec<u8>,
    edus: Vec<u8>,
    copies: Vec<u8>,
    codec: Codec,
    /// Quanta of a request.
    batch: usize,
}

impl Arena {
    fn new(codec: Codec, batch: usize) -> Self {
        let (len, quanta) = (codec.size().bytes(), ARENA_LEN / codec.size().bytes());
        let mut arena = Self {
            plain: vec![0x5a; quanta * len],
            edus: vec![0; quanta * codec.size().edu_len()],
            copies: vec![1; quanta * len],
            codec,
            batch,
        };
        (0..arena.requests()).for_each(|request| arena.run("seal", request));
        arena
    }

    fn requests(&self) -> usize {
        ARENA_LEN / self.codec.size().bytes() / self.batch
    }

    fn run(&mut self, contestant: &str, request: usize) {
        let (len, edus_len) = (self.batch * self.codec.size().bytes(), self.batch * self.codec.size().edu_len());
        let plain = &mut self.plain[request * len..][..len];
        let edus = &mut self.edus[request * edus_len..][..edus_len];
        let position = (request * self.batch) as u64;
        match contestant {
            "memcpy" => black_box(&mut self.copies[request * len..][..len]).copy_from_slice(black_box(plain)),
            "seal" => {
                let seed = Seed::new([request as u8; 32]);
                self.codec.seal(Sealing { position, version: 1, seed }, black_box(plain), black_box(edus));
            }
            _ => self.codec.open(position, black_box(edus), black_box(plain)).expect("it was sealed"),
        }
    }

    /// The time of one request for each contestant, in each round.
    fn measure(&mut self, cold: bool) -> Vec<[Duration; 3]> {
        let per_sample = (BYTES_PER_SAMPLE / (self.batch * self.codec.size().bytes())).max(1);
        let requests = self.requests();
        let mut next = 0;
        let round = |_| {
            CONTESTANTS.map(|contestant| {
                let begin = Instant::now();
                for _ in 0..per_sample {
                    // A step that is prime to the number of requests visits all of them.
                    next = if cold { (next + 1_000_003) % requests } else { 0 };
                    self.run(contestant, next);
                }
                begin.elapsed() / per_sample as u32
            })
        };
        (0..ROUNDS).map(round).collect()
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures = figures.collect::<Vec<_>>();
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let only = std::env::args().nth(1);
    println!("cipher           quantum  batch  cache   memcpy    seal    open  GB/s   seal/memcpy  open/memcpy");
    let rows = TABLE.iter().filter(|row| only.as_ref().is_none_or(|only| only == row.name));
    for (row, size, batch) in rows.flat_map(|row| {
        [(QuantumSize::B512, 1), (QuantumSize::B512, 32), (QuantumSize::B4096, 1), (QuantumSize::B4096, 16)]
            .map(|(size, batch)| (row, size, batch))
    }) {
        let ring = KeyRing::new(row.cipher, 1, &DataKey::new([7; 32])).expect("epochs begin with 1");
        let mut arena = Arena::new(Codec::new(VolumeId([1; 16]), size, Holes::Allowed, ring), batch);
        for cold in [true, false] {
            let rounds = arena.measure(cold);
            let bytes = (batch * size.bytes()) as f64;
            let rate = |of: usize| median(rounds.iter().map(|round| bytes / round[of].as_nanos().max(1) as f64));
            let ratio = |of: usize| median(rounds.iter().map(|round| round[0].as_secs_f64() / round[of].as_secs_f64()));
            println!(
                "{:16} {:7} {batch:6}  {}  {:7.2} {:7.2} {:7.2} {:17.2} {:12.2}",
                row.name,
                size.bytes(),
                if cold { "cold" } else { "warm" },
                rate(0),
                rate(1),
                rate(2),
                ratio(1),
                ratio(2)
            );
        }
    }
}
