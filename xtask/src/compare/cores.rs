//! What a request costs a target with two cores, beside one.
//!
//! Two CPUs are all there is, so each core shares its own with the initiator that it answers, and the single core does too.
//! Then what two cores add is what they do to each other.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::cells::{self, Cell, Initiator, OURS};
use super::contestant::{self, Lunette, Stage};
use super::measure::{DISK_LEN, limit};

/// What the initiators do.
const LOAD: Cell = cells::read(OURS, 4);

/// From the start of one initiator to that of the next, which logs in later: sessions go to the cores in this order.
const STAGGER: Duration = Duration::from_millis(200);

/// Microseconds of target CPU for each request, in each round.
#[derive(Default)]
pub(super) struct Cores {
    pub(super) one_us: Vec<f64>,
    pub(super) two_us: Vec<f64>,
}

impl Cores {
    /// Asks servers of its own.
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
