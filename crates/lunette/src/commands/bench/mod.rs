//! `lunette bench`: load on a remote disk, measured and, if asked for, verified.

pub(crate) mod job;
pub(crate) mod medium;
mod pattern;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lunette_initiator::{Counts, Disk, Initiator, Recoveries, Traffic, limits, wait};
use lunette_store::Store;
use serde::Serialize;

use crate::commands::depth::Depth;
use crate::commands::info::paths::PathReport;
use crate::commands::io::PoolIo;
use crate::disks::iscsi::failure::remote_failure;
use crate::disks::iscsi::remote::Remote;
use crate::failure::Failure;
use crate::output;
use crate::size::Size;
use job::{Job, JobError, Plan, Tally};
use medium::{Medium, StoreMedium};

/// The most chunks that a verifying job keeps account of, at five bytes of memory each.
const MAX_VERIFIED_CHUNKS: u64 = 16 << 20;

/// The most requests of one job in flight.
const MAX_DEPTH: usize = 4096;

/// Bytes in flight of a job that measures its depth: half of what a client has for buffers.
const MAX_MEASURED_BYTES: u64 = limits::DEFAULT_BUFFER_BYTES as u64 / 2;

const AFTER_HELP: &str = "\
Everything but read and randread WRITES TO THE DISK and destroys what is there.

verify writes stamped blocks in random order, reads them back while others are written, and compares every byte with what
was written last. It fails at the first wrong one.

Each of --jobs has a session, an event loop and a part of the disk of its own; --connections are those of each session.
CPU time is that of this process, user and system.

After a --warm-up whole rounds are counted, of as many requests as are in flight; where there are none, the requests that ended in
the time, which may be 0. CPU time and the counts of the event loop are those of all requests.

With ?keys=... in the URL the load is that of the encrypted disk's plain text: sealing and opening are part of each request.

Exit codes: 0 done, 1 other failure, 2 bad usage, 3 bad secret or keys, 5 the target cannot be reached, refuses, or the disk
is not ready, 6 a request failed, 7 wrong data.";

/// The kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    #[value(name = "randread")]
    RandRead,
    /// Random writes
    #[value(name = "randwrite")]
    RandWrite,
    /// Random reads and writes
    #[value(name = "randrw")]
    RandRw,
    /// Random writes, and reads that compare
    Verify,
}

impl Mode {
    fn is_random(self) -> bool {
        !matches!(self, Self::Read | Self::Write)
    }

    fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }
}

/// Put load on a remote disk and measure it.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    remote: Remote,
    /// The load
    #[arg(long, value_enum, default_value_t = Mode::RandRead)]
    rw: Mode,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    bs: Size,
    /// Requests in flight, per job [default: as many as fill the path, measured on the way]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_DEPTH as i64))]
    depth: Option<u16>,
    /// Sessions side by side, each with an event loop of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Seconds to run
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    time: u32,
    /// Seconds of load before that, which are not measured: TCP finds the rate of a long path in them; for one job
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = warm_up, conflicts_with = "jobs")]
    warm_up: f64,
    /// Percent of requests that read, for randrw and verify
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    rwmix: u8,
    /// Work on the first SIZE bytes only
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Seed of the offsets and data: equal seeds give equal loads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The longest warm-up, as `--time`.
const MAX_WARM_UP_SECONDS: f64 = 86_400.0;

