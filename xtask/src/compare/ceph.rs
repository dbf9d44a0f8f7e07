//! Disks in Ceph: the gateway beside librbd without one, and beside `qemu-nbd` with its driver for RBD.
//!
//! The cluster is one of `cargo xtask ceph`, with all data in memory. Cluster, gateway and clients share both CPUs, so
//! what the gateway takes is missing to the cluster. Nothing caches: a write is answered when the cluster has it. Each
//! party has an image of its own with the same bytes.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::cells::Initiator;
use super::child::Child;
use super::contestant::{self, Load, Lunette, START_LIMIT, Stage, lunette};
use super::disks::DiskFile;
use super::failover;
use super::fio::{self, Job};
use super::measure::limit;
use super::statistics::Spread;
use super::table::{Goal, Row};
use crate::ceph::Cluster;
use crate::process::{self, target_dir};

/// Our speed should be at least this, beside `rbd bench`.
const SOLID_SHORT: f64 = 0.8;
const SOLID_LONG: f64 = 0.9;
/// The CPU time of `qemu-nbd` should be at least this, beside the gateway's.
const SOLID_CPU: f64 = 2.0;

/// The load.
struct Course {
    name: &'static str,
    writes: bool,
    len_bytes: u32,
    depth: u32,
    /// `rbd bench` has no limit of time, so it makes this many for each second of a turn.
    requests_per_s: u32,
    solid: f64,
}

const COURSES: [Course; 4] = [
    Course { name: "RBD, 4 KiB random reads", writes: false, ..SHORT },
    Course { name: "RBD, 4 KiB random writes", writes: true, ..SHORT },
    Course { name: "RBD, 64 KiB random reads", writes: false, ..LONG },
    Course { name: "RBD, 64 KiB random writes", writes: true, ..LONG },
];

const SHORT: Course =
    Course { name: "", writes: false, len_bytes: 4 << 10, depth: 32, requests_per_s: 8000, solid: SOLID_SHORT };
const LONG: Course =
    Course { name: "", writes: false, len_bytes: 64 << 10, depth: 16, requests_per_s: 4000, solid: SOLID_LONG };

impl Course {
    fn mode(&self) -> &'static str {
        if self.writes { "randwrite" } else { "randread" }
    }
}

/// The figures of all rounds under one load.
#[derive(Default)]
struct Figures {
    direct_iops: Vec<f64>,
    gateway_iops: Vec<f64>,
    gateway_cpu_us: Vec<f64>,
    qemu_iops: Vec<f64>,
    qemu_cpu_us: Vec<f64>,
}

impl Figures {
    fn rows(&self, course: &Course) -> [Row; 5] {
        let row = |what: &str, over: &[f64], under: &[f64], goal| {
            Row::new(format!("{}, {what}", course.name), Spread::of_ratio(over, under), "", goal)
        };
        let shown = |what: &str, values: &[f64]| {
            Row::new(format!("{}, {what}", course.name), Spread::of(values.iter().copied()), "", Goal::Nothing)
        };
        let at_least = |solid| Goal::AtLeast { solid, aim: None };
        [
            row("speed: gateway ÷ rbd bench", &self.gateway_iops, &self.direct_iops, at_least(course.solid)),
            row("speed: gateway ÷ qemu-nbd", &self.gateway_iops, &self.qemu_iops, Goal::Nothing),
            row("server's CPU time: qemu-nbd ÷ gateway", &self.qemu_cpu_us, &self.gateway_cpu_us, at_least(SOLID_CPU)),
            shown("gateway, requests a second", &self.gateway_iops),
            shown("gateway, CPU time of a request in us", &self.gateway_cpu_us),
        ]
    }
}

/// Starts a cluster, measures, and ends the cluster.
pub(super) fn measure(stage: &Stage, rounds: u32, seconds: u32) -> Result<Vec<Row>> {
    let folder = target_dir().join("ceph-compare");
    if let Ok(left) = Cluster::at(&folder) {
        left.stop()?;
    }
    let cluster = Cluster::start(&folder)?;
    let measured = measure_on(&cluster, stage, rounds, seconds).and_then(|mut rows| {
        rows.extend(failover::measure(&cluster, rounds)?);
        Ok(rows)
    });
    cluster.stop()?;
    measured
}

fn measure_on(cluster: &Cluster, stage: &Stage, rounds: u32, seconds: u32) -> Result<Vec<Row>> {
    let sockets = tempfile::tempdir()?;
    let source = DiskFile::create("rbd")?;
    for image in ["direct", "gateway", "qemu"] {
        process::run(cluster.program("rbd").args(["import", "--no-progress"]).arg(source.path()).arg(image))?;
    }
    let gateway = Lunette::start_image(stage, "serve-rbd", &image_url(cluster, "gateway"))?;
    let qemu = QemuNbd::start(stage, cluster, &sockets)?;
    let mut all = COURSES.map(|course| (course, Figures::default()));
    for round in 1..=rounds {
        eprintln!("RBD, round {round} of {rounds}");
        for (course, figures) in &mut all {
            figures.direct_iops.push(run_direct(stage, cluster, course, seconds).context("rbd bench")?);
            let (iops, cpu_us) = run_gateway(stage, &gateway, course, seconds).context("the gateway")?;
            figures.gateway_iops.push(iops);
            figures.gateway_cpu_us.push(cpu_us);
            let (iops, cpu_us) = qemu.run(stage, course, seconds).context("qemu-nbd")?;
            figures.qemu_iops.push(iops);
            figures.qemu_cpu_us.push(cpu_us);
        }
    }
    Ok(all.iter().flat_map(|(course, figures)| figures.rows(course)).collect())
}

