//! Faults of two gateways to one disk in Ceph, one after the other, under a load that compares every byte that it
//! reads.
//!
//! A round begins when one gateway is active and the other in standby. The load, `lunette bench --rw verify` over both,
//! runs before the fault and after it; then the gateways have to be whole again. What the load may never see: a wrong
//! byte, or a request that fails.
//!
//! - `kind` names the faults, and `fault` makes them.
//! - `site` is one gateway with its ways to the cluster and to its clients, and `load` the client.
//! - `report` collects what the rounds took.

mod fault;
mod kind;
mod load;
mod report;
mod site;

use std::time::Duration;

use clap::Parser;

use crate::ceph::Ceph;
use crate::process::wait_until;
use kind::Kind;
use load::Load;
pub use report::Report;
use report::Round;
use site::{Access, Site};

/// The longest time that anything may take to be as it should.
const LIMIT: Duration = Duration::from_mins(1);

/// Rounds of faults of two gateways. The cluster is the one that `LUNETTE_CEPH_CONF` names.
#[derive(Debug, Parser)]
#[command(name = "lunette-failover")]
pub struct Arguments {
    /// Rounds, with the faults in turns.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Only this fault.
    #[arg(long, value_enum)]
    only: Option<Kind>,
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

/// Makes all rounds. Panics at the first one in which a promise is broken, with the logs of the gateways.
pub fn run(arguments: &Arguments) -> Report {
    let ceph = Ceph::alone();
    let image = ceph.image(64);
    let mut sites = [1, 2].map(|group| Site::start(&ceph, &image, group));
    let mut report = Report::default();
    let kinds = arguments.only.map_or_else(|| Kind::ALL.to_vec(), |only| vec![only]);
    for (number, kind) in (1..=arguments.rounds).zip(kinds.into_iter().cycle()) {
        let round = round(&ceph, &image.url(), &mut sites, kind);
        eprintln!("round {number} of {}: {round}", arguments.rounds);
        report.add(round);
    }
    sites.into_iter().for_each(Site::stop);
    report
}

fn round(ceph: &Ceph, image: &str, sites: &mut [Site; 2], kind: Kind) -> Round {
    let active = wait_until(LIMIT, || active(sites)).expect("one gateway becomes active, the other one standby");
    let (low, high) = sites.split_at_mut(1);
    let (active, other) = if active == 0 { (&mut low[0], &mut high[0]) } else { (&mut high[0], &mut low[0]) };
    let load = Load::start(&[&*active, &*other], kind.load_s());
    load.await_requests(active);
    let answered = if kind.moves_the_disk() {
        fault::move_disk(kind, image, &load, active, other)
    } else {
        fault::stop_cluster(ceph, &load, active)
    };
    let verified = load.end();
    active.restart();
    Round { kind, answered, longest: verified.longest, requests: verified.requests }
}

/// The number of the active site, when the other one is in standby.
fn active(sites: &[Site; 2]) -> Option<usize> {
    match sites.each_ref().map(Site::access) {
        [Access::Active, Access::Standby] => Some(0),
        [Access::Standby, Access::Active] => Some(1),
        _ => None,
    }
}
