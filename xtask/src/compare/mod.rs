//! `cargo xtask compare`: Lunette beside tgt, libiscsi and plain TCP, and its tools beside qemu-img and nbdkit, in one
//! run; with `--ceph` its disks in Ceph beside librbd and qemu-nbd.
//!
//! A figure of a shared machine means nothing by itself. So all parties take turns in rounds on the same two CPUs, with
//! the same congestion control and the same bytes in memory behind them, and the results are ratios of medians.

pub(crate) mod ceiling;
pub(crate) mod cells;
mod ceph;
pub(crate) mod child;
pub(crate) mod contestant;
mod cores;
pub(crate) mod disks;
mod failover;
pub(crate) mod fio;
pub(crate) mod measure;
mod memory;
mod output;
pub(crate) mod statistics;
pub(crate) mod system;
mod table;
mod tls;
mod tools;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::packages;
use crate::process::{self, cargo, target_dir};
use cells::{CELLS, Cell, MORE_CELLS};
use contestant::{Stage, TGT_SETTINGS};
use cores::Cores;
use disks::Disks;
use measure::{DISK_LEN, Measured, Targets};
use memory::Memory;
use output::Conditions;
pub(crate) use system::cpu_model;
use system::{CONGESTION_CONTROL, CongestionControl, Cpus, Interrupt};
use table::Row;

const ROUNDS: u32 = 10;
const SECONDS: u32 = 2;
const QUICK_ROUNDS: u32 = 3;
const QUICK_SECONDS: u32 = 1;

/// A load average above this disturbs the comparison.
const QUIET_LOAD: f64 = 0.5;

/// Lunette beside tgt, libiscsi and plain TCP, and its tools beside qemu-img and nbdkit.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How often each pair takes its turn [default: 10, with --quick 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds of one turn [default: 2, with --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Less than two minutes: short turns, and only what the ratios need.
    #[arg(long)]
    quick: bool,
    /// Only the tools: `lunette cp` beside qemu-img, `lunette nbd` beside nbdkit.
    #[arg(long, conflicts_with = "quick")]
    tools: bool,
    /// Only disks in Ceph: `lunette serve` beside `rbd bench` and `qemu-nbd`.
    #[arg(long, conflicts_with_all = ["quick", "tools"])]
    ceph: bool,
    /// Only TLS: sessions beside plain ones and stunnel, and NBD beside `qemu-nbd`.
    #[arg(long, conflicts_with_all = ["quick", "tools", "ceph"])]
    tls: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { QUICK_ROUNDS } else { ROUNDS })
    }

    fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(if self.quick { QUICK_SECONDS } else { SECONDS })
    }

    fn cells(&self) -> Vec<Cell> {
        let more: &[Cell] = if self.quick { &[] } else { &MORE_CELLS };
        [&CELLS, more].concat()
    }
}

/// Compares and prints. The exit code does not depend on the ratios, which are for the reader to judge.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::provide_for_comparison()?;
    if arguments.ceph {
        packages::provide_for_ceph()?;
    }
    process::run(&mut cargo(["build", "--locked", "--release", "--package", "lunette", "--package", "xtask"]))?;
    // From here on a signal ends in an error, so that everything below is undone in order.
    let interrupt = Interrupt::on_signals()?;
    let stage = Stage { folder: folder()?, cpus: Cpus::choose()?, interrupt };
    let _congestion_control = CongestionControl::pin()?;
    let mut conditions = conditions(arguments, &stage);
    let (measured, rows) = measure(arguments, &stage)?;
    conditions.push(("load average after", load()));
    if arguments.json {
        output::json_lines(&conditions, &measured, &rows);
    } else {
        output::tables(&conditions, &measured, &rows);
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures what the arguments ask for.
fn measure(arguments: &Arguments, stage: &Stage) -> Result<(Vec<Measured>, Vec<Row>)> {
    let (rounds, seconds) = (arguments.rounds(), arguments.seconds());
    if arguments.ceph {
        return Ok((Vec::new(), ceph::measure(stage, rounds, seconds)?));
    }
    if arguments.tls {
        let rows = [tls::measure(stage, rounds, seconds)?, tools::measure_tls(stage, rounds, seconds)?].concat();
        return Ok((Vec::new(), rows));
    }
    let (measured, mut rows) = if arguments.tools { Default::default() } else { pairs(arguments, stage)? };
    if !arguments.quick {
        rows.extend(tools::measure(stage, rounds, seconds)?);
    }
    Ok((measured, rows))
}

/// Measures the pairs of initiator and target.
fn pairs(arguments: &Arguments, stage: &Stage) -> Result<(Vec<Measured>, Vec<Row>)> {
    let disks = Disks::create()?;
    let memory = Memory::measure(stage)?;
    let targets = Targets::start(stage, &disks)?;
    // The targets have the files open. Removing them now makes sure that they do not stay behind, whatever happens.
    drop(disks);
    let measured = measure::rounds(stage, &targets, &arguments.cells(), arguments.rounds(), arguments.seconds())?;
    drop(targets);
    let cores = Cores::measure(stage, arguments.rounds(), arguments.seconds())?;
    let rows = table::rows(&measured, &memory, &cores);
    Ok((measured, rows))
}

/// The folder for the processes' output.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = target_dir().join("compare");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

fn conditions(arguments: &Arguments, stage: &Stage) -> Conditions {
    let tuned: Vec<_> = TGT_SETTINGS.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let (cpus, rounds, seconds) = (stage.cpus, arguments.rounds(), arguments.seconds());
    if system::load_average().is_some_and(|load| load > QUIET_LOAD) {
        eprintln!("warning: this machine is busy; trust no figure of this comparison");
    }
    vec![
        ("CPU", cpu_model()),
        ("kernel", system::kernel()),
        ("CPUs", format!("targets on {}, initiators on {}", cpus.target, cpus.initiator)),
        ("congestion control", CONGESTION_CONTROL.into()),
        (
            "disks",
            format!(
                "{} MiB of the same bytes; tgt and what is called so: a file on tmpfs, lunette: memory",
                DISK_LEN >> 20
            ),
        ),
        (
            "packages",
            packages::versions(&[
                "tgt",
                "libiscsi-bin",
                "qemu-utils",
                "nbdkit",
                "fio",
                "libnbd-bin",
                "ceph-osd",
                "librbd1",
                "stunnel4",
            ]),
        ),
        ("tgt, tuned", tuned.join(" ")),
        ("rounds", format!("{rounds} of {seconds} s for each pair, interleaved")),
        ("load average before", load()),
    ]
}

pub(crate) fn load() -> String {
    system::load_average().map_or_else(|| "unknown".into(), |load| format!("{load:.2}"))
}
