//! `cargo xtask profile`: the share of CPU time of each layer, on both sides, for reads and writes, with and without
//! digests and zero-copy.
//!
//! `perf` samples both processes by the CPU's clock while a load runs; the functions are sorted into layers by their
//! names. So a function that the compiler has inlined counts for its caller.

mod class;
mod samples;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::compare;
use crate::compare::cells::{
    Cell, Direction, Disk, Initiator, OURS, OURS_FILE, OURS_ZERO_COPY, Pair, Target, digested, read, write,
};
use crate::compare::contestant::{self, Lunette, Stage};
use crate::compare::disks::Disks;
use crate::compare::measure::OurTargets;
use crate::compare::system::{CONGESTION_CONTROL, CongestionControl, Cpus, Interrupt};
use crate::packages;
use crate::process::{self, cargo};
use class::Class;
use samples::Samples;

/// The time from the start of the load to the first sample: by then the login is over, and the window is full.
const WARM_UP: Duration = Duration::from_millis(500);

/// Samples a second; a prime, so that the samples do not fall into step with periodic work.
const FREQUENCY: u32 = 1999;

/// The longest time from the end of a load to the end of its process.
const END_LIMIT: Duration = Duration::from_secs(20);

/// The share of CPU time of each layer.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds that each load is sampled.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// The samples of one process during one load.
struct Side {
    samples: Samples,
    /// The busy part of its CPU, 0 to 1.
    busy: f64,
    cpu_us_per_io: f64,
}

struct Profile {
    cell: Cell,
    target: Side,
    initiator: Side,
}

/// Profiles all loads and prints two tables, one for each side.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::provide_for_profile()?;
    process::run(&mut cargo(["build", "--locked", "--release", "--package", "lunette"]))?;
    let interrupt = Interrupt::on_signals()?;
    let stage = Stage { folder: compare::folder()?, cpus: Cpus::choose()?, interrupt };
    let _congestion_control = CongestionControl::pin()?;
    let targets = OurTargets::start(&stage, &Disks::create()?)?;
    let mut profiles = Vec::new();
    for cell in cells() {
        eprintln!("{cell}");
        let target = targets.find(disk(&cell));
        profiles.push(profile(&stage, target, cell, arguments.seconds).with_context(|| cell.to_string())?);
    }
    if arguments.json {
        print_json(&profiles);
    } else {
        println!(
            "congestion control {CONGESTION_CONTROL}; each side on a CPU of its own; load average {}",
            compare::load()
        );
        print_table("target, % of its CPU", &profiles, |profile| &profile.target);
        print_table("initiator, % of its CPU", &profiles, |profile| &profile.initiator);
    }
    Ok(ExitCode::SUCCESS)
}

fn cells() -> Vec<Cell> {
    let plain = [read(OURS, 4), read(OURS, 256), write(OURS, 4), write(OURS, 256)];
    let of_memory = plain.into_iter().flat_map(|cell| [cell, digested(cell)]);
    of_memory.chain([read(OURS_FILE, 256), read(OURS_ZERO_COPY, 256)]).collect()
}

/// The disk that the target serves.
fn disk(cell: &Cell) -> Disk {
    match cell.pair {
        Pair::Iscsi(_, Target::Lunette(disk)) => disk,
        _ => Disk::Memory,
    }
}

