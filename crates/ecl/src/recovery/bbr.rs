//! How much may be in flight, from a model of the path: BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00).
//!
//! The model is the highest rate at which packets arrived in the last ten round trips in which there was enough to send, and the shortest round trip of
//! the last ten seconds. Their
//! product fills the path without a queue. The sender paces its packets at that rate and has up to twice the product in flight, and now and then
//! tries whether the path carries more, and whether the round trip is shorter without a queue. Losses change nothing: a path that loses 1% of
//! the packets is filled all the same, and a connection of CUBIC beside it on a short queue gets little. So it is the choice of those who know the
//! path, and not the default.

#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

use std::time::Duration;

use lunette_session::Time;

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

/// Windows of the steady state, in products of rate and round trip: one is on the path, and one makes up for acknowledgements that come late.
const WINDOW_GAIN: f64 = 2.0;

/// The path is full when the rate has not grown by a quarter in three round trips.
const GROWTH: f64 = 1.25;
const FULL_ROUNDS: u8 = 3;

/// Rates of the steady state, one for each shortest round trip: a try, what takes its queue away, and then the rate itself.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// The rate doubles until the path is full.
    Startup,
    /// The queue that this has made drains.
    Drain,
    /// The steady state: the place in the cycle, and when it was reached.
    ProbeBandwidth { place: usize, since: Time },
    /// The round trip is measured without a queue: until when, once the queue is gone, and bytes that must have arrived by then.
    ProbeRoundTrip { until: Option<(Time, u64)> },
}

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
    /// Nothing was in flight, and nothing was acknowledged since: the queue is gone without a probe.
    is_restarted: bool,
    /// Where the cycle begins: not at the same place in all senders that share a path.
    first_place: usize,
}

impl Bbr {
    /// Of a path of which nothing is known. `seed` is any number that others do not have.
    pub const fn new(datagram_len: usize, seed: u64) -> Self {
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

    /// Packets were lost.
    pub fn on_lost(&mut self) {
        self.lost_in_phase = true;
    }

    /// Nothing came through for a long time.
    pub fn on_persistent_congestion(&mut self) {
        self.window = self.least();
    }

    /// Packets were acknowledged; so many bytes are still in flight. `latest` is the round trip of one of them.
    pub fn on_acknowledged(&mut self, sample: &Sample, latest: Duration, in_flight: u64, now: Time) {
        let begins_round = sample.delivered_before >= self.round_ends_at;
        if begins_round {
            self.round_ends_at = sample.delivered;
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
                let is_over = now - since > self.round_trip();
                let gain = CYCLE[place];
                let goes_on = match gain {
                    // Until the try has reached the path, or was refused.
                    _ if gain > 1.0 => is_over && (self.lost_in_phase || in_flight >= self.product(gain)),
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
        self.window = self.window.clamp(self.least(), MAX_WINDOW_BYTES);
    }
}

#[cfg(test)]
mod tests;