fn warm_up(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=MAX_WARM_UP_SECONDS).contains(seconds));
    seconds.ok_or_else(|| format!("write seconds from 0 to {MAX_WARM_UP_SECONDS}"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let opened: Vec<_> = (0..arguments.jobs)
        .map(|_| Opened::open(&arguments.remote, arguments.rw.writes()))
        .collect::<Result<_, _>>()?;
    let disks: Vec<_> = opened.iter().map(|opened| opened.disk.clone()).collect();
    let event_loops: Vec<_> = opened.iter().map(|opened| opened.event_loop.clone()).collect();
    let volume = opened.iter().find_map(|opened| opened.volume.clone());
    let plans = plans(arguments, &disks, volume.as_deref())?;
    let mut jobs = Vec::new();
    for (plan, opened) in plans.into_iter().zip(&opened) {
        jobs.push(Job::new(opened.medium()?, plan));
    }
    let counts_before: Vec<(Counts, Traffic)> = event_loops.iter().map(counted).collect();
    let cpu_before = cpu_time();
    let ends: Vec<Result<Tally, JobError>> = thread::scope(|scope| {
        let threads: Vec<_> = jobs.iter().map(|job| scope.spawn(|| job.run())).collect();
        threads.into_iter().map(|thread| thread.join().expect("a job does not panic")).collect()
    });
    let cpu = cpu_time().saturating_sub(cpu_before);
    let since = event_loops.iter().zip(&counts_before).map(|(event_loop, (counts, traffic))| {
        let now = counted(event_loop);
        (now.0.since(counts), now.1.since(traffic))
    });
    let event_loop = EventLoop::of(since);
    let recoveries = recoveries(&disks)?;
    let mut total = Tally::empty();
    for end in ends {
        total.add(&end.map_err(job_failure)?);
    }
    let mut report = Report::new(arguments, &total, cpu, event_loop, recoveries);
    report.paths = disks.iter().flat_map(Disk::paths).map(|path| PathReport::new(&path)).collect();
    print(&report, arguments.json)
}

/// The counts of an event loop and of its sessions so far.
fn counted(initiator: &Initiator) -> (Counts, Traffic) {
    (initiator.counts(), initiator.traffic())
}

fn job_failure(error: JobError) -> Failure {
    match error {
        JobError::Request(error) => remote_failure(error),
        JobError::Store(_) => Failure::Transfer(error.to_string()),
        JobError::WrongData { .. } => Failure::Mismatch(error.to_string()),
    }
}

/// The recoveries of all sessions, by kind; the names are JSON keys.
fn recoveries(disks: &[Disk]) -> Result<BTreeMap<String, u64>, Failure> {
    let mut sum = Recoveries::default();
    for disk in disks {
        sum += wait(disk.session().recoveries()).map_err(remote_failure)?;
    }
    let kinds = sum.kinds().into_iter();
    Ok(kinds.map(|(kind, count)| (kind.to_lowercase().replace(' ', "_"), count)).collect())
}

/// The disk of a job, on an event loop of its own.
struct Opened {
    event_loop: Initiator,
    disk: Disk,
    /// The plain text of the disk, when it is encrypted.
    volume: Option<Arc<dyn Store>>,
}

impl Opened {
    fn open(remote: &Remote, writes: bool) -> Result<Self, Failure> {
        let event_loop = remote.start()?;
        let (disk, volume) = remote.open_encrypted(&event_loop, writes)?;
        Ok(Self { event_loop, disk, volume: volume.map(|volume| volume as _) })
    }

    fn medium(&self) -> Result<Medium, Failure> {
        Ok(match &self.volume {
            None => Medium::Disk(self.disk.clone()),
            Some(volume) => Medium::Store(StoreMedium::new(Arc::clone(volume), PoolIo::start()?)),
        })
    }
}

/// Returns each job an equal part of the disk.
fn plans(arguments: &Arguments, disks: &[Disk], volume: Option<&dyn Store>) -> Result<Vec<Plan>, Failure> {
    let usage = |what: String| Err(Failure::Usage(what));
    let Some(facts) = disks.first().map(Disk::facts) else { return Ok(Vec::new()) };
    let bs = arguments.bs.0;
    let (block_len, disk_bytes, max) = match volume {
        None => {
            let block_len = u64::from(facts.block_len());
            (block_len, facts.len_bytes(), u64::from(disks[0].max_transfer_blocks()) * block_len)
        }
        Some(_) if arguments.jobs > 1 && arguments.rw.writes() => {
            return usage("an encrypted disk has one writer at a time; write with --jobs 1".into());
        }
        Some(volume) => {
            let geometry = volume.geometry();
            (geometry.granularity_bytes.into(), geometry.len_bytes, lunette_buffer::MAX_BUFFER_LEN as u64)
        }
    };
    if bs == 0 || !bs.is_multiple_of(block_len) || bs > max {
        return usage(format!("--bs {bs}: the disk takes multiples of {block_len} up to {max} bytes"));
    }
    if arguments.rw.writes() && facts.read_only {
        return usage("the disk is read only".into());
    }
    let len_bytes = arguments.size.map_or(disk_bytes, |size| size.0.min(disk_bytes));
    let mut chunks = len_bytes / bs / u64::from(arguments.jobs);
    if arguments.rw == Mode::Verify {
        chunks = chunks.min(MAX_VERIFIED_CHUNKS);
    }
    // Chunks that are verified have one request at a time, and one chunk is free for the next.
    let of_chunks = if arguments.rw == Mode::Verify { chunks.saturating_sub(1) } else { chunks };
    let most = of_chunks.min(MAX_DEPTH as u64);
    let affordable = most.min((MAX_MEASURED_BYTES / bs).max(1)) as usize;
    let depth = arguments.depth.map_or(Depth::Measured(affordable), |depth| Depth::Given(depth.into()));
    if depth.most() == 0 || depth.most() as u64 > most {
        return usage(format!("{len_bytes} bytes are too few for {} jobs of this depth and --bs", arguments.jobs));
    }
    let plan = |job: u16| Plan {
        mode: arguments.rw,
        chunk_len: bs as usize,
        depth,
        time: Duration::from_secs(arguments.time.into()),
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        max_requests: u64::MAX,
        read_percent: arguments.rwmix,
        first_chunk: chunks * u64::from(job),
        chunks,
        seed: arguments.seed.wrapping_add(u64::from(job)),
    };
    Ok((0..arguments.jobs).map(plan).collect())
}

/// The CPU time that this process has used so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The figures of a run. Latencies are in microseconds.
#[derive(Serialize)]
struct Report {
    rw: Mode,
    bs: u64,
    depth: usize,
    jobs: u16,
    seconds: f64,
    reads: u64,
    writes: u64,
    verified: u64,
    iops: f64,
    gb_per_s: f64,
    latency_us: Latencies,
    cpu_us_per_io: f64,
    uncounted: u64,
    event_loop: EventLoop,
    /// The number of recoveries of the protocol, by kind. All zero at recovery level 0.
    recoveries: BTreeMap<String, u64>,
    /// The paths at the end, when the URL asks for several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<PathReport>,
}

/// The work of all event loops and their sessions together.
#[derive(Serialize)]
struct EventLoop {
    batches: u64,
    system_calls: u64,
    received_bytes: u64,
    /// The received bytes that the kernel put straight in their place.
    direct_bytes: u64,
    sent_bytes: u64,
    received_pdus: u64,
    sent_pdus: u64,
    /// Copies of received data to its place, without a digest.
    copies: u64,
    copied_bytes: u64,
    /// Copies of received data to its place, digested on the way.
    digested_copies: u64,
    digested_copied_bytes: u64,
    /// Receives by which the kernel put data straight in its place.
    direct_receives: u64,
}

impl EventLoop {
    fn of(counted: impl Iterator<Item = (Counts, Traffic)>) -> Self {
        let (counts, traffic) = counted
            .reduce(|(counts, traffic), (more, more_traffic)| (counts.and(&more), traffic.and(&more_traffic)))
            .unwrap_or_default();
        Self {
            batches: counts.batches,
            system_calls: counts.system_calls,
            received_bytes: counts.received_bytes,
            direct_bytes: counts.direct_bytes,
            sent_bytes: counts.sent_bytes,
            received_pdus: traffic.received_pdus,
            sent_pdus: traffic.sent_pdus,
            copies: traffic.copies,
            copied_bytes: traffic.copied_bytes,
            digested_copies: traffic.digested_copies,
            digested_copied_bytes: traffic.digested_copied_bytes,
            direct_receives: traffic.direct_receives,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn print(&self, requests: u64) -> Result<(), Failure> {
        let per_request = |count: u64| count as f64 / requests.max(1) as f64;
        output::line(format_args!(
            "per request: {:.2} batches, {:.2} system calls, {:.0} bytes received ({:.0} in place), {:.0} sent",
            per_request(self.batches),
            per_request(self.system_calls),
            per_request(self.received_bytes),
            per_request(self.direct_bytes),
            per_request(self.sent_bytes),
        ))?;
        output::line(format_args!(
            "per request: {:.2} PDUs received, {:.2} sent, {:.2} copies of {:.0} bytes ({:.2} of {:.0} digested on the way), {:.2} receives in place",
            per_request(self.received_pdus),
            per_request(self.sent_pdus),
            per_request(self.copies + self.digested_copies),
            per_request(self.copied_bytes + self.digested_copied_bytes),
            per_request(self.digested_copies),
            per_request(self.digested_copied_bytes),
            per_request(self.direct_receives),
        ))
    }
}

#[derive(Serialize)]
struct Latencies {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
impl Report {
    fn new(
        arguments: &Arguments,
        total: &Tally,
        cpu: Duration,
        event_loop: EventLoop,
        recoveries: BTreeMap<String, u64>,
    ) -> Self {
        let requests = total.reads + total.writes;
        let with_uncounted = requests + total.uncounted;
        let seconds = total.elapsed.as_secs_f64();
        let iops = requests as f64 / seconds;
        let at = |quantile| total.latency.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            rw: arguments.rw,
            bs: arguments.bs.0,
            depth: total.depth,
            jobs: arguments.jobs,
            seconds,
            reads: total.reads,
            writes: total.writes,
            verified: total.verified,
            iops,
            gb_per_s: iops * arguments.bs.0 as f64 / 1e9,
            latency_us: Latencies {
                mean: total.latency.mean() / 1e3,
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: total.latency.max() as f64 / 1e3,
            },
            cpu_us_per_io: cpu.as_secs_f64() * 1e6 / with_uncounted.max(1) as f64,
            uncounted: total.uncounted,
            event_loop,
            recoveries,
            paths: Vec::new(),
        }
    }
}

fn print(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(report);
    }
    let Report { reads, writes, bs, seconds, verified, iops, gb_per_s, cpu_us_per_io, .. } = report;
    let Latencies { mean, p50, p90, p99, p999, max } = &report.latency_us;
    output::line(format_args!("{reads} reads and {writes} writes of {bs} bytes in {seconds:.2} s"))?;
    if report.rw == Mode::Verify {
        output::line(format_args!("{verified} reads compared, all right"))?;
    }
    output::line(format_args!("{iops:.0} IOPS, {gb_per_s:.3} GB/s"))?;
    output::line(format_args!(
        "latency in us: mean {mean:.1}, p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1}"
    ))?;
    output::line(format_args!("CPU time: {cpu_us_per_io:.2} us per request"))?;
    report.event_loop.print(reads + writes + report.uncounted)?;
    report.paths.iter().try_for_each(|path| output::line(format_args!("path {path}")))?;
    let recovered: Vec<_> = report
        .recoveries
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    if recovered.is_empty() {
        return Ok(());
    }
    output::line(format_args!("recovered: {}", recovered.join(", ")))
}