fn profile(stage: &Stage, target: &Lunette, cell: Cell, seconds: u32) -> Result<Profile> {
    // The load begins before the first sample and ends after the last one.
    let load_seconds = seconds + 2;
    let initiator = contestant::start_initiator(stage, Initiator::Lunette, &cell, load_seconds, &target.url)?;
    thread::sleep(WARM_UP);
    let ids = [target.child.id(), initiator.id()];
    let data = stage.folder.join("perf.data");
    let before = [target.child.cpu()?, initiator.cpu()?];
    let begin = Instant::now();
    record(ids, seconds, &data)?;
    let wall = begin.elapsed();
    let after = [target.child.cpu()?, initiator.cpu()?];
    let ended = initiator.finish(Duration::from_secs(load_seconds.into()) + END_LIMIT)?;
    let load = contestant::initiator_load(Initiator::Lunette, &ended.stdout, load_seconds)?;
    let script = script(&data)?;
    let side = |index: usize| {
        let busy = (after[index].saturating_sub(before[index])).as_secs_f64() / wall.as_secs_f64();
        Side { samples: Samples::of(&script, ids[index]), busy, cpu_us_per_io: busy * 1e6 / load.iops }
    };
    let profile = Profile { cell, target: side(0), initiator: side(1) };
    if profile.target.samples.total() == 0 || profile.initiator.samples.total() == 0 {
        bail!("perf has taken no samples; see kernel.perf_event_paranoid");
    }
    Ok(profile)
}

/// Records samples of these processes in a file.
fn record(ids: [u32; 2], seconds: u32, data: &Path) -> Result<()> {
    let pids = format!("{},{}", ids[0], ids[1]);
    let mut command = Command::new("perf");
    command.args(["record", "--quiet", "--event", "cpu-clock", "--freq", &FREQUENCY.to_string(), "--pid", &pids]);
    command.arg("--output").arg(data).args(["--", "sleep", &seconds.to_string()]);
    let output = command.stdin(Stdio::null()).output().context("cannot start perf")?;
    if !output.status.success() {
        bail!("perf record: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The samples, one on each line.
fn script(data: &Path) -> Result<String> {
    let mut command = Command::new("perf");
    command.args(["script", "--fields", "pid,ip,sym,dso", "--input"]).arg(data);
    let output = command.stdin(Stdio::null()).output().context("cannot start perf")?;
    if !output.status.success() {
        bail!("perf script: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn title(cell: &Cell) -> String {
    let direction = if cell.direction == Direction::Read { "rd" } else { "wr" };
    let digests = if cell.digests { "+crc" } else { "" };
    let disk = match disk(cell) {
        Disk::Memory => "",
        Disk::File => " file",
        Disk::ZeroCopy => " zc",
        Disk::Quanta => " quanta",
    };
    format!("{direction} {}K{digests}{disk}", cell.len / 1024)
}

fn print_table(name: &str, profiles: &[Profile], side: impl Fn(&Profile) -> &Side) {
    println!("\n{name:<26}{}", line(profiles.iter().map(|profile| title(&profile.cell))));
    for class in Class::ALL {
        let share = |profile: &Profile| 100.0 * side(profile).samples.share(class) * side(profile).busy;
        println!("{class:<26}{}", line(profiles.iter().map(|profile| format!("{:.1}", share(profile)))));
    }
    let idle = |profile: &Profile| 100.0 * (1.0 - side(profile).busy).max(0.0);
    println!("{:<26}{}", "idle, and others", line(profiles.iter().map(|profile| format!("{:.1}", idle(profile)))));
    let cpu = |profile: &Profile| format!("{:.2}", side(profile).cpu_us_per_io);
    println!("{:<26}{}", "CPU us per request", line(profiles.iter().map(cpu)));
}

fn line(columns: impl Iterator<Item = String>) -> String {
    columns.fold(String::new(), |line, column| format!("{line}{column:>12}"))
}

fn print_json(profiles: &[Profile]) {
    for profile in profiles {
        for (name, side) in [("target", &profile.target), ("initiator", &profile.initiator)] {
            let shares = Class::ALL.map(|class| (class.to_string(), side.samples.share(class) * side.busy));
            let layers: serde_json::Map<_, _> = shares.into_iter().map(|(name, share)| (name, share.into())).collect();
            let row = serde_json::json!({
                "side": name,
                "load": title(&profile.cell),
                "busy": side.busy,
                "cpu_us_per_request": side.cpu_us_per_io,
                "samples": side.samples.total(),
                "layers": layers,
            });
            println!("{row}");
        }
    }
}
