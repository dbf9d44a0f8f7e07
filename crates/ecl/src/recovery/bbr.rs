//! How much may be in flight, from a model of the path: BBR, version 1
//! (draft-cardwell-iccrg-bbr-congestion-control-00), with the long-term bound of version 3 ([`bound`](super::bound)).
//!
//! The model is the highest rate at which packets arrived in the last ten round trips in which there was enough to
//! send, and the shortest round trip of the last ten seconds. Their product fills the path without a queue. The sender
//! paces its packets at that rate and has up to twice the product in flight, and now and then tries whether the path
//! carries more, and whether the round trip is shorter without a queue. A path that loses 1% of the packets is filled
//! all the same. When a round trip loses more than 2% of what was in flight, a bound is set, and the tries become rare,
//! so that a connection of CUBIC beside it gets a share of the path.

#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

use std::time::Duration;

use lunette_session::Time;

use super::bound::{Bound, Round};
use super::congestion::initial_window;
use super::delivery::Sample;
use super::pacer::{MAX_BURST_BYTES, Rate};
use super::rtt::{GRANULARITY, INITIAL_RTT};
use crate::limits::MAX_WINDOW_BYTES;

/// Round trips over which the highest rate is kept.
const RATE_ROUNDS: usize = 10;

/// How long the shortest round trip is believed.
const ROUND_TRIP_LIFE: Duration = Duration::from_secs(10);

/// How long little is in flight, to measure it again.
const PROBE_TIME: Duration = Duration::from_millis(200);

/// Packets in flight meanwhile, and always at least.
const LEAST_PACKETS: u64 = 4;

/// 2 ÷ ln 2: the rate doubles in each round trip.
const STARTUP_GAIN: f64 = 2.885;

/// Windows of the steady state, in products of rate and round trip: one is on the path, and one makes up for
/// acknowledgements that come late.
const WINDOW_GAIN: f64 = 2.0;

/// The path is full when the rate has not grown by a quarter in three round trips.
const GROWTH: f64 = 1.25;
const FULL_ROUNDS: u8 = 3;

/// Rates of the steady state, one for each shortest round trip: a try, what takes its queue away, and then the rate
/// itself.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// The rate doubles until the path is full.
    Startup,
    /// The queue that this has made drains.
    Drain,
    /// The steady state: the place in the cycle, and when it was reached.
    ProbeBandwidth { place: usize, since: Time },
    /// The round trip is measured without a queue: until when, once the queue is gone, and bytes that must have arrived
    /// by then.
    ProbeRoundTrip { until: Option<(Time, u64)> },
}

/// With a bound, the time between tries: at most this many round trips, which is how often CUBIC has a loss on short
/// paths, and no more than 2 to 3 s (draft-ietf-ccwg-bbr, "Time Scale for Bandwidth Probing").
const TRY_ROUNDS: u32 = 62;
const TRY_TIME: Duration = Duration::from_secs(2);

/// Datagrams that a round trip must lose to be the last one in which the rate doubles (draft-ietf-ccwg-bbr, "Exiting
/// Startup Based on Packet Loss"): with few in flight, 2% is less than one.
const STARTUP_LOSSES: u64 = 6;

/// The model of the path, and what follows from it.
#[derive(Debug, Clone, Copy)]
pub struct Bbr {
    datagram_len: u64,
    state: State,
    /// The highest rate of each of the last round trips, in bytes per second.
    rates: [u64; RATE_ROUNDS],
    round: usize,
    /// The round trip ends with a packet that left when so much had arrived.
    round_ends_at: u64,
    /// The rate that the next ones must exceed while the path is not full, and the rounds in which they did not.
    full: (f64, u8),
    shortest: Option<(Duration, Time)>,
    window: u64,
    /// The window before the round trip was measured.
    window_before: u64,
    lost_in_phase: bool,
    bound: Bound,
    /// The bound has made the window smaller.
    is_bounded: bool,
    /// Packets that left before so much had arrived say nothing of the rate: few were in flight to measure the round
    /// trip.
    few_until: u64,
    /// The time of the change of path: earlier packets took another one.
    path_since: Option<Time>,
    /// Nothing was in flight, and nothing was acknowledged since: the queue is gone without a probe.
    is_restarted: bool,
    /// Where the cycle begins: not at the same place in all senders that share a path.
    first_place: usize,
}

