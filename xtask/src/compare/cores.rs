//! The CPU time that a request costs a target with two cores, beside one core.
//!
//! There are only two CPUs, so each core shares its CPU with the initiator that it answers, and so does the single
//! core. The difference is what two cores cost each other.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::cells::{self, Cell, Initiator, OURS};
use super::contestant::{self, Lunette, Stage};
use super::measure::{DISK_LEN, limit};

/// The load of the initiators.
const LOAD: Cell = cells::read(OURS, 4);

/// The time between the starts of two initiators. It fixes the order of their logins, by which sessions are spread over
/// the cores.
const STAGGER: Duration = Duration::from_millis(200);

/// Microseconds of target CPU time for each request, in each round.
#[derive(Default)]
pub(super) struct Cores {
    pub(super) one_us: Vec<f64>,
    pub(super) two_us: Vec<f64>,
}

impl Cores {
    /// Measures on separate servers.
    pub(super) fn measure(stage: &Stage, rounds: u32, seconds: u32) -> Result<Self> {
        let cpus = [stage.cpus.target, stage.cpus.initiator];
        let one = Lunette::start_on(stage, "serve-one-core", DISK_LEN, &cpus[..1])?;
        let two = Lunette::start_on(stage, "serve-two-cores", DISK_LEN, &cpus)?;
        let mut cores = Self::default();
        for _ in 0..rounds {
            cores.one_us.push(cpu_us(stage, &one, &cpus[..1], seconds)?);
            cores.two_us.push(cpu_us(stage, &two, &cpus, seconds)?);
        }
        Ok(cores)
    }
}

/// Runs an initiator on each of `cpus`.
fn cpu_us(stage: &Stage, server: &Lunette, cpus: &[usize], seconds: u32) -> Result<f64> {
    let before = server.child.cpu()?;
    let mut running = Vec::new();
    for cpu in cpus {
        running.push(contestant::start_bench(stage, &format!("bench-on-{cpu}"), *cpu, &LOAD, seconds, &server.url)?);
        thread::sleep(STAGGER);
    }
    let mut ios = 0.0;
    for bench in running {
        let ended = bench.finish(limit(seconds))?;
        ios += contestant::initiator_load(Initiator::Lunette, &ended.stdout, seconds)?.ios;
    }
    Ok(server.child.cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / ios)
}
