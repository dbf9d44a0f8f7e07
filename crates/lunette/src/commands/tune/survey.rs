//! The facts before the first trial: round trips of an idle path, the target's agreement, and its time per command.

#![expect(clippy::cast_precision_loss, reason = "counts of a few seconds lie far below 2^52")]

use std::time::{Duration, Instant};

use lunette_initiator::{Disk, Error, Parameters, wait};
use lunette_scsi::requests;
use lunette_tuning::{Bounds, Candidate, CongestionControl, Path, Settings, Survey, Target};

use super::candidates::unset;
use super::scratch::Requests;
use super::system;
use super::trial::{Budget, Subject};
use crate::commands::bench::Mode;
use crate::commands::bench::job::{Job, JobError, Plan};
use crate::commands::bench::medium::Medium;
use crate::commands::depth::Depth;

/// Connections that are offered to the target.
const MAX_CONNECTIONS: u32 = 8;

/// The most requests of `lunette cp` in flight.
pub(super) const MAX_CP_DEPTH: u32 = 256;

/// The largest depth of `lunette bench`.
const MAX_BENCH_DEPTH: u32 = 4096;

/// Bytes of requests in flight: half of what the client has for buffers.
const MAX_IN_FLIGHT_BYTES: u64 = lunette_initiator::limits::DEFAULT_BUFFER_BYTES as u64 / 2;

/// The longest request: longer ones carry no more.
const MAX_REQUEST_LEN: u64 = 4 << 20;

/// Pings, and short reads one after the other.
const ROUND_TRIPS: usize = 10;

/// The longest time for each of the two.
const MAX_ROUND_TRIPS_TIME: Duration = Duration::from_secs(2);

/// Short commands in flight when their number in a second is measured.
const SHORT_COMMANDS: u32 = 64;

/// A load of short commands shows its cost when its latency is this many times that of one alone: they wait for each
/// other.
const QUEUEING: f64 = 2.0;

/// The facts for the tuner, and those for people alone.
pub(super) struct Surveyed {
    pub(super) survey: Survey,
    pub(super) facts: IdleFacts,
}

/// The measurements without load, and the target's agreement.
#[derive(Debug, Clone)]
pub(super) struct IdleFacts {
    pub(super) parameters: Parameters,
    /// Commands that the target takes at a time.
    pub(super) command_window: usize,
    /// From the beginning of the login to the answer of the last command that opens the disk.
    pub(super) opening: Duration,
    /// The shortest ping.
    pub(super) ping: Duration,
    /// The shortest round trip of TCP.
    pub(super) round_trip: Duration,
    /// The shortest read of one block, less the round trip.
    pub(super) command_latency: Duration,
    /// Short commands in a second, and how many were in flight.
    pub(super) commands_per_second: f64,
    pub(super) commands_in_flight: u32,
    /// The time in which both sides could do nothing else for one command; `None` when the distance kept it from
    /// showing.
    pub(super) command_cost: Option<Duration>,
    /// The congestion control of this system.
    pub(super) congestion: Option<String>,
}

/// The offer that explores the target's bounds: our defaults, but for more connections and longer bursts.
fn generous() -> Candidate {
    let bounds = Bounds::default();
    let settings = Settings {
        request_len: 64 << 10,
        connections: MAX_CONNECTIONS,
        initial_r2t: false,
        first_burst_len: 1 << 20,
        max_burst_len: (16 << 20) - 1,
        max_outstanding_r2t: bounds.max_outstanding_r2t,
        max_data_segment_len: bounds.max_data_segment_len,
        ..Settings::default()
    };
    Candidate { settings, ..unset() }
}

/// Opens the disk with generous offers. The session lives as long as the run: by it the target shows that it is there.
pub(super) fn lifeline(subject: &Subject) -> Result<(Disk, Duration), Error> {
    let started = Instant::now();
    let disk = subject.open(&generous())?;
    Ok((disk, started.elapsed()))
}

