//! Random walks of what happens to the file below a disk, with a disk that is read and written meanwhile.
//!
//! One seed is one walk: on a file system of its own, a file grows, is cut, replaced, gets odd lengths, finds no space,
//! is mounted again; the file system fails; the server is reloaded, stopped and killed. What must hold:
//!
//! - what was acknowledged and flushed is there, and what was acknowledged, as long as the file system does not fail;
//! - no read returns anything else than was written, and beyond the end of a file there are no zeroes but errors;
//! - the server starts again, whatever has happened;
//! - a change that is refused takes no space.
//!
//! - `model` knows what each block may hold, `ground` is the file system with the server over it, and `walk` makes the
//!   steps.

mod ground;
mod model;
mod walk;

use std::fmt;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use clap::Parser;

/// Random walks of events below a disk.
#[derive(Debug, Parser)]
#[command(name = "lunette-disks")]
pub struct Arguments {
    /// Walks.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
    /// Walks at the same time. They wait more than they compute.
    #[arg(long, default_value = "4")]
    jobs: NonZero<usize>,
    /// Make only the walk of this seed, and show its steps with the time that each has taken.
    #[arg(long, value_name = "SEED")]
    trace: Option<u64>,
}

/// How many walks ended how.
#[derive(Debug, Default)]
pub struct Tally {
    walks: u64,
    failed: Vec<u64>,
}

impl Tally {
    /// Whether no walk has failed.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} walks, {} failed", self.walks, self.failed.len())?;
        self.failed.iter().try_for_each(|seed| write!(f, "; repeat one: --trace {seed}"))
    }
}

/// Makes the walks. A fault is a panic of a thread that is named after its seed; the message is on standard error.
pub fn run(arguments: &Arguments) -> Tally {
    let seeds = match arguments.trace {
        Some(seed) => seed..seed + 1,
        None => arguments.first..arguments.first.saturating_add(arguments.seeds),
    };
    let shows = arguments.trace.is_some();
    let (seeds, tally) = (Mutex::new(seeds), Mutex::new(Tally::default()));
    let work = || {
        loop {
            let Some(seed) = seeds.lock().expect("no walk has the lock").next() else { return };
            let walk = thread::Builder::new().name(format!("seed {seed}")).spawn(move || walk::walk(seed, shows));
            let is_good = walk.expect("a thread can be started").join().is_ok();
            let mut tally = tally.lock().expect("no walk has the lock");
            tally.walks += 1;
            if !is_good {
                eprintln!("seed {seed} failed; repeat it with --trace {seed}");
                tally.failed.push(seed);
            }
        }
    };
    thread::scope(|scope| (0..arguments.jobs.get()).for_each(|_| drop(scope.spawn(work))));
    tally.into_inner().expect("no walk has the lock")
}
