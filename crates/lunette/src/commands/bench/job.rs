//! One session under load. All work happens in completions, on the event loop's thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lunette_buffer::{Buffer, SharedBuffer};
use lunette_initiator::{Error, Outcome, Sink};
use lunette_store::CompletionSink;
use lunette_tuning::InFlight;

use super::Mode;
use super::medium::{Extent, Medium, Prepared};
use super::pattern::{Order, Random, Stamp};
use crate::commands::depth::Depth;

/// The work of a job.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) mode: Mode,
    /// Bytes in one request.
    pub(crate) chunk_len: usize,
    pub(crate) depth: Depth,
    pub(crate) time: Duration,
    /// Before `time` begins: requests that end in it are not counted.
    pub(crate) warm_up: Duration,
    /// The job ends earlier when it has sent this many requests.
    pub(crate) max_requests: u64,
    /// Percentage of requests that read, in modes that mix reads and writes.
    pub(crate) read_percent: u8,
    /// The first of the chunks that belong to this job.
    pub(crate) first_chunk: u64,
    pub(crate) chunks: u64,
    pub(crate) seed: u64,
}

/// The results of a job.
pub(crate) struct Tally {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Chunks whose bytes were compared.
    pub(crate) verified: u64,
    /// Requests in flight at the end.
    pub(crate) depth: usize,
    /// Latencies in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) elapsed: Duration,
    /// Requests that are not counted: those of the warm-up, and of the round that the end has cut.
    pub(crate) uncounted: u64,
}

/// Finds whole rounds of as many requests as are in flight, after a warm-up.
///
/// Over a long path requests end in groups, and some have moved half of their data when others end. Whole rounds begin
/// and end alike, so what they move in their time is the throughput. Where there are none, or nothing ended in the
/// measured time, the requests that ended in that time are counted, and these may be none.
#[derive(Clone, Copy, Default)]
struct Rounds {
    /// Requests that have ended in this round.
    ended: usize,
    first: Option<Mark>,
    last: Option<Mark>,
    /// At the end of the warm-up.
    warm: Mark,
    /// At the last request that ended in the measured time.
    timed: Option<Mark>,
}

/// The state of a tally when a request has ended.
#[derive(Clone, Copy, Default)]
struct Mark {
    elapsed: Duration,
    reads: u64,
    writes: u64,
}

impl Rounds {
    /// Takes note of a request that has ended.
    fn ended(&mut self, elapsed: Duration, depth: usize, plan: &Plan, tally: &mut Tally) {
        let mark = Mark { elapsed, reads: tally.reads, writes: tally.writes };
        if elapsed < plan.warm_up {
            self.warm = mark;
            return;
        }
        let is_in_time = elapsed < plan.warm_up + plan.time;
        if is_in_time {
            self.timed = Some(mark);
        }
        self.ended += 1;
        if self.ended < depth {
            return;
        }
        self.ended = 0;
        if self.first.is_none() {
            // Rounds behind a time in which nothing ended say nothing of it.
            if self.timed.is_some() {
                self.first = Some(mark);
                tally.latency.reset();
            }
        } else if self.last.is_none() || is_in_time {
            self.last = Some(mark);
        }
    }

    /// Cuts a tally down to the rounds, or to the time where there are none.
    fn cut(&self, plan: &Plan, tally: &mut Tally) {
        let all = tally.reads + tally.writes;
        let (first, last, elapsed) = match (self.first, self.last) {
            (Some(first), Some(last)) => (first, last, last.elapsed.saturating_sub(first.elapsed)),
            _ => (self.warm, self.timed.unwrap_or(self.warm), plan.time),
        };
        (tally.reads, tally.writes) = (last.reads - first.reads, last.writes - first.writes);
        tally.elapsed = elapsed;
        tally.uncounted = all - tally.reads - tally.writes;
    }
}

/// The reason why a job ended early.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum JobError {
    #[error(transparent)]
    Request(#[from] Error),
    #[error("{0}")]
    Store(String),
    #[error("wrong data at byte {offset} of the disk: not what was written there last (version {version})")]
    WrongData { offset: u64, version: u32 },
}

pub(crate) struct Job {
    me: Weak<Self>,
    medium: Medium,
    plan: Plan,
    state: Mutex<State>,
    ended: Condvar,
}

