//! `lunette-lab load`: one session that does the same request again and again, on the same blocks.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use lunette_buffer::{Pool, SharedBuffer};

use super::client::{Client, Mirror, NoPages, PLAIN_BLOCK, Pages, plain_offer, read, write};
use super::layers::{self, Phase};
use super::socket;
use crate::experiment::Figures;
use crate::experiment::commands::MB_PER_S;

/// The longest request: its data goes with its command.
const MAX_BYTES: u32 = 256 << 10;
/// Memory for data.
const POOL_LEN: usize = 64 << 20;
/// Requests a second.
pub(super) const IOPS: &str = "iops";

/// One iSCSI session that does the same request again and again, on the same blocks.
///
/// Prints what it has carried as one line of JSON.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    /// The target, whose disk is LUN 0
    target: SocketAddr,
    /// How data leaves; without it the requests are reads
    #[arg(long, value_enum)]
    write: Option<Way>,
    /// Bytes of a request
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(512..=i64::from(MAX_BYTES)))]
    bs: u32,
    /// Requests in flight
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    depth: u16,
    /// Seconds before the measurement
    #[arg(long, default_value_t = 0.2)]
    warm_up: f64,
    /// Seconds that are measured
    #[arg(long, default_value_t = 1.0)]
    time: f64,
    /// Sample the first two CPUs with perf, and print the share of each layer: the first is the client's, the second
    /// the server's
    #[arg(long)]
    layers: bool,
}

/// How data leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Way {
    /// The data lies in memory, and the system copies it
    Memory,
    /// Data is read from a file to memory for each request, and the system copies it
    Read,
    /// Data leaves from the pages of a file: sendfile(2)
    Pages,
    /// The system sends the memory itself: MSG_ZEROCOPY
    Flag,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Read => "read",
            Self::Pages => "pages",
            Self::Flag => "flag",
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut client = Client::log_in(options.target, plain_offer())?;
    let pool = Pool::new(POOL_LEN);
    let mut source = Source::new(options, &pool)?;
    let figures = match options.write {
        Some(Way::Pages) => {
            let mut pages = Mirror { place: source.place(), file: source.file.try_clone()?, by_flag: false };
            measure(&mut client, &mut source, &mut pages, options)?
        }
        Some(Way::Flag) => {
            socket::allow_zero_copy(&client.stream)?;
            let mut pages = Mirror { place: source.place(), file: source.file.try_clone()?, by_flag: true };
            measure(&mut client, &mut source, &mut pages, options)?
        }
        _ => measure(&mut client, &mut source, &mut NoPages, options)?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(ExitCode::SUCCESS)
}

/// Where requests come from.
struct Source<'a> {
    pool: &'a Pool,
    file: File,
    data: SharedBuffer,
    write: Option<Way>,
}

impl<'a> Source<'a> {
    fn new(options: &Options, pool: &'a Pool) -> Result<Self> {
        let mut data = pool.take(options.bs as usize).context("the pool is too small")?;
        data.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + at / 256) as u8);
        let file = File::from(rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC)?);
        file.write_all_at(&data, 0)?;
        Ok(Self { pool, file, data: data.share(), write: options.write })
    }

    /// Where the data lies.
    fn place(&self) -> std::ops::Range<usize> {
        let at = self.data.as_ptr() as usize;
        at..at + self.data.len()
    }

    fn submit(&self, client: &mut Client) -> Result<()> {
        let place = || self.pool.take(self.data.len()).context("the pool is too small");
        client.submit(match self.write {
            None => read(0, 0, PLAIN_BLOCK, place()?),
            Some(Way::Read) => {
                let mut place = place()?;
                self.file.read_exact_at(&mut place, 0)?;
                write(0, 0, PLAIN_BLOCK, place.share())
            }
            Some(_) => write(0, 0, PLAIN_BLOCK, self.data.clone()),
        })
    }
}

fn measure(client: &mut Client, source: &mut Source<'_>, pages: &mut impl Pages, options: &Options) -> Result<Figures> {
    for _ in 0..options.depth {
        source.submit(client)?;
    }
    let end = Instant::now() + Duration::from_secs_f64(options.warm_up);
    go_on(client, source, pages, || Instant::now() >= end)?;
    let clock = Clock::start(options.time, options.layers);
    go_on(client, source, pages, || clock.has_begun())?;
    let (began, cpu) = (Instant::now(), own_cpu());
    let requests = go_on(client, source, pages, || clock.is_over())?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), own_cpu().saturating_sub(cpu).as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "below 2^52")]
    let iops = requests as f64 / seconds;
    let mut figures = Figures::from([
        (IOPS.into(), iops),
        (MB_PER_S.into(), iops * f64::from(options.bs) / 1e6),
        (layers::figure(layers::ENDS[0], layers::BUSY), 100.0 * cpu / seconds),
    ]);
    figures.extend(clock.layers());
    Ok(figures)
}

/// A request for each that ends, until it is over. Gives their number.
fn go_on(client: &mut Client, source: &Source<'_>, pages: &mut impl Pages, is_over: impl Fn() -> bool) -> Result<u64> {
    let mut requests = 0;
    while !is_over() {
        let (_, response) = client.completed(pages)?;
        ensure!(response.response == 0 && response.status == 0, "a request ended with {response:?}");
        requests += 1;
        source.submit(client)?;
    }
    Ok(requests)
}

/// Says when the measurement begins and ends, and has the samples of perf when those were asked for.
pub(super) struct Clock {
    time: Duration,
    began: Instant,
    phase: Arc<AtomicU8>,
    sampling: Option<thread::JoinHandle<Result<File>>>,
}

impl Clock {
    /// Begins. Without perf, or without the right to sample, there will be no layers, and a warning says why.
    pub(super) fn start(seconds: f64, samples: bool) -> Self {
        let phase = Arc::new(AtomicU8::new(Phase::Before as u8));
        let told = Arc::clone(&phase);
        let sampling = samples.then(|| {
            thread::spawn(move || layers::sample(seconds, |phase| told.store(phase as u8, Ordering::Release)))
        });
        Self { time: Duration::from_secs_f64(seconds), began: Instant::now(), phase, sampling }
    }

    /// Whether the measurement has begun: with samples, once these are taken.
    pub(super) fn has_begun(&self) -> bool {
        self.is_without_samples() || self.phase.load(Ordering::Acquire) >= Phase::Within as u8
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        let samples_end = self.phase.load(Ordering::Acquire) == Phase::After as u8;
        samples_end || self.is_without_samples() && self.began.elapsed() >= self.time
    }

    /// Whether samples are missing, or perf has given up.
    fn is_without_samples(&self) -> bool {
        self.sampling.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    /// The shares of all layers; nothing when they were not sampled.
    pub(super) fn layers(self) -> Figures {
        let Some(thread) = self.sampling else { return Figures::new() };
        let shares = thread.join().expect("the thread does not panic").and_then(layers::shares);
        shares.unwrap_or_else(|error| {
            eprintln!("warning: CPU time is not told by layer: {error:#}");
            Figures::new()
        })
    }
}

/// The CPU time of this process.
pub(super) fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}
