//! Gateways to one disk: the machine of `lunette-gateway` as it ships, for two or three gateways, over a cluster that
//! delays everything.
//!
//! Gateways are killed and started again, stopped and woken up, and lose the cluster or their initiators; writes are
//! late, and OSDs learn late of the blocklist. Initiators read and write blocks, and change a reservation that excludes
//! others, through any gateway. An oracle checks
//!
//! - each block, and the reservation: one order of all requests explains all answers, so no answered write is lost and
//!   no late one comes through;
//! - that no write lands that began after the answer to a reservation that excludes it, unless its client is on the
//!   blocklist and its OSD does not know that yet;
//! - that in the end, when all faults are over, one gateway has the disk and all answer.

mod cluster;
mod gateway;
mod history;
mod world;

use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::Duration;

use world::World;

/// The counts of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatewayTally {
    /// Runs.
    pub runs: u64,
    /// Commands that were answered GOOD.
    pub good: u64,
    /// Commands that ended otherwise, or never.
    pub other: u64,
    /// Copies of writes that had no answer, through another gateway or another client of the same one.
    pub sent_again: u64,
    /// Gateways that were killed, stopped or cut off.
    pub faults: u64,
    /// Times a gateway became the owner.
    pub moves: u64,
    /// Clients put on the blocklist.
    pub fenced: u64,
    /// The longest time without an owner while at least one gateway had no fault.
    pub longest_gap: Duration,
}

impl GatewayTally {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.good += other.good;
        self.other += other.other;
        self.sent_again += other.sent_again;
        self.faults += other.faults;
        self.moves += other.moves;
        self.fenced += other.fenced;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
}

/// The end of a run.
#[derive(Debug, Clone)]
pub struct GatewayRun {
    /// The counts of the run.
    pub tally: GatewayTally,
    /// The rule that it broke.
    pub failure: Option<String>,
    /// All that happened, when it was wanted.
    pub trace: String,
}

/// One run: the same seed gives the same one.
pub fn run_gateways(seed: u64, traced: bool) -> GatewayRun {
    let run = panic::catch_unwind(AssertUnwindSafe(|| World::new(seed, traced).run()));
    run.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let failure = Some(format!("panic: {}", text.unwrap_or_default()));
        GatewayRun { tally: GatewayTally::default(), failure, trace: String::new() }
    })
}

/// Runs of these seeds, on all cores: what happened, and those that broke a rule, by seed.
pub fn gateway_campaign(first: u64, seeds: u64) -> (GatewayTally, Vec<(u64, String)>) {
    let workers = thread::available_parallelism().map_or(1, usize::from) as u64;
    let work = |worker: u64| {
        let (mut tally, mut failures) = (GatewayTally::default(), Vec::new());
        for seed in (worker..seeds).step_by(workers as usize).map(|seed| first.wrapping_add(seed)) {
            let run = run_gateways(seed, false);
            tally.add(&run.tally);
            failures.extend(run.failure.map(|why| (seed, why)));
        }
        (tally, failures)
    };
    let (mut tally, mut failures) = (GatewayTally::default(), Vec::new());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        for worker in workers {
            let (part, failed) = worker.join().expect("runs catch panics");
            tally.add(&part);
            failures.extend(failed);
        }
    });
    failures.sort_unstable();
    (tally, failures)
}