/// A request that has ended.
pub(super) struct Ended {
    pub(super) result: Result<(), JobError>,
    pub(super) data_in: Option<Buffer>,
    pub(super) data_out: Option<SharedBuffer>,
}

struct State {
    random: Random,
    order: Order,
    slots: Vec<Slot>,
    /// How often this job wrote each chunk, for modes that verify.
    versions: Vec<u32>,
    /// Chunks with a request in flight: two requests at once would have no order.
    busy: Vec<bool>,
    tally: Tally,
    started: Instant,
    /// The counts of a job with a warm-up.
    rounds: Rounds,
    /// Finds the depth, unless it is given.
    measured: Option<InFlight<KINDS>>,
    /// Requests in flight.
    running: usize,
    /// Slots without a request that a greater depth may use.
    idle: Vec<usize>,
    error: Option<JobError>,
    stopped: bool,
    /// Requests that were sent so far.
    sent: u64,
}

/// Reads and writes have latencies of their own.
const KINDS: usize = 2;

/// One of the requests in flight.
#[derive(Clone)]
struct Slot {
    since: Instant,
    chunk: u64,
    writes: bool,
    /// The data of a write, kept where it does not change.
    data: Option<SharedBuffer>,
}

impl Job {
    pub(crate) fn new(medium: Medium, plan: Plan) -> Arc<Self> {
        let now = Instant::now();
        let verifies = plan.mode == Mode::Verify;
        let chunks = if verifies { plan.chunks as usize } else { 0 };
        let order = if plan.mode.is_random() { Order::Random } else { Order::Sequential { next: 0 } };
        let state = State {
            random: Random::new(plan.seed),
            order,
            slots: vec![Slot { since: now, chunk: 0, writes: false, data: None }; plan.depth.most()],
            versions: vec![0; chunks],
            busy: vec![false; chunks],
            tally: Tally::empty(),
            started: now,
            rounds: Rounds::default(),
            measured: match plan.depth {
                Depth::Given(_) => None,
                Depth::Measured(_) => Some(plan.depth.rule(plan.chunk_len)),
            },
            running: 0,
            idle: (0..plan.depth.most()).rev().collect(),
            error: None,
            stopped: false,
            sent: 0,
        };
        Arc::new_cyclic(|me| Self { me: me.clone(), medium, plan, state: Mutex::new(state), ended: Condvar::new() })
    }

