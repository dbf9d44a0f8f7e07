//! How many requests to keep in flight, found while they run.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Requests in flight for each one that fills the path. One lot is on the path and one in the queue before its slowest
/// line, when TCP fills that; the third is on its way while a packet that was lost comes again and holds up the end of
/// the others. At 155 Mb/s and 50 ms a copy of 200 MiB takes 12.5 s with two lots, 12.0 s with three.
const GAIN: f64 = 3.0;

/// Requests by which the limit grows for each one that ends, after the latency was measured. All of them at once would
/// run over the queue before the line, and TCP would take the loss for a slow path.
const REFILL: usize = 2;

/// Rounds whose best rate is taken for the path's.
const RATE_ROUNDS: usize = 8;

/// How long a shortest latency is believed. Then it is measured again with few requests in flight, which costs writes
/// over 155 Mb/s and 50 ms half a second of the line.
const LATENCY_LIFE: Duration = Duration::from_secs(30);

/// The shortest round. On a path within a machine many requests end while others wait for a CPU; in a round as short as
/// its latency, what ends in such a burst would be taken for the rate of the path, and more requests in flight only
/// push each other's data out of the processor's caches: a copy from a target to a file in memory took a fifth more CPU
/// time.
const MIN_ROUND: Duration = Duration::from_millis(10);

/// Requests in flight for each one that fills the path, while the latency is measured: the path is not full, so nothing
/// queues.
const DRAIN_GAIN: f64 = 0.5;

/// Finds how many requests to keep in flight: about three times what fills the path, by the delay and the rate that
/// they see.
///
/// By Little's law `rate × shortest latency` requests fill a path whose queues are empty. As long as they do not fill
/// it, that product is their number, so a limit of three times the product grows from round to round. Once they fill
/// it, the rate grows no more, the shortest latency stays what it was with few requests, and the limit stays at three
/// times what fills the path.
///
/// Requests may be of several kinds (reads of a source and writes to a destination), of which each has its own latency
/// and rate.
///
/// ```
/// use std::time::Duration;
///
/// use lunette_tuning::InFlight;
///
/// let mut in_flight = InFlight::<1>::new(1..=256);
/// assert_eq!(in_flight.limit(), 1);
/// // A path of 50 ms that is far from full: the limit grows after each round.
/// in_flight.ended(0, Duration::from_millis(50), Duration::from_millis(50));
/// assert_eq!(in_flight.limit(), 3);
/// ```
#[derive(Debug, Clone)]
pub struct InFlight<const KINDS: usize> {
    bounds: RangeInclusive<usize>,
    limit: usize,
    /// The limit, or the value to which it grows.
    goal: usize,
    kinds: [Kind; KINDS],
    round: Round,
    /// When the shortest latencies were last measured with few requests.
    drained: Duration,
    phase: Phase,
    /// Whether the limit grows to the goal step by step, after a measurement and until a round ends with it there: a
    /// jump would send a burst into the queues that have just been drained.
    refills: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The path is kept full.
    Filling,
    /// The requests that were sent with a full path come to their end.
    Draining,
    /// The path is not full: its latency shows.
    Measuring,
}

/// The facts about one kind of request.
#[derive(Debug, Clone, Default)]
struct Kind {
    /// The shortest since the queues were last drained.
    latency: Option<Duration>,
    /// The shortest of this round.
    latency_of_round: Option<Duration>,
    /// Requests per second in the last rounds.
    rates: VecDeque<f64>,
    /// The requests of this round that have ended.
    ended: u32,
}

/// A round ends with the last of the requests that were in flight when it began, so it lasts one latency.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    began: Duration,
    /// Requests that have to end.
    len: usize,
    ended: usize,
}

impl<const KINDS: usize> InFlight<KINDS> {
    /// Begins with the least of `bounds`, which must be at least 1, and never leaves them.
    pub fn new(bounds: RangeInclusive<usize>) -> Self {
        let least = *bounds.start();
        Self::starting_with(least, bounds)
    }

