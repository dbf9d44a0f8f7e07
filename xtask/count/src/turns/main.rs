//! A process in which each side of the protocol works through I/O on its real event loop, to have the instructions
//! counted:
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*::scripted_turn' --toggle-collect='*::Engine as *>::timeout' \
//!     --collect-atstart=yes --dump-before='*::milestone' --callgrind-out-file=turns.out target/release/count-turns
//! ```
//!
//! Each load has a line on standard output, with its name and the number of its I/Os, and two dumps: the second one is
//! what they cost, the first one what came before.
//!
//! # Why a count is always the same
//!
//! The other side is a script, which the loop's own thread plays where the loop calls out: in the store, and where the
//! initiator tells that a request has ended. It puts a whole batch into the socket, and the loopback interface brings
//! it to the other end before that call returns; that the sockets are large enough is looked at once, before anything
//! counts. So what the loop finds when it turns does not depend on the scheduler. The initiator looks at the timeouts
//! of its requests ten times a second; this alone depends on the time, and is not counted.

mod initiator;
mod target;
mod wire;

use std::hint::black_box;

use lunette_session::Timers;
use lunette_session::keys::{Choices, Offer};

const TARGET: &str = "iqn.2026-11.org.example:disk";
const HOST: &str = "iqn.2026-11.org.example:host";
const BLOCK_LEN: usize = 512;

/// The part of the disk that is read and written, again and again.
const DISK_LEN: usize = 8 << 20;

/// Batches until every table has the room that it needs, and the system has made the sockets large enough for a batch.
const WARM_BATCHES: usize = 48;
const COUNTED_BATCHES: usize = 32;

/// Reads or writes of one length, a number of them at once.
#[derive(Clone, Copy)]
struct Load {
    reads: bool,
    len: usize,
    batch: usize,
    digests: bool,
}

impl Load {
    fn all() -> impl Iterator<Item = Self> {
        let lens = [(4 << 10, 16), (256 << 10, 1)];
        let loads = lens.into_iter().flat_map(|(len, batch)| {
            let load = Self { reads: true, len, batch, digests: false };
            [load, Self { reads: false, ..load }]
        });
        loads.flat_map(|load| [load, Self { digests: true, ..load }])
    }

    fn tell(&self, side: &str) {
        let direction = if self.reads { "read" } else { "write" };
        let digests = if self.digests { "digests" } else { "plain" };
        println!("{side} {direction} {} {digests}\t{}", self.len, self.batch * COUNTED_BATCHES);
    }

    /// The agreement of both sides.
    fn offer(&self) -> Offer {
        let choice = Choices(if self.digests { 0b10 } else { 0b01 });
        Offer { header_digest: choice, data_digest: choice, ..Offer::initiator() }
    }

    /// Where the I/O of that number begins, in blocks.
    fn lba(&self, number: usize) -> u64 {
        (number * self.len % DISK_LEN / BLOCK_LEN) as u64
    }

    fn blocks(&self) -> u32 {
        (self.len / BLOCK_LEN) as u32
    }
}

/// Where a load stands.
#[derive(Default)]
struct Progress {
    batches: usize,
}

impl Progress {
    /// A batch has ended. `false` after the last one.
    fn goes_on(&mut self) -> bool {
        self.batches += 1;
        if self.batches == WARM_BATCHES || self.is_over() {
            milestone();
        }
        !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.batches == WARM_BATCHES + COUNTED_BATCHES
    }

    /// The next batch is the first one that counts.
    fn is_warm(&self) -> bool {
        self.batches == WARM_BATCHES
    }
}

/// The counts of what came before are dumped here.
#[inline(never)]
fn milestone() {
    black_box(());
}

/// No timer has anything to do.
fn timers() -> Timers {
    let never = wire::LIMIT * 100;
    Timers { login: never, ping_after: never, ping_answer: never, resend: never, progress: never }
}

fn main() {
    for load in Load::all() {
        target::run(load);
        initiator::run(load);
    }
}