/// Surveys the path and the target by `lifeline`, which took `opening`, for about twice the time of `budget`.
/// `fixed_len` is the length of all requests, if the load decides it. The bytes of `budget` bound the survey, and later
/// each load of a trial.
pub(super) fn survey(
    subject: &Subject,
    (lifeline, opening): (&Disk, Duration),
    fixed_len: Option<u64>,
    budget: Budget,
) -> Result<Surveyed, Error> {
    let time = budget.time;
    let ping = shortest(time, || wait(lifeline.session().ping(vec![0; 8])).map(drop))?;
    let read = shortest(time, || read_block(lifeline))?;
    let (commands_per_second, commands_in_flight) =
        short_commands(lifeline, Budget { time: (ping * 4 + time / 2).min(time), ..budget })?;
    let observed = wait(lifeline.session().observe())?;
    let of_tcp = observed.connections.iter().map(|of| of.min_round_trip).filter(|trip| !trip.is_zero()).min();
    let round_trip = of_tcp.map_or(ping, |trip| trip.min(ping));
    let one_command = f64::from(commands_in_flight) / commands_per_second.max(1.0);
    let is_busy = one_command > QUEUEING * read.as_secs_f64();
    let command_cost = is_busy.then(|| Duration::from_secs_f64(1.0 / commands_per_second.max(1.0)));
    let congestion = system::congestion_control();
    let mut path = Path { round_trip, ..Path::default() };
    path.tcp_window = system::tcp_window().unwrap_or(path.tcp_window);
    path.mtu = observed.connections.first().map(|of| of.path_mtu).filter(|mtu| *mtu > 0).unwrap_or(path.mtu);
    let named = |control: &CongestionControl| congestion.as_deref() == Some(control.name());
    path.congestion = CongestionControl::ALL.into_iter().find(named).unwrap_or_default();
    let command_latency = read.saturating_sub(round_trip);
    let mut target = Target { latency: command_latency, ..Target::default() };
    target.command_window = usable_window(observed.command_window, fixed_len.is_some());
    target.command_cost = command_cost.unwrap_or(target.command_cost);
    let parameters = lifeline.session().parameters().clone();
    let bounds = Bounds {
        max_connections: u32::try_from(observed.connections.len()).unwrap_or(1).max(1),
        ..bounds(subject, lifeline, &parameters, fixed_len, budget.bytes)
    };
    let others = system::allowed_congestion_controls().into_iter();
    let congestion_controls =
        others.filter(|control| *control != path.congestion && *control != CongestionControl::Reno);
    let survey = Survey {
        path,
        target,
        bounds,
        congestion: congestion_controls.collect(),
        greater_send_buffer_bytes: system::greater_buffer("net.ipv4.tcp_wmem", "net.core.wmem_max"),
        greater_receive_buffer_bytes: system::greater_buffer("net.ipv4.tcp_rmem", "net.core.rmem_max"),
    };
    let facts = IdleFacts {
        parameters,
        command_window: observed.command_window,
        opening,
        ping,
        round_trip,
        command_latency,
        commands_per_second,
        commands_in_flight,
        command_cost,
        congestion,
    };
    Ok(Surveyed { survey, facts })
}

/// Commands in flight that may be recommended: what the target takes, as far as `lunette cp` can use it. When the load
/// decides the length of its requests, it is `lunette bench` or a program that can use more.
pub(super) fn usable_window(commands: usize, is_len_fixed: bool) -> u32 {
    let most = if is_len_fixed { MAX_BENCH_DEPTH } else { MAX_CP_DEPTH };
    u32::try_from(commands).unwrap_or(u32::MAX).clamp(1, most)
}

/// The shortest of some round trips.
fn shortest(time: Duration, mut go: impl FnMut() -> Result<(), Error>) -> Result<Duration, Error> {
    let (began, mut least) = (Instant::now(), Duration::MAX);
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        go()?;
        least = least.min(start.elapsed());
        if began.elapsed() > time.min(MAX_ROUND_TRIPS_TIME) {
            break;
        }
    }
    Ok(least)
}

fn read_block(disk: &Disk) -> Result<(), Error> {
    let buffer = disk.session().reserve(disk.facts().block_len() as usize)?;
    let request = lunette_initiator::Request::new(disk.lun(), requests::read(0, 1, false)).with_data_in(buffer);
    wait(disk.execute(request)).check_whole().map(drop)
}

