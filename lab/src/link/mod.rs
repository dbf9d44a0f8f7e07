//! One direction of an emulated link, as a state machine under the time of its caller.
//!
//! A packet waits in a queue that drops what does not fit (droptail), goes on the line at the line's rate, is lost or
//! not, and arrives after the delay. A lost packet takes its time on the line like any other. All of it is decided when
//! the packet is [offered](Link::offer), because nothing that comes later changes it: there are no events inside.

mod clock;
mod delay_line;
mod loss;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use serde::Serialize;

use clock::LineClock;
use delay_line::DelayLine;
use loss::{Loss, happens};

pub(crate) use loss::{LossModel, Share};

/// Nanoseconds since the link began.
pub(crate) type Nanos = u64;

/// Sequences of random numbers, so that one option does not change the decisions of another.
#[derive(Clone, Copy)]
enum Stream {
    Loss,
    Jitter,
    Reordering,
}

/// The settings of one direction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// `None` is a line that takes no time for a packet, and has no queue.
    pub(crate) bits_per_second: Option<u64>,
    pub(crate) delay: Nanos,
    /// Each packet takes up to that much longer; the order is kept.
    pub(crate) jitter: Nanos,
    pub(crate) loss: LossModel,
    pub(crate) reordering: Option<Reordering>,
    /// Bytes that may wait for the line, with those of the packet that is leaving.
    pub(crate) queue_bytes: u64,
    /// Packets that may be on their way, which bounds the memory.
    pub(crate) max_packets: usize,
    pub(crate) seed: u64,
    /// Makes the two directions of one seed different.
    pub(crate) direction: u64,
}

/// A share of the packets takes longer, and those behind pass them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reordering {
    pub(crate) share: Share,
    pub(crate) longer: Nanos,
}

/// The counts of packets in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Counts {
    pub(crate) offered: u64,
    pub(crate) offered_bytes: u64,
    pub(crate) arrived: u64,
    pub(crate) arrived_bytes: u64,
    /// Lost on the line.
    pub(crate) lost: u64,
    /// Dropped because the queue was full.
    pub(crate) dropped: u64,
    /// Dropped because the emulator has no room for more packets on their way.
    pub(crate) overflowed: u64,
    /// Held back so that others could pass.
    pub(crate) held: u64,
    pub(crate) longest_queue_bytes: u64,
}

/// One direction of a link that carries packets of type `P`.
pub(crate) struct Link<P> {
    settings: Settings,
    clock: LineClock,
    loss: Loss,
    jitter: Pcg64,
    reordering: Pcg64,
    line: DelayLine<(u32, P)>,
    counts: Counts,
}

impl<P> Link<P> {
    pub(crate) fn new(settings: Settings) -> Self {
        let random = |stream: Stream| {
            let stream = u128::from(settings.direction) << 8 | stream as u128;
            Pcg64::new(u128::from(settings.seed), stream)
        };
        Self {
            clock: LineClock::new(settings.bits_per_second),
            loss: Loss::new(settings.loss, random(Stream::Loss)),
            jitter: random(Stream::Jitter),
            reordering: random(Stream::Reordering),
            line: DelayLine::new(),
            counts: Counts::default(),
            settings,
        }
    }

    /// Takes a packet of that many bytes at time `now`, which never runs backwards. A packet that will not arrive
    /// comes back.
    pub(crate) fn offer(&mut self, now: Nanos, bytes: u32, packet: P) -> Option<P> {
        self.counts.offered += 1;
        self.counts.offered_bytes += u64::from(bytes);
        let backlog = self.clock.backlog_bytes(now);
        let queued = backlog + u64::from(bytes);
        // A line that is free takes any packet.
        if backlog > 0 && queued > self.settings.queue_bytes {
            self.counts.dropped += 1;
            return Some(packet);
        }
        if self.line.len() >= self.settings.max_packets {
            self.counts.overflowed += 1;
            return Some(packet);
        }
        if self.settings.bits_per_second.is_some() {
            self.counts.longest_queue_bytes = self.counts.longest_queue_bytes.max(queued);
        }
        let sent = self.clock.send(now, bytes);
        if self.loss.takes_next() {
            self.counts.lost += 1;
            return Some(packet);
        }
        let due = sent + self.settings.delay + self.extra_delay();
        let longer = self.settings.reordering.filter(|by| happens(by.share, &mut self.reordering));
        match longer {
            None => self.line.push(due, (bytes, packet)),
            Some(by) => {
                self.counts.held += 1;
                self.line.push_held(due + by.longer, (bytes, packet))
            }
        };
        None
    }

    /// When the next packet arrives.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.line.next_due()
    }

    /// Packets that wait for the line or are on their way.
    pub(crate) fn packets(&self) -> usize {
        self.line.len()
    }

    /// Takes the next packet that has arrived by `now`, and the time at which it was due.
    pub(crate) fn arrival(&mut self, now: Nanos) -> Option<(Nanos, P)> {
        let (due, (bytes, packet)) = self.line.pop_due(now)?;
        self.counts.arrived += 1;
        self.counts.arrived_bytes += u64::from(bytes);
        Some((due, packet))
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// From 0 to the jitter, all alike.
    fn extra_delay(&mut self) -> Nanos {
        if self.settings.jitter == 0 {
            return 0;
        }
        let choices = u128::from(self.settings.jitter) + 1;
        ((u128::from(self.jitter.next_u64()) * choices) >> 64) as Nanos
    }
}

#[cfg(test)]
mod tests;