    /// Runs for the planned time and waits for the last request.
    pub(crate) fn run(self: &Arc<Self>) -> Result<Tally, JobError> {
        self.lock().started = Instant::now();
        self.fill();
        let mut state = self.lock();
        while state.running > 0 {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.tally.elapsed = state.started.elapsed();
        let rounds = state.rounds;
        if !self.plan.warm_up.is_zero() {
            rounds.cut(&self.plan, &mut state.tally);
        }
        state.tally.depth = self.depth(&state);
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::replace(&mut state.tally, Tally::empty())),
        }
    }

    /// Ends the job before its time: the requests under way are the last.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that should be in flight.
    fn depth(&self, state: &State) -> usize {
        state.measured.as_ref().map_or(self.plan.depth.most(), InFlight::limit)
    }

    /// Puts idle slots to work, as many as the depth says.
    fn fill(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.running >= self.depth(&state) {
                return;
            }
            let Some(slot) = state.idle.pop() else { return };
            state.running += 1;
            self.go_on(state, slot, Instant::now());
        }
    }

    /// Sends the next request of a slot that is running, or retires the slot when the time is over or too many run.
    fn go_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>, slot: usize, now: Instant) {
        let ended = state.stopped || state.error.is_some() || state.sent >= self.plan.max_requests;
        let over = ended || now.duration_since(state.started) >= self.plan.warm_up + self.plan.time;
        let too_many = state.running > self.depth(&state);
        let request = if over || too_many { None } else { Some(self.prepare(&mut state, slot, now)) };
        match request {
            Some(Ok(request)) => {
                state.sent += 1;
                drop(state);
                return self.medium.submit(self, slot, request);
            }
            Some(Err(error)) => {
                state.error.get_or_insert(error);
            }
            None if !over => state.idle.push(slot),
            None => {}
        }
        state.running -= 1;
        if state.running == 0 {
            self.ended.notify_all();
        }
    }

    fn prepare(&self, state: &mut State, slot: usize, now: Instant) -> Result<Prepared, JobError> {
        let plan = &self.plan;
        let chunk = self.pick(state);
        let writes = match plan.mode {
            Mode::Read | Mode::RandRead => false,
            Mode::Write | Mode::RandWrite => true,
            // A chunk that this job has not written cannot be verified.
            Mode::Verify if state.versions[chunk as usize] == 0 => true,
            Mode::RandRw | Mode::Verify => state.random.below(100) >= u64::from(plan.read_percent),
        };
        let extent = Extent { offset: (plan.first_chunk + chunk) * plan.chunk_len as u64, len: plan.chunk_len };
        let place = &mut state.slots[slot];
        (place.since, place.chunk, place.writes) = (now, chunk, writes);
        if !writes {
            return self.medium.read(extent);
        }
        let data = match place.data.take() {
            Some(data) if plan.mode != Mode::Verify => data,
            _ => {
                let mut buffer = self.medium.buffer(plan.chunk_len)?;
                let version = if plan.mode == Mode::Verify { state.versions[chunk as usize] + 1 } else { 0 };
                Stamp { seed: plan.seed, chunk, version }.fill(&mut buffer);
                buffer.share()
            }
        };
        Ok(self.medium.write(extent, data))
    }

    fn pick(&self, state: &mut State) -> u64 {
        let mut chunk = state.order.next(&mut state.random, self.plan.chunks);
        if self.plan.mode == Mode::Verify {
            // There are more chunks than requests in flight, so the loop ends.
            while state.busy[chunk as usize] {
                chunk = (chunk + 1) % self.plan.chunks;
            }
            state.busy[chunk as usize] = true;
        }
        chunk
    }

    /// Counts a request that has ended.
    fn count(&self, state: &mut State, slot: usize, now: Instant) {
        let Slot { since, writes, .. } = state.slots[slot];
        let elapsed = now.duration_since(state.started);
        if elapsed >= self.plan.warm_up {
            state.tally.latency.saturating_record(now.duration_since(since).as_nanos() as u64);
        }
        let depth = self.depth(state);
        let State { tally, rounds, .. } = state;
        if writes {
            tally.writes += 1;
        } else {
            tally.reads += 1;
        }
        if !self.plan.warm_up.is_zero() {
            rounds.ended(elapsed, depth, &self.plan, tally);
        }
    }

    /// Accounts for a request that has ended, and verifies the bytes that it read.
    fn account(&self, state: &mut State, slot: usize, ended: &Ended, now: Instant) -> Result<(), JobError> {
        let Slot { since, chunk, writes, .. } = state.slots[slot];
        ended.result.clone()?;
        if let Some(measured) = &mut state.measured {
            measured.ended(writes.into(), now.duration_since(state.started), now.duration_since(since));
        }
        self.count(state, slot, now);
        if self.plan.mode != Mode::Verify {
            return Ok(());
        }
        state.busy[chunk as usize] = false;
        if writes {
            state.versions[chunk as usize] += 1;
            return Ok(());
        }
        let version = state.versions[chunk as usize];
        let data = ended.data_in.as_deref().unwrap_or_default();
        if let Some(at) = (Stamp { seed: self.plan.seed, chunk, version }).first_difference(data) {
            let offset = (self.plan.first_chunk + chunk) * self.plan.chunk_len as u64 + at as u64;
            return Err(JobError::WrongData { offset, version });
        }
        state.tally.verified += 1;
        Ok(())
    }
}

/// The highest latency that is recorded.
const MAX_LATENCY_NS: u64 = 600_000_000_000;

impl Tally {
    pub(crate) fn empty() -> Self {
        Self {
            reads: 0,
            writes: 0,
            verified: 0,
            depth: 0,
            latency: Histogram::new_with_max(MAX_LATENCY_NS, 3).expect("bounds of a histogram"),
            elapsed: Duration::ZERO,
            uncounted: 0,
        }
    }

    /// Adds the tally of another job that ran at the same time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.verified += other.verified;
        self.depth = self.depth.max(other.depth);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.uncounted += other.uncounted;
        self.latency.add(&other.latency).expect("histograms of one range");
    }
}