/// Short commands in a second, with many of them in flight.
fn short_commands(disk: &Disk, budget: Budget) -> Result<(f64, u32), Error> {
    let window = wait(disk.session().observe())?.command_window;
    let depth = u32::try_from(window).unwrap_or(u32::MAX).clamp(1, SHORT_COMMANDS);
    let block_len = disk.facts().block_len();
    let plan = Plan {
        mode: Mode::RandRead,
        chunk_len: block_len as usize,
        depth: Depth::Given(depth as usize),
        time: budget.time,
        warm_up: Duration::ZERO,
        // The reads of one block before take some bytes of the budget, too.
        max_requests: (budget.bytes / u64::from(block_len)).saturating_sub(ROUND_TRIPS as u64).max(1),
        read_percent: 100,
        first_chunk: 0,
        chunks: disk.facts().len_bytes() / u64::from(block_len),
        seed: 1,
    };
    let tally = Job::new(Medium::Disk(disk.clone()), plan).run().map_err(|error| match error {
        JobError::Request(error) => error,
        JobError::Store(_) | JobError::WrongData { .. } => {
            unreachable!("no job of the tuner compares or uses a store")
        }
    })?;
    Ok((tally.reads as f64 / tally.elapsed.as_secs_f64(), depth))
}

/// The most to which target and initiator agree, in loads of this many bytes.
fn bounds(subject: &Subject, disk: &Disk, agreed: &Parameters, fixed_len: Option<u64>, load_bytes: u64) -> Bounds {
    let facts = disk.facts();
    let block_len = u64::from(facts.block_len());
    // A range and a load must have room for some requests.
    let room = subject.scratch.as_ref().map_or(facts.len_bytes(), |range| (range.end - range.start) / 4);
    let of_device = u64::from(disk.max_transfer_blocks()) * block_len;
    let most = MAX_REQUEST_LEN.min(of_device).min(room).min(load_bytes / MIN_REQUESTS_OF_A_LOAD).max(block_len);
    let whole = Bounds { block_len, ..Bounds::default() };
    let most = whole.whole_blocks(1 << most.ilog2());
    let digest_len = 4 * u32::from(agreed.data_digest != lunette_initiator::Digest::None)
        + 4 * u32::from(agreed.header_digest != lunette_initiator::Digest::None);
    Bounds {
        // A device that takes less than the tuner would try gets what it takes.
        request_len: fixed_len.or((most < whole.whole_blocks(MIN_CHOICE)).then_some(most)),
        max_request_len: most,
        // More than the disk has would meet requests of its own.
        max_in_flight_bytes: MAX_IN_FLIGHT_BYTES.min(load_bytes).min(facts.len_bytes()),
        may_send_unsolicited: !agreed.initial_r2t,
        may_send_immediate: agreed.immediate_data,
        max_first_burst_len: agreed.effective_first_burst_len().into(),
        max_burst_len: agreed.max_burst_len.into(),
        max_outstanding_r2t: agreed.effective_max_outstanding_r2t(),
        max_data_segment_len: agreed.recv_data_segment_len.into(),
        digest_len,
        ..whole
    }
}

/// The fewest requests of the greatest length in one load.
pub(super) const MIN_REQUESTS_OF_A_LOAD: u64 = 4;

/// The shortest request that the tuner chooses by itself.
const MIN_CHOICE: u64 = 64 << 10;

/// Why a disk cannot be measured with requests of this length.
pub(super) fn check_request(disk: &Disk, subject: &Subject, len: u64) -> Result<(), String> {
    let block_len = u64::from(disk.facts().block_len());
    let most = u64::from(disk.max_transfer_blocks()) * block_len;
    if !len.is_multiple_of(block_len) || len > most {
        return Err(format!("--request {len}: the disk takes multiples of {block_len} up to {most} bytes"));
    }
    let range = subject.scratch.clone().unwrap_or(0..disk.facts().len_bytes());
    Requests::within(&range, len, block_len).map(drop).map_err(|misfit| format!("--request {len}: {misfit}"))
}
