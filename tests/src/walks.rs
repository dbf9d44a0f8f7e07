//! Campaigns of random walks: one seed is one walk, on a thread of its own.

use std::fmt;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use clap::Parser;

/// Random walks.
#[derive(Debug, Parser)]
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

/// A walk of a seed; whether it shows its steps. A fault is a panic.
pub type Walk = fn(u64, bool);

/// Makes the walks. The thread of a walk is named after its seed; the message of a fault is on standard error.
pub fn run(arguments: &Arguments, walk: Walk) -> Tally {
    let seeds = match arguments.trace {
        Some(seed) => seed..seed + 1,
        None => arguments.first..arguments.first.saturating_add(arguments.seeds),
    };
    let shows = arguments.trace.is_some();
    let (seeds, tally) = (Mutex::new(seeds), Mutex::new(Tally::default()));
    let work = || {
        loop {
            let Some(seed) = seeds.lock().expect("no walk has the lock").next() else { return };
            let walk = thread::Builder::new().name(format!("seed {seed}")).spawn(move || walk(seed, shows));
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
