//! Measures one cell in this process, which does nothing else.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::cell::{Caches, Cell};
use super::cpu::{self, Walk};
use super::job::{Bench, Job};
use super::pair::CONNECTIONS;
use crate::experiment::{Figures, Spread};
use crate::net::sys;

/// Commands that are measured at once: 40, as in the paper, in waves of one for each connection.
const WAVES: usize = 5;
/// Commands in a measurement with callgrind.
pub(super) const COUNTED_COMMANDS: usize = WAVES * CONNECTIONS;

/// Cycles of a command, on median.
pub(super) const CYCLES: &str = "cycles";
/// The rate of the counter.
pub(super) const CYCLES_PER_SECOND: &str = "cycles_per_second";
/// The core's cycles for each of the counter's.
pub(super) const CORE_CYCLES: &str = "core_cycles_per_cycle";

/// Measures `times` times 40 commands in cycles.
pub(super) fn cycles(cell: &Cell, times: usize) -> Result<Figures> {
    keep_to_one_core()?;
    // Containers may forbid it; then other load disturbs more.
    let _ = sys::run_first(sys::Urgency::Measured);
    cell.digest.put_in_force()?;
    let overhead = Spread::of((0..1000).map(|_| elapsed(|| ()).1)).context("a measurement of nothing")?.median;
    let mut found = Vec::with_capacity(times * COUNTED_COMMANDS);
    for _ in 0..times * WAVES {
        let (mut bench, mut jobs) = wave(cell)?;
        for job in &mut jobs {
            set_caches(cell.caches, job)?;
            let (outcome, cycles) = elapsed(|| bench.counted(job));
            found.push(cycles - overhead);
            job.check(outcome, cell.len)?;
        }
    }
    let spread = Spread::of(found).context("a measurement of some commands")?;
    Ok(Figures::from([
        (CYCLES.into(), spread.median),
        (CYCLES_PER_SECOND.into(), cpu::cycles_per_second()),
        (CORE_CYCLES.into(), cpu::core_cycles_per_cycle()),
    ]))
}

/// Does the same once, to be counted by callgrind. Its caches cannot be emptied of the state alone; so all is put out
/// of them, and then another session does the same, which brings back what is no state: constants, tables and the
/// stack.
pub(super) fn under_callgrind(cell: &Cell) -> Result<()> {
    cell.digest.put_in_force()?;
    let walk = Walk::new();
    for _ in 0..WAVES {
        let (mut bench, mut jobs) = wave(cell)?;
        let mut others = if cell.caches == Caches::Warm { None } else { Some(wave(cell)?) };
        for (number, job) in jobs.iter_mut().enumerate() {
            if let Some((other, before)) = &mut others {
                walk.empty_caches();
                let outcome = other.do_job(&mut before[number]);
                before[number].check(outcome, cell.len)?;
            }
            warm_data(cell.caches, job);
            let outcome = bench.counted(job);
            job.check(outcome, cell.len)?;
        }
    }
    Ok(())
}

/// A session with a command for each connection, about to be measured. Sessions grow with their first commands, so each
/// connection has had one before. A session has one wave, because commands that are not answered add up, and one with
/// many under way does not spread them round robin.
fn wave(cell: &Cell) -> Result<(Bench, Vec<Job>)> {
    let mut bench = Bench::new(cell.work)?;
    for job in &mut prepared(&mut bench, cell)? {
        let outcome = bench.do_job(job);
        job.check(outcome, cell.len)?;
    }
    let jobs = prepared(&mut bench, cell)?;
    Ok((bench, jobs))
}

fn prepared(bench: &mut Bench, cell: &Cell) -> Result<Vec<Job>> {
    (0..CONNECTIONS).map(|_| bench.prepare(cell.work, cell.len)).collect()
}

/// Brings state and data to where the cell wants them.
fn set_caches(caches: Caches, job: &Job) -> Result<()> {
    if caches != Caches::Warm {
        flush(&cpu::heap()?);
    }
    if caches == Caches::Cold {
        job.data().for_each(|lines| flush(&lines));
    }
    warm_data(caches, job);
    Ok(())
}

fn warm_data(caches: Caches, job: &Job) {
    if caches == Caches::Cold {
        job.packet_headers().for_each(|lines| warm(&lines));
    } else {
        job.data().for_each(|lines| warm(&lines));
    }
}

#[expect(unsafe_code, reason = "the lines of jobs and of the heap are mapped")]
fn flush(lines: &cpu::Lines) {
    // SAFETY: the heap is mapped, and so are the buffers of a job that is not done.
    unsafe { cpu::flush(lines) }
}

#[expect(unsafe_code, reason = "the lines of jobs are mapped")]
fn warm(lines: &cpu::Lines) {
    // SAFETY: the buffers of a job that is not done are mapped, and no other thread works with them.
    unsafe { cpu::warm(lines) }
}

/// Runs `work`, and gives the cycles that it took, with those of the measurement.
#[inline]
fn elapsed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let before = cpu::begin();
    let result = work();
    (result, (cpu::end() - before) as f64)
}

/// The last core that this process may use: the system's own work is mostly on the first.
fn keep_to_one_core() -> Result<()> {
    let allowed = sched_getaffinity(None).context("cannot ask for the cores of this process")?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu)).context("no core to run on")?;
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one).context("cannot keep to one core")
}