impl Bbr {
    /// A controller for a path of which nothing is known. `seed` is any number that others do not have.
    pub fn new(datagram_len: usize, seed: u64) -> Self {
        Self {
            datagram_len: datagram_len as u64,
            state: State::Startup,
            rates: [0; RATE_ROUNDS],
            round: 0,
            round_ends_at: 0,
            full: (0.0, 0),
            shortest: None,
            window: initial_window(datagram_len as u64),
            window_before: 0,
            lost_in_phase: false,
            bound: Bound::default(),
            is_bounded: false,
            few_until: 0,
            path_since: None,
            is_restarted: false,
            first_place: 2 + (seed % (CYCLE.len() as u64 - 2)) as usize,
        }
    }

    /// Bytes that may be in flight.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// The path's datagrams have another length.
    pub fn set_datagram_len(&mut self, datagram_len: usize) {
        self.datagram_len = datagram_len as u64;
        self.window = self.window.max(self.least());
    }

    /// When packets may leave.
    pub fn rate(&self) -> Rate {
        let gain = match self.state {
            State::Startup => STARTUP_GAIN,
            State::Drain => 1.0 / STARTUP_GAIN,
            State::ProbeBandwidth { place, .. } => CYCLE[place],
            State::ProbeRoundTrip { .. } => 1.0,
        };
        let measured = match self.bandwidth() {
            0.0 => initial_window(self.datagram_len) as f64 / self.round_trip().max(GRANULARITY).as_secs_f64(),
            measured => measured,
        };
        let bytes_per_second = (measured * gain).max(1.0);
        Rate { bytes_per_second, burst: self.burst() }
    }

    /// Bytes that leave at once: those of a millisecond, because timers are no finer.
    fn burst(&self) -> u64 {
        let least = 2 * self.datagram_len;
        ((self.bandwidth() * GRANULARITY.as_secs_f64()) as u64).min(MAX_BURST_BYTES).max(least)
    }

    fn bandwidth(&self) -> f64 {
        self.rates.iter().copied().max().unwrap_or(0) as f64
    }

    fn round_trip(&self) -> Duration {
        self.shortest.map_or(INITIAL_RTT, |(shortest, _)| shortest)
    }

    /// Bytes that fill the path, times `gain`.
    fn product(&self, gain: f64) -> u64 {
        (self.bandwidth() * self.round_trip().as_secs_f64() * gain) as u64
    }

    fn is_full(&self) -> bool {
        self.full.1 >= FULL_ROUNDS
    }

    fn least(&self) -> u64 {
        LEAST_PACKETS * self.datagram_len
    }

    /// A packet leaves, and no other is in flight. The next round trip is one without a queue.
    pub fn on_restart(&mut self, now: Time) {
        self.is_restarted = true;
        if matches!(self.state, State::ProbeRoundTrip { .. }) {
            self.go_on(now);
        }
    }

    /// Packets that were sent before `now` took another path.
    pub const fn ignore_losses_before(&mut self, now: Time) {
        self.path_since = Some(now);
    }

    /// A packet came marked.
    pub const fn on_marked(&mut self) {
        self.lost_in_phase = true;
    }

    /// Notes lost bytes, the last of which were sent at `sent_at`.
    pub fn on_lost(&mut self, bytes: u64, sent_at: Time) {
        if self.path_since.is_some_and(|since| sent_at < since) {
            return;
        }
        let least = if self.is_full() { 0 } else { STARTUP_LOSSES * self.datagram_len };
        if self.bound.on_lost(bytes, least) {
            self.lost_in_phase = true;
            self.bound.set(self.product(1.0));
            // More than the path takes is in flight, so its rate was reached.
            self.full.1 = FULL_ROUNDS;
        }
    }

    /// Nothing came through for a long time.
    pub fn on_persistent_congestion(&mut self) {
        self.window = self.least();
    }

    /// Packets were acknowledged; this many bytes are still in flight. `latest` is the round trip of one of them.
    pub fn on_acknowledged(&mut self, sample: &Sample, latest: Duration, in_flight: u64, now: Time) {
        if matches!(self.state, State::ProbeRoundTrip { .. }) {
            self.few_until = sample.delivered.saturating_add(in_flight);
        }
        let is_limited = sample.is_limited || sample.delivered_before < self.few_until;
        let sample = &Sample { is_limited, ..*sample };
        let begins_round = sample.delivered_before >= self.round_ends_at;
        if begins_round {
            self.round_ends_at = sample.delivered;
            let is_try = self.is_try();
            let raise = (is_try && self.is_bounded && !is_limited).then_some(self.datagram_len);
            self.bound.on_round(Round { in_flight, is_limited, is_try, raise });
        }
        // Round trips with too little to send do not say that the path carries less: the rates before stay.
        if begins_round && !sample.is_limited {
            self.round = (self.round + 1) % RATE_ROUNDS;
            self.rates[self.round] = 0;
        }
        if let Some(rate) = sample.bytes_per_second
            && (!sample.is_limited || rate as f64 >= self.bandwidth())
        {
            self.rates[self.round] = self.rates[self.round].max(rate);
        }
        if begins_round && !sample.is_limited && !self.is_full() {
            let bandwidth = self.bandwidth();
            self.full = if bandwidth >= self.full.0 * GROWTH { (bandwidth, 0) } else { (self.full.0, self.full.1 + 1) };
        }
        self.next_state(in_flight, now);
        self.measure_round_trip(latest, sample, in_flight, now);
        self.set_window(sample);
    }

