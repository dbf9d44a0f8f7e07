//! Handovers of a server, one after the other, below clients that compare what they read.
//!
//! A round is a `lunette upgrade` at a random moment. In some rounds the successor is killed on its way. Clients may
//! never notice a lost connection, a wrong byte, or a request that fails.
//!
//! - `site` is the server, with its program in a folder of its own.
//! - `clients` are the loads: the project's own client, libiscsi's and QEMU's.
//! - `counters` are those that Prometheus reads, which may not fall.
//! - `killer` ends successors, and `report` collects what the rounds took.

mod clients;
mod counters;
mod killer;
mod report;
mod site;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Parser;
use lunette_testkit::Dice;

use clients::Clients;
use killer::Killer;
pub use report::Report;
use report::{End, Round};
use site::Site;
pub use site::{Program, children};

/// The longest time from one handover to the next, in milliseconds.
const PACE_MS: usize = 300;

/// The share of the time of a handover in which the successor has not taken over yet. Then it opens what remains.
const TAKING: f64 = 0.6;

/// Rounds of handovers.
#[derive(Debug, Parser)]
#[command(name = "lunette-handovers")]
pub struct Arguments {
    /// Rounds: handovers, whether or not the successor is killed.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Rounds in which the successor is killed on its way.
    #[arg(long, value_name = "N", default_value_t = 0)]
    kill: u32,
    /// Another build of the command, which takes turns with this one.
    #[arg(long, value_name = "PATH")]
    with: Option<PathBuf>,
    /// The seed of the moments.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Whether the report should be JSON.
    pub fn json(&self) -> bool {
        self.json
    }
}

/// Makes all rounds. Panics when the server is gone; all other errors are in the report.
pub fn run(arguments: &Arguments) -> Report {
    let Arguments { rounds, kill, with, seed, json: _ } = arguments;
    let mut dice = Dice::new(*seed);
    let mut site = Site::start();
    let builds: Vec<PathBuf> = [Program::built()].into_iter().chain(with.clone()).collect();
    let mut report = Report::default();
    // The first successor has what all later ones have, too: memory that is shared, listeners that were left.
    let mut took = upgrade(&mut site, 0, None, &mut report).unwrap_or_default();
    let at_start = site.size();
    let clients = Clients::start(&site);
    clients.await_all(&site);
    let kills = choose(&mut dice, *rounds, *kill);
    for number in 1..=*rounds {
        // The moment is part of the test.
        thread::sleep(Duration::from_millis(dice.below(PACE_MS) as u64));
        site.program().install(&builds[number as usize % builds.len()]);
        let before = site.counters();
        let killer = kills.contains(&number).then(|| {
            let delay = took.mul_f64(TAKING * f64::from(dice.below(1000) as u32) / 1000.0);
            Killer::start(site.id(), delay)
        });
        took = upgrade(&mut site, number, killer, &mut report).unwrap_or(took);
        report.compare(number, &before, &site.counters());
        report.measure(site.size());
    }
    report.take(clients.end());
    report.compare_sizes(at_start, site.settled(at_start));
    let log = site.stop();
    report.read_log(&log);
    if !report.errors().is_empty() {
        eprintln!("the server's log:\n{log}");
    }
    report
}

/// Makes a handover. Says how long it took, with the start of the successor, unless that was stopped.
fn upgrade(site: &mut Site, number: u32, killer: Option<Killer>, report: &mut Report) -> Option<Duration> {
    let outcome = site.upgrade();
    let was_stopped = killer.is_some();
    let was_killed = killer.is_some_and(Killer::end);
    let took = outcome.as_ref().ok().map(|upgrade| upgrade.took);
    let end = match outcome {
        Ok(upgrade) => End::Taken(upgrade),
        Err(_) if was_killed => End::Killed,
        Err(reason) => End::Refused(reason),
    };
    let round = Round { number, end };
    eprintln!("{round}");
    report.add(round);
    took.filter(|_| !was_stopped)
}

/// Chooses `count` of the rounds.
fn choose(dice: &mut Dice, rounds: u32, count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (1..=rounds).collect();
    let mut chosen = Vec::new();
    while chosen.len() < count as usize && !numbers.is_empty() {
        chosen.push(numbers.swap_remove(dice.below(numbers.len())));
    }
    chosen
}