/// The name of an image for our programs.
fn image_url(cluster: &Cluster, image: &str) -> String {
    format!("rbd:rbd/{image}?conf={}", cluster.configuration().display())
}

/// librbd in the client's own process.
fn run_direct(stage: &Stage, cluster: &Cluster, course: &Course, seconds: u32) -> Result<f64> {
    let total = u64::from(course.len_bytes) * u64::from(course.requests_per_s) * u64::from(seconds);
    let command = cluster.program("rbd");
    let mut arguments: Vec<OsString> = command.get_args().map(Into::into).collect();
    arguments.extend(["--rbd-cache=false", "bench", "--io-pattern", "rand", "direct"].map(Into::into));
    let numbers = [("type", if course.writes { "write" } else { "read" }.to_owned()), ("total", total.to_string())];
    let loads = [("size", course.len_bytes.to_string()), ("threads", course.depth.to_string())];
    arguments.extend(numbers.into_iter().chain(loads).map(|(key, value)| format!("--io-{key}={value}").into()));
    let bench = stage.start("rbd-bench", stage.both_cpus(), Path::new("rbd"), arguments)?;
    // A machine on which Ceph is slower takes longer.
    let printed = bench.finish(limit(seconds) + Duration::from_mins(1))?.stdout;
    bench_iops(&printed).with_context(|| format!("rbd bench prints no rate: {printed}"))
}

/// Requests a second in the last line of `rbd bench`.
fn bench_iops(printed: &str) -> Option<f64> {
    printed.lines().last()?.split_once("ops/sec: ")?.1.split_ascii_whitespace().next()?.parse().ok()
}

fn run_gateway(stage: &Stage, gateway: &Lunette, course: &Course, seconds: u32) -> Result<(f64, f64)> {
    let before = gateway.child.cpu()?;
    let arguments = [
        ("--rw", course.mode().to_owned()),
        ("--bs", course.len_bytes.to_string()),
        ("--depth", course.depth.to_string()),
        ("--time", seconds.to_string()),
    ];
    let words = arguments.iter().flat_map(|(key, value)| [(*key).into(), value.into()]);
    let words = ["bench".into(), OsString::from(&gateway.url), "--json".into()].into_iter().chain(words).collect();
    let printed = stage.start("bench-rbd", stage.both_cpus(), &lunette(), words)?.finish(limit(seconds))?.stdout;
    let load = contestant::initiator_load(Initiator::Lunette, &printed, seconds)?;
    per_request(&load, gateway.child.cpu()?.saturating_sub(before))
}

/// Requests a second, and the server's CPU time for each in microseconds.
fn per_request(load: &Load, cpu: Duration) -> Result<(f64, f64)> {
    anyhow::ensure!(load.ios > 0.0, "no request was answered");
    Ok((load.iops, cpu.as_secs_f64() * 1e6 / load.ios))
}

/// `qemu-nbd` over an image.
struct QemuNbd {
    child: Child,
    uri: OsString,
}

impl QemuNbd {
    fn start(stage: &Stage, cluster: &Cluster, folder: &TempDir) -> Result<Self> {
        let socket = folder.path().join("qemu");
        let image = format!("rbd:rbd/qemu:conf={}", cluster.configuration().display());
        let arguments = ["--persistent", "--format=raw", "--cache=none", "--socket"].map(OsString::from);
        let arguments = arguments.into_iter().chain([socket.clone().into(), image.into()]).collect();
        let mut child = stage.start("qemu-nbd", stage.both_cpus(), Path::new("qemu-nbd"), arguments)?;
        child.wait_until(START_LIMIT, |_| Ok(UnixStream::connect(&socket).ok()))?;
        Ok(Self { child, uri: format!("nbd+unix:///?socket={}", socket.display()).into() })
    }

    fn run(&self, stage: &Stage, course: &Course, seconds: u32) -> Result<(f64, f64)> {
        let job = Job { mode: course.mode(), len_bytes: course.len_bytes, depth: course.depth };
        let before = self.child.cpu()?;
        let load = fio::run(stage, &job, seconds, &self.uri)?;
        per_request(&load, self.child.cpu()?.saturating_sub(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_stands_in_the_last_line() {
        let printed = "bench  type read io_size 4096\n  SEC       OPS   OPS/SEC\n    1     99    98.5   1 MiB/s\n\
                       elapsed: 2   ops: 16000   ops/sec: 7321.35   bytes/sec: 28 MiB/s\n";
        assert_eq!(bench_iops(printed), Some(7321.35));
        assert_eq!(bench_iops("rbd: error opening image\n"), None);
    }

    #[test]
    fn a_gateway_that_is_as_fast_and_cheaper_meets_its_goals() {
        let figures = Figures {
            direct_iops: vec![100.0],
            gateway_iops: vec![90.0],
            gateway_cpu_us: vec![10.0],
            qemu_iops: vec![60.0],
            qemu_cpu_us: vec![25.0],
        };
        let values = figures.rows(&COURSES[0]).map(|row| row.value.map(|value| value.median));
        assert_eq!(values, [Some(0.9), Some(1.5), Some(2.5), Some(90.0), Some(10.0)]);
    }
}
