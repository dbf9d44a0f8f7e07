//! How much may be in flight: CUBIC (RFC 9438), with the events of RFC 9002 section 7.
//!
//! # Sharing
//!
//! After a loss with a long queue before the bottleneck, the window shrinks and grows as that of one connection; after
//! a loss with a short queue, as that of [several](super::Config::flows). With a short queue a loss is seldom the work
//! of others that a smaller window would help. With a long one the path may be shared, and two connections' worth takes
//! too much of it: on simulated droptail queues (module `simulation`) 1.6 to 3.1 times as much as one connection of
//! CUBIC beside it, and 0.8 to 1.3 times with this rule.
//!
//! # Why not another's
//!
//! `quinn-proto`'s controllers cannot serve: they take its `RttEstimator`, which cannot be made outside that crate, and
//! `std::time::Instant`, which no virtual clock can be; and their decrease is fixed.

// The window is below 2³² bytes, which f64 has exactly; times are far below 2⁵³ ns.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

use std::time::Duration;

use lunette_session::Time;

use super::hystart::HyStart;
use super::rtt::Rtt;
use crate::limits::MAX_WINDOW_BYTES;

/// CUBIC's C, in segments per second³ (RFC 9438 section 5.1).
const C: f64 = 0.4;

/// The decrease of one flow (RFC 9438 section 4.6).
const BETA: f64 = 0.7;

/// The queue is long when the round trip is longer than the shortest one by more than this part of it.
const LONG_QUEUE_DIVISOR: u32 = 16;

/// The window never grows by more than this in a round trip (RFC 9438 section 4.4).
const MAX_TARGET: f64 = 1.5;

/// The window at the beginning (RFC 9002 section 7.2).
pub const fn initial_window(datagram_len: u64) -> u64 {
    let least = if datagram_len * 2 > 14_720 { datagram_len * 2 } else { 14_720 };
    if datagram_len * 10 < least { datagram_len * 10 } else { least }
}

/// The congestion window.
#[derive(Debug, Clone, Copy)]
pub struct Cubic {
    datagram_len: f64,
    /// The number of connections as which it shares a path whose queue is short.
    flows: f64,
    state: State,
    /// When the window was last made smaller. Losses of packets sent before belong to the same event.
    decreased_at: Option<Time>,
    /// The state to return to when all losses of the last event turn out to be packets that were late.
    undo: Option<Undo>,
    acknowledged_at: Time,
}

/// All sizes are in bytes.
#[derive(Debug, Clone, Copy)]
struct State {
    window: f64,
    slow_start_threshold: f64,
    hystart: Option<HyStart>,
    /// W_max: the window before the last decrease.
    max: f64,
    avoidance: Option<Avoidance>,
}

/// A stage of congestion avoidance.
#[derive(Debug, Clone, Copy)]
struct Avoidance {
    /// When it began, moved on by the time in which the window was not used.
    begin: Time,
    /// K: seconds until the window is W_max again.
    k: f64,
    /// W_est: what Reno's window would be.
    reno: f64,
    /// cwnd_prior: from here on Reno's window grows by a whole datagram for each flow.
    prior: f64,
    /// The number of connections.
    flows: f64,
}

#[derive(Debug, Clone, Copy)]
struct Undo {
    state: State,
    losses: u32,
}

impl Cubic {
    /// The window of a path of which nothing is known, shared as `flows` connections would share it.
    pub fn new(datagram_len: usize, flows: u8) -> Self {
        let window = initial_window(datagram_len as u64) as f64;
        let state = State {
            window,
            slow_start_threshold: f64::INFINITY,
            hystart: Some(HyStart::default()),
            max: 0.0,
            avoidance: None,
        };
        Self {
            datagram_len: datagram_len as f64,
            flows: f64::from(flows.max(1)),
            state,
            decreased_at: None,
            undo: None,
            acknowledged_at: Time::default(),
        }
    }

    /// Bytes that may be in flight.
    pub const fn window(&self) -> u64 {
        self.state.window as u64
    }

    /// Whether the window still doubles.
    pub fn is_slow_start(&self) -> bool {
        self.state.window < self.state.slow_start_threshold
    }

    /// When the window was last made smaller: packets sent until then do not let it grow (RFC 9002 section 7.3.2).
    pub const fn decreased_at(&self) -> Option<Time> {
        self.decreased_at
    }

    /// Packets that were sent until `now` took another path.
    pub const fn ignore_losses_before(&mut self, now: Time) {
        self.decreased_at = Some(now);
    }

    /// The path's datagrams have another length.
    pub fn set_datagram_len(&mut self, datagram_len: usize) {
        self.datagram_len = datagram_len as f64;
        self.state.window = self.state.window.max(self.least());
    }

    /// A round trip was measured, by a packet up to `acknowledged`, when `next` was the next number.
    pub fn on_rtt(&mut self, rtt: Duration, acknowledged: u64, next: u64) {
        if let Some(hystart) = &mut self.state.hystart
            && hystart.on_sample(rtt, acknowledged, next)
        {
            self.state.slow_start_threshold = self.state.window;
            self.state.hystart = None;
        }
    }