    fn next_state(&mut self, in_flight: u64, now: Time) {
        match self.state {
            State::Startup if self.is_full() => self.state = State::Drain,
            State::Drain if in_flight <= self.product(1.0) => self.cruise(now),
            State::ProbeBandwidth { place, since } => {
                let is_over = now - since > self.time_of(place);
                let gain = CYCLE[place];
                let goes_on = match gain {
                    // Until the try has reached the path, or was refused.
                    _ if gain > 1.0 => {
                        self.bound.on_try();
                        let has_reached =
                            in_flight >= self.product(gain) && (!self.is_bounded || self.bound.is_raised());
                        is_over && (self.lost_in_phase || has_reached)
                    }
                    _ if gain < 1.0 => is_over || in_flight <= self.product(1.0),
                    _ => is_over,
                };
                if goes_on {
                    self.state = State::ProbeBandwidth { place: (place + 1) % CYCLE.len(), since: now };
                    self.lost_in_phase = false;
                }
            }
            _ => {}
        }
    }

    /// How long a place of the cycle is kept: with a bound, the last one until it is time for the next try.
    fn time_of(&self, place: usize) -> Duration {
        let round_trip = self.round_trip();
        if !self.bound.exists() || place + 1 < CYCLE.len() {
            return round_trip;
        }
        // Not the same in all senders that share a path.
        let at_most = TRY_TIME + Duration::from_secs(1) * self.first_place as u32 / CYCLE.len() as u32;
        (round_trip * TRY_ROUNDS).min(at_most)
    }

    /// Whether the sender tries to get more than before.
    const fn is_try(&self) -> bool {
        matches!(self.state, State::ProbeBandwidth { place, .. } if CYCLE[place] > 1.0)
    }

    /// The steady state.
    fn cruise(&mut self, now: Time) {
        self.state = State::ProbeBandwidth { place: self.first_place, since: now };
    }

    fn measure_round_trip(&mut self, latest: Duration, sample: &Sample, in_flight: u64, now: Time) {
        let is_stale = self.shortest.is_some_and(|(_, at)| now - at > ROUND_TRIP_LIFE);
        if is_stale || self.shortest.is_none_or(|(shortest, _)| latest <= shortest) {
            self.shortest = Some((latest, now));
        }
        if let State::ProbeRoundTrip { until } = &mut self.state {
            match *until {
                None if in_flight <= LEAST_PACKETS * self.datagram_len => {
                    *until = Some((now + PROBE_TIME, sample.delivered));
                }
                Some((end, delivered)) if now >= end && sample.delivered_before >= delivered => {
                    self.shortest = self.shortest.map(|(shortest, _)| (shortest, now));
                    self.go_on(now);
                }
                _ => {}
            }
        } else if is_stale && !self.is_restarted {
            self.window_before = self.window;
            self.state = State::ProbeRoundTrip { until: None };
        }
        self.is_restarted = false;
    }

    /// The round trip is measured.
    fn go_on(&mut self, now: Time) {
        self.window = self.window.max(self.window_before);
        if self.is_full() { self.cruise(now) } else { self.state = State::Startup }
    }

    fn set_window(&mut self, sample: &Sample) {
        let gain = if self.is_full() { WINDOW_GAIN } else { STARTUP_GAIN };
        let target = self.product(gain).saturating_add(3 * self.burst());
        let grown = self.window.saturating_add(sample.bytes);
        if self.is_full() {
            self.window = grown.min(target);
        } else if self.window < target || sample.delivered < initial_window(self.datagram_len) {
            self.window = grown;
        }
        if matches!(self.state, State::ProbeRoundTrip { .. }) {
            self.window = self.window.min(self.least());
        }
        let bound = self.bound.window(self.is_try()).max(self.product(1.0).saturating_add(3 * self.burst()));
        self.is_bounded = bound < target;
        self.window = self.window.min(bound).clamp(self.least(), MAX_WINDOW_BYTES);
    }
}

#[cfg(test)]
mod tests;
