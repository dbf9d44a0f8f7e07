//! Many runs, on all cores.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::world::Run;
use crate::{Setup, Tally, Transport, run};

/// Which runs to do: seeds with every setup.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The setups, with the number of seeds of each.
    pub setups: Vec<(Setup, u64)>,
    /// The first seed.
    pub first: u64,
}

/// A run that broke a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The rule that it broke.
    pub why: String,
}

/// All runs of one setup.
#[derive(Debug, Clone)]
pub struct SetupReport {
    /// Which.
    pub setup: Setup,
    /// How many.
    pub runs: u64,
    /// The counts of the runs.
    pub tally: Tally,
    /// The runs that broke a rule, by seed.
    pub failures: Vec<Failure>,
}

/// All runs.
#[derive(Debug, Clone)]
pub struct Report {
    /// By setup.
    pub setups: Vec<SetupReport>,
}

impl Report {
    /// The first run that broke a rule.
    pub fn first_failure(&self) -> Option<(Setup, &Failure)> {
        self.setups.iter().find_map(|setup| Some((setup.setup, setup.failures.first()?)))
    }

    /// The counts of all runs.
    pub fn total(&self) -> Tally {
        sum(self.setups.iter())
    }

    /// The counts of all runs over one transport.
    pub fn total_over(&self, transport: Transport) -> Tally {
        sum(self.setups.iter().filter(|setup| setup.setup.transport == transport))
    }
}

fn sum<'a>(setups: impl Iterator<Item = &'a SetupReport>) -> Tally {
    let mut total = Tally::default();
    for setup in setups {
        total.add(&setup.tally);
    }
    total
}

impl Campaign {
    /// Does all runs.
    pub fn run(&self) -> Report {
        Report { setups: self.setups.iter().map(|(setup, seeds)| self.run_setup(*setup, *seeds)).collect() }
    }

    fn run_setup(&self, setup: Setup, seeds: u64) -> SetupReport {
        let report = SetupReport { setup, runs: seeds, tally: Tally::default(), failures: Vec::new() };
        let report = Mutex::new(report);
        let next = AtomicU64::new(0);
        let work = || {
            let (mut tally, mut failures) = (Tally::default(), Vec::new());
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= seeds {
                    break;
                }
                let seed = self.first.wrapping_add(index);
                let run = guarded(setup, seed, false);
                tally.add(&run.tally);
                failures.extend(run.failure.map(|why| Failure { seed, why }));
            }
            let mut report = report.lock().expect("no worker panics");
            report.tally.add(&tally);
            report.failures.append(&mut failures);
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        let mut report = report.into_inner().expect("no worker panics");
        report.failures.sort_unstable_by_key(|failure| failure.seed);
        report
    }
}

/// A run that panics has broken a rule too.
fn guarded(setup: Setup, seed: u64, traced: bool) -> Run {
    panic::catch_unwind(AssertUnwindSafe(|| run(setup, seed, traced))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let why = format!("panic: {}", text.unwrap_or_default());
        Run { tally: Tally::default(), failure: Some(why), trace: None }
    })
}