    /// Packets were acknowledged, of which `bytes` filled the window.
    pub fn on_acknowledged(&mut self, bytes: u64, smoothed: Duration, now: Time) {
        let unused = now - self.acknowledged_at;
        self.acknowledged_at = now;
        if bytes == 0 {
            // RFC 9438 section 5.8: time in which the window was not used does not let it grow.
            self.pause(unused);
        } else if self.is_slow_start() {
            let bytes = self.state.hystart.map_or(bytes, |hystart| hystart.growth(bytes));
            self.state.window = (self.state.window + bytes as f64).min(self.state.slow_start_threshold);
        } else {
            self.avoid(bytes as f64, smoothed, now);
        }
        self.state.window = self.state.window.min(MAX_WINDOW_BYTES as f64);
    }

    /// Sending begins again after nothing was in flight.
    pub fn on_restart(&mut self, now: Time) {
        let unused = now - self.acknowledged_at;
        self.acknowledged_at = now;
        self.pause(unused);
    }

    fn pause(&mut self, unused: Duration) {
        if let Some(avoidance) = &mut self.state.avoidance {
            avoidance.begin = avoidance.begin + unused;
        }
    }

    /// Congestion avoidance, RFC 9438 sections 4.2 to 4.5.
    fn avoid(&mut self, bytes: f64, smoothed: Duration, now: Time) {
        let datagram_len = self.datagram_len;
        let state = &mut self.state;
        let max = state.max.max(state.window);
        let mut avoidance = state.avoidance.unwrap_or_else(|| {
            // After slow start without a loss the window is its own maximum (section 4.8).
            let k = ((max - state.window) / datagram_len / C).cbrt();
            Avoidance { begin: now, k, reno: state.window, prior: max, flows: 1.0 }
        });
        if state.avoidance.is_none() {
            state.max = max;
        }
        let cubic = |after: Duration| {
            let t = (now - avoidance.begin + after).as_secs_f64() - avoidance.k;
            C * t * t * t * datagram_len + state.max
        };
        // For one flow this is RFC 9438's α.
        let (flows, beta) = (avoidance.flows, beta(avoidance.flows));
        let alpha =
            if avoidance.reno < avoidance.prior { 3.0 * flows * flows * (1.0 - beta) / (1.0 + beta) } else { flows };
        avoidance.reno += alpha * datagram_len * bytes / state.window;
        let target = cubic(smoothed).clamp(state.window, state.window * MAX_TARGET);
        if cubic(Duration::ZERO) < avoidance.reno {
            state.window = state.window.max(avoidance.reno);
        } else {
            state.window += (target - state.window) * bytes / state.window;
        }
        state.avoidance = Some(avoidance);
    }

    /// `losses` packets were lost, or one came marked: the newest of them was sent at `sent_at`. The answer is whether
    /// the window became smaller: one event in each round trip makes it so.
    pub fn on_congestion(&mut self, sent_at: Time, losses: u32, rtt: &Rtt, now: Time) -> bool {
        if self.decreased_at.is_some_and(|decreased_at| sent_at <= decreased_at) {
            if let Some(undo) = &mut self.undo {
                undo.losses = undo.losses.saturating_add(losses);
            }
            return false;
        }
        // A mark is no mistake that could be undone.
        self.undo = (losses > 0).then_some(Undo { state: self.state, losses });
        self.decreased_at = Some(now);
        let is_queue_long = rtt.smoothed() > rtt.min() + rtt.min() / LONG_QUEUE_DIVISOR;
        let flows = if is_queue_long { 1.0 } else { self.flows };
        let (beta, least) = (beta(flows), self.least());
        let state = &mut self.state;
        // Fast convergence (RFC 9438 section 4.7).
        state.max = if state.window < state.max { state.window * (1.0 + beta) / 2.0 } else { state.window };
        let prior = state.window;
        state.window = (prior * beta).max(least);
        state.slow_start_threshold = state.window;
        state.hystart = None;
        let k = ((state.max - state.window).max(0.0) / self.datagram_len / C).cbrt();
        state.avoidance = Some(Avoidance { begin: now, k, reno: state.window, prior, flows });
        true
    }

    /// `late` packets that were taken for lost have come, the newest of which was sent at `sent_at`. When these were
    /// all losses of the last event, the window is again what it was (RFC 9438 section 4.9).
    pub fn on_late(&mut self, late: u32, sent_at: Time) {
        if self.decreased_at.is_none_or(|decreased_at| sent_at > decreased_at) {
            return;
        }
        if let Some(undo) = &mut self.undo {
            undo.losses = undo.losses.saturating_sub(late);
            if undo.losses == 0 {
                self.state = undo.state;
                self.undo = None;
            }
        }
    }

    /// Nothing came through for a long time: the window begins again at its least (RFC 9002 section 7.6).
    pub fn on_persistent_congestion(&mut self) {
        self.state.window = self.least();
        self.state.avoidance = None;
        self.undo = None;
        self.decreased_at = None;
    }

    /// RFC 9002 section 7.2.
    fn least(&self) -> f64 {
        self.datagram_len * 2.0
    }
}

/// The decrease of `flows` connections of which one meets the loss.
fn beta(flows: f64) -> f64 {
    (flows - 1.0 + BETA) / flows
}

#[cfg(test)]
mod tests;