/// Each tag is the number of a slot.
impl Sink for Job {
    fn complete(self: Arc<Self>, tag: u64, outcome: Outcome) {
        let result = outcome.check_whole().map_err(JobError::Request);
        self.ended(tag as usize, Ended { result, data_in: outcome.data_in, data_out: outcome.data_out });
    }
}

impl CompletionSink for Job {
    fn complete(&self, tag: u64, outcome: lunette_store::Outcome) {
        let (Medium::Store(medium), Some(job)) = (&self.medium, self.me.upgrade()) else { return };
        medium.ended(tag as usize, outcome, |slot, outcome| {
            let writes = job.lock().slots[slot].writes;
            job.ended(slot, Ended::of(outcome, writes));
        });
    }
}

impl Job {
    /// Accounts for a request that has ended, and sends the next one of its slot.
    fn ended(self: &Arc<Self>, slot: usize, mut ended: Ended) {
        let now = Instant::now();
        let mut state = self.lock();
        if let Err(error) = self.account(&mut state, slot, &ended, now) {
            state.error.get_or_insert(error);
        }
        state.slots[slot].data = ended.data_out.take();
        drop(ended);
        let is_growing = !state.idle.is_empty() && state.running < self.depth(&state);
        self.go_on(state, slot, now);
        if is_growing {
            self.fill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTH: usize = 4;

    /// Ends of writes, in milliseconds, with a warm-up of 100 ms before 100 ms.
    fn counted(ends_ms: impl IntoIterator<Item = u64>) -> Tally {
        let plan = Plan {
            mode: Mode::Write,
            chunk_len: 512,
            depth: Depth::Given(DEPTH),
            time: Duration::from_millis(100),
            warm_up: Duration::from_millis(100),
            max_requests: u64::MAX,
            read_percent: 0,
            first_chunk: 0,
            chunks: 100,
            seed: 1,
        };
        let (mut tally, mut rounds) = (Tally::empty(), Rounds::default());
        for end in ends_ms {
            tally.writes += 1;
            rounds.ended(Duration::from_millis(end), DEPTH, &plan, &mut tally);
            tally.elapsed = Duration::from_millis(end);
        }
        rounds.cut(&plan, &mut tally);
        tally
    }

    #[test]
    fn requests_that_end_in_groups_are_counted_by_the_group() {
        // Each group of four ends within 3 ms, every 30 ms.
        let ends = (0..8).flat_map(|group| (0..4).map(move |request| 30 * group + request));
        let tally = counted(ends);
        // The first whole round ends at 123 ms; those at 153 and 183 ms are counted, and the one behind the time is
        // not.
        assert_eq!((tally.writes, tally.elapsed), (8, Duration::from_millis(60)));
        assert_eq!(tally.uncounted, 32 - 8);
    }

    #[test]
    fn a_round_that_begins_amid_a_group_is_as_long_as_the_others() {
        // The warm-up ends between the second and the third request of a group.
        let ends = (0..9).flat_map(|group| (0..4).map(move |request| 30 * group + 8 + request));
        let tally = counted(ends);
        assert_eq!(tally.writes * 30, tally.elapsed.as_millis() as u64 * 4);
    }

    #[test]
    fn a_time_too_short_for_two_rounds_counts_one_behind_it() {
        let tally = counted((0..12).map(|request| 60 * request));
        assert_eq!((tally.writes, tally.elapsed), (4, Duration::from_millis(240)));
    }

    #[test]
    fn without_whole_rounds_what_ended_in_the_time_counts() {
        // Five end in the time from 100 to 200 ms, and the round that the first four of them make began before it.
        let tally = counted([50, 110, 120, 130, 140, 190, 230]);
        assert_eq!((tally.writes, tally.elapsed, tally.uncounted), (5, Duration::from_millis(100), 2));
    }

    #[test]
    fn a_path_that_carries_nothing_in_the_time_is_measured_as_that() {
        // It carries much before and behind it.
        for ends in [vec![], (0..8).chain(300..320).collect()] {
            let all = ends.len() as u64;
            let tally = counted(ends);
            assert_eq!((tally.writes, tally.elapsed, tally.uncounted), (0, Duration::from_millis(100), all));
        }
    }
}
