//! The bound on bytes in flight beyond which a path loses too much: the long-term bound of BBR, version 3
//! (draft-ietf-ccwg-bbr, "Probing for Bandwidth In ProbeBW").
//!
//! A path that loses a few packets whatever is sent is no reason to send less. One that loses more than 2% of what was
//! in flight has a queue that overflows: then no more than 0.7 of that may be in flight, and the sender leaves room
//! below that bound, which a connection beside it can take. Each try of the sender to get more raises the bound again,
//! slowly at first. Only losses of a try make it smaller; others may be the work of the connection beside it.

use std::num::NonZeroU64;

/// A round trip lost too much when it lost more than one in this many bytes in flight: 2% (BBR.LossThresh).
const LOSS_DIVISOR: u64 = 50;

/// The rest of the bound after a loss, in tenths (BBR.Beta).
const BETA_TENTHS: u64 = 7;

/// The bytes in flight between the tries, in percent of the bound: 1 − BBR.Headroom.
const HEADROOM_PERCENT: u64 = 85;

/// Round trips of one try in which the bound is raised: by 31 datagrams together. The draft goes on until packets are
/// lost. In simulation, with a bound of all that was in flight, that took ten times as much as one connection of CUBIC
/// got on a path of 155 Mbit/s and 50 ms.
const RAISED_ROUNDS: u32 = 5;

/// The bound, and the round trip that may change it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bound {
    bytes: Option<NonZeroU64>,
    /// Bytes in flight when the round trip began.
    in_flight: u64,
    /// Bytes that were lost in the round trip.
    lost: u64,
    /// Whether the bytes in flight were too many.
    is_exceeded: bool,
    /// The sender had too little to send.
    is_limited: bool,
    /// Round trips since the last try.
    since_try: u32,
    /// Round trips of the try in which the bound was raised.
    raised: u32,
}

/// A round trip as it begins.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// Bytes in flight.
    pub in_flight: u64,
    /// The sender had too little to send.
    pub is_limited: bool,
    /// The sender tries to get more.
    pub is_try: bool,
    /// The length of a datagram, when the bound has kept a try from having more in flight.
    pub raise: Option<u64>,
}

impl Bound {
    /// Whether the path has lost too much yet.
    pub const fn exists(&self) -> bool {
        self.bytes.is_some()
    }

    /// Whether a try has gone on for as long as it may.
    pub const fn is_raised(&self) -> bool {
        self.raised >= RAISED_ROUNDS
    }

    /// Bytes that may be in flight, in a try or between tries.
    pub fn window(&self, is_try: bool) -> u64 {
        let part = |bytes: NonZeroU64| if is_try { bytes.get() } else { bytes.get() / 100 * HEADROOM_PERCENT };
        self.bytes.map_or(u64::MAX, part)
    }

    /// Bytes were lost. The answer is whether the round trip has just lost too many: more than 2%, and at least `least`
    /// bytes.
    pub const fn on_lost(&mut self, bytes: u64, least: u64) -> bool {
        self.lost = self.lost.saturating_add(bytes);
        let exceeds = !self.is_exceeded && self.lost > self.in_flight / LOSS_DIVISOR && self.lost >= least;
        self.is_exceeded |= exceeds;
        exceeds
    }

    /// The round trip has lost too much: the bound is 0.7 of what was in flight, and at least `product`, which fills
    /// the path without a queue. It stays as it is when the losses cannot come from a try, or the sender had too little
    /// to send.
    pub fn set(&mut self, product: u64) {
        // What a try has sent is acknowledged, or lost, up to one round trip later.
        if !self.is_limited && (self.bytes.is_none() || self.since_try <= 1) {
            self.bytes = NonZeroU64::new((self.in_flight / 10 * BETA_TENTHS).max(product));
        }
    }

    /// The sender tries to get more.
    pub const fn on_try(&mut self) {
        self.since_try = 0;
    }

    /// A round trip begins.
    pub fn on_round(&mut self, begins: Round) {
        self.since_try = self.since_try.saturating_add(1);
        if let Some(bytes) = self.bytes.filter(|_| !self.is_exceeded) {
            // What was carried is no more than the path takes.
            let carried = bytes.get().max(self.in_flight);
            let raised = begins.raise.map_or(0, |datagram_len| datagram_len << self.raised.min(RAISED_ROUNDS));
            self.bytes = NonZeroU64::new(carried.saturating_add(raised));
        }
        self.raised = if begins.is_try { self.raised + u32::from(begins.raise.is_some()) } else { 0 };
        (self.in_flight, self.is_limited) = (begins.in_flight, begins.is_limited);
        (self.lost, self.is_exceeded) = (0, false);
    }
}

#[cfg(test)]
mod tests;