    /// Begins with `start` requests in flight and keeps within `bounds`, of which the least must be at least 1. A start
    /// near the number that fills the path saves the rounds in which the limit would grow to it.
    pub fn starting_with(start: usize, bounds: RangeInclusive<usize>) -> Self {
        debug_assert!(*bounds.start() >= 1, "nothing in flight never ends");
        let start = start.clamp(*bounds.start(), *bounds.end());
        Self {
            limit: start,
            goal: start,
            kinds: std::array::from_fn(|_| Kind::default()),
            round: Round { len: start, ..Round::default() },
            drained: Duration::ZERO,
            bounds,
            phase: Phase::Filling,
            refills: false,
        }
    }

    /// Requests that should be in flight, of all kinds together.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// A request of `kind` ended at `now`, a time since any fixed moment, after `latency`.
    pub fn ended(&mut self, kind: usize, now: Duration, latency: Duration) {
        let Some(of_kind) = self.kinds.get_mut(kind) else { return };
        of_kind.ended += 1;
        for least in [&mut of_kind.latency, &mut of_kind.latency_of_round] {
            *least = Some(least.map_or(latency, |least| least.min(latency)));
        }
        self.round.ended += 1;
        self.limit = self.goal.min(self.limit + REFILL);
        // Completions come in batches. A round that is shorter than a request of any kind would take a batch for the
        // rate.
        if self.round.ended >= self.round.len && now.saturating_sub(self.round.began) >= self.least_round() {
            self.end_round(now);
        }
    }

    /// The shortest latency of the slowest kind, or what a round lasts at least.
    fn least_round(&self) -> Duration {
        let latencies = self.kinds.iter().filter_map(|kind| kind.latency);
        latencies.max().unwrap_or_default().max(MIN_ROUND)
    }

    fn end_round(&mut self, now: Duration) {
        let time_s = now.saturating_sub(self.round.began).as_secs_f64();
        let latencies: [_; KINDS] = std::array::from_fn(|kind| self.kinds[kind].end_round(time_s));
        let in_flight = self.limit;
        self.refills |= self.phase == Phase::Measuring;
        self.phase = match self.phase {
            Phase::Filling if now.saturating_sub(self.drained) > LATENCY_LIFE => Phase::Draining,
            Phase::Filling => Phase::Filling,
            Phase::Draining => Phase::Measuring,
            Phase::Measuring => {
                self.drained = now;
                for (kind, latency) in self.kinds.iter_mut().zip(latencies) {
                    kind.latency = latency.or(kind.latency);
                }
                Phase::Filling
            }
        };
        self.goal = self.filling(if self.phase == Phase::Filling { GAIN } else { DRAIN_GAIN });
        self.limit = if self.refills { self.limit.min(self.goal) } else { self.goal };
        self.refills &= self.limit < self.goal;
        self.round = Round { began: now, len: in_flight.max(self.limit), ended: 0 };
    }

    /// The number of requests that fill the path, times `gain`, within the bounds.
    fn filling(&self, gain: f64) -> usize {
        let filling: f64 = self.kinds.iter().map(Kind::filling).sum();
        // Rounding errors must not add a request per round to a path that is full.
        let limit = (gain * filling - 1e-6).ceil();
        (limit as usize).clamp(*self.bounds.start(), *self.bounds.end())
    }
}

impl Kind {
    /// Takes note of the rate of a round. Gives its shortest latency.
    fn end_round(&mut self, time_s: f64) -> Option<Duration> {
        if self.rates.len() == RATE_ROUNDS {
            self.rates.pop_front();
        }
        self.rates.push_back(f64::from(std::mem::take(&mut self.ended)) / time_s);
        self.latency_of_round.take()
    }

    /// Requests of this kind that fill the path.
    fn filling(&self) -> f64 {
        let rate = self.rates.iter().copied().fold(0.0, f64::max);
        self.latency.map_or(0.0, |latency| rate * latency.as_secs_f64())
    }
}

#[cfg(test)]
mod tests;
