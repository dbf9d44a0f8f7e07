//! Runs cells in interleaved rounds and records the resources that each process uses.

use std::time::Duration;

use anyhow::{Context, Result};

use super::cells::{Cell, Disk, Initiator, Pair, Target};
use super::child::Child;
use super::contestant::{self, Load, Lunette, Stage, TcpServer, Tgt};
use super::disks::Disks;

/// The longest time from the end of a run to the end of its processes.
const END_LIMIT: Duration = Duration::from_secs(20);

/// The length of each target's disk in bytes.
pub(crate) const DISK_LEN: u64 = 256 << 20;

/// The length of the disk of quanta in bytes: a whole number of blocks, about 64 MiB.
pub(crate) const QUANTA_LEN: u64 = 16_128 * super::cells::QUANTUM_BLOCK_LEN as u64;

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    pub(crate) latency_us: Option<f64>,
    /// User and system time of the answering process for each request, in microseconds.
    pub(crate) target_cpu_us: f64,
    /// User and system time of the requesting process for each request, in microseconds, with its start and login.
    pub(crate) initiator_cpu_us: f64,
}

impl Sample {
    fn new(load: &Load, target_cpu: Duration, initiator_cpu: Duration) -> Self {
        let per_io = |cpu: Duration| cpu.as_secs_f64() * 1e6 / load.ios;
        Self {
            iops: load.iops,
            latency_us: load.latency_us,
            target_cpu_us: per_io(target_cpu),
            initiator_cpu_us: per_io(initiator_cpu),
        }
    }
}

/// All runs of one cell, one for each round.
pub(crate) struct Measured {
    pub(crate) cell: Cell,
    pub(crate) samples: Vec<Sample>,
}

impl Measured {
    /// One figure of each round; rounds without it are left out.
    pub(crate) fn figures(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        self.samples.iter().map(figure).collect::<Option<_>>().unwrap_or_default()
    }
}

/// Our targets, one for each kind of disk.
pub(crate) struct OurTargets {
    memory: Lunette,
    file: Lunette,
    zero_copy: Lunette,
    quanta: Lunette,
}

impl OurTargets {
    pub(crate) fn start(stage: &Stage, disks: &Disks) -> Result<Self> {
        let memory = Lunette::start(stage, "serve", DISK_LEN)?;
        memory.fill(stage, disks.tgt.path())?;
        let file = Lunette::start_file(stage, "serve-file", disks.file.path(), false)?;
        let zero_copy = Lunette::start_file(stage, "serve-zero-copy", disks.zero_copy.path(), true)?;
        let quanta = Lunette::start_quanta(stage, "serve-quanta", QUANTA_LEN)?;
        quanta.fill(stage, disks.quanta.path())?;
        Ok(Self { memory, file, zero_copy, quanta })
    }

    pub(crate) fn find(&self, disk: Disk) -> &Lunette {
        match disk {
            Disk::Memory => &self.memory,
            Disk::File => &self.file,
            Disk::ZeroCopy => &self.zero_copy,
            Disk::Quanta => &self.quanta,
        }
    }
}

/// The targets, which run from the first round to the last.
pub(crate) struct Targets {
    tgt: Tgt,
    ours: OurTargets,
}

impl Targets {
    /// Starts all targets, over the same bytes.
    pub(crate) fn start(stage: &Stage, disks: &Disks) -> Result<Self> {
        let ours = OurTargets::start(stage, disks)?;
        Ok(Self { tgt: Tgt::start(stage, disks.tgt.path())?, ours })
    }

    /// The process and the logical unit's URL.
    fn find(&self, target: Target) -> (&Child, &str) {
        match target {
            Target::Tgt => (&self.tgt.child, &self.tgt.url),
            Target::TunedTgt => (&self.tgt.child, &self.tgt.tuned_url),
            Target::Lunette(disk) => {
                let server = self.ours.find(disk);
                (&server.child, &server.url)
            }
        }
    }
}

/// Runs every cell once in each round, so that a disturbance of the machine affects all alike.
pub(crate) fn rounds(
    stage: &Stage,
    targets: &Targets,
    cells: &[Cell],
    rounds: u32,
    seconds: u32,
) -> Result<Vec<Measured>> {
    let mut all: Vec<_> = cells.iter().map(|cell| Measured { cell: *cell, samples: Vec::new() }).collect();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for measured in &mut all {
            let sample = run(stage, targets, &measured.cell, seconds).with_context(|| measured.cell.to_string())?;
            measured.samples.push(sample);
        }
    }
    Ok(all)
}

fn run(stage: &Stage, targets: &Targets, cell: &Cell, seconds: u32) -> Result<Sample> {
    match cell.pair {
        Pair::Tcp => run_tcp(stage, cell, seconds),
        Pair::Iscsi(initiator, target) => run_iscsi(stage, targets.find(target), initiator, cell, seconds),
    }
}

fn run_iscsi(
    stage: &Stage,
    (target, url): (&Child, &str),
    initiator: Initiator,
    cell: &Cell,
    seconds: u32,
) -> Result<Sample> {
    let before = target.cpu()?;
    let ended = contestant::start_initiator(stage, initiator, cell, seconds, url)?.finish(limit(seconds))?;
    let target_cpu = target.cpu()?.saturating_sub(before);
    let load = contestant::initiator_load(initiator, &ended.stdout, seconds)?;
    Ok(Sample::new(&load, target_cpu, ended.cpu))
}

fn run_tcp(stage: &Stage, cell: &Cell, seconds: u32) -> Result<Sample> {
    let server = TcpServer::start(stage, cell)?;
    let client = contestant::start_tcp(stage, cell, seconds, &server)?.finish(limit(seconds))?;
    let load = contestant::tcp_load(&client.stdout)?;
    let server = server.child.finish(END_LIMIT)?;
    Ok(Sample::new(&load, server.cpu, client.cpu))
}

/// The time limit of a run.
pub(crate) fn limit(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into()) + END_LIMIT
}
