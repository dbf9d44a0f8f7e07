//! The received packets, and the time at which the peer is told.

use std::time::Duration;

use lunette_session::Time;

use super::ack_payload::{self, MAX_ACK_PAYLOAD_LEN};
use super::ranges::{Ranges, Span};
use crate::header::{Acknowledged, NOTHING_ACKNOWLEDGED};

/// How long an acknowledgement waits for a second packet or for a header that carries it anyway (RFC 9000 section
/// 13.2.1's max_ack_delay).
pub const ACK_DELAY: Duration = Duration::from_millis(5);

/// Packets that want an acknowledgement and make one due (RFC 9000 section 13.2.2).
const PACKETS_PER_ACK: u32 = 2;

/// The bits of a header reach back over this many numbers before the largest one.
const HEADER_BITS: u64 = 64;

/// The newest ranges that each Ack packet repeats, whether they are known to the peer or not. With them a peer that
/// lost several acknowledgements in a row learns all from the next one.
const RANGES_REPEATED: usize = 8;

/// A packet that has arrived and is authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The number of the packet.
    pub packet_number: u64,
    /// Whether its type is acknowledged ([`PacketType::is_acknowledged`](crate::header::PacketType::is_acknowledged)).
    pub is_acknowledged: bool,
    /// Whether it has the flag [`ACK_NOW`](crate::header::Flags::ACK_NOW).
    pub ack_now: bool,
    /// Whether it was marked "congestion experienced" on its way.
    pub is_marked: bool,
}

/// How an acknowledgement has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// In the header of a packet of any type.
    InHeader,
    /// In an Ack packet, with the payload of [`ranges`](Received::ranges).
    WithRanges,
}

/// The packet numbers that were received.
///
/// # When an acknowledgement is due
///
/// At once, when a packet arrived out of order, marked, or with ACK_NOW, or when two packets wait; otherwise 5 ms after
/// the first one that waits. Only packets of a type that is acknowledged count, so two sides never answer
/// acknowledgements with acknowledgements.
///
/// "Due" is no command to send for each packet. The caller asks after it has taken *all* packets of a batch and has
/// sent what it had to send; then one acknowledgement answers the batch, whether it has 2 packets or 40.
///
/// # In a header or with ranges
///
/// A header tells of the largest number and of the 64 before it. Each number is told twice, in two packets, so that the
/// loss of one does no harm. Where the bits do not reach back over all numbers that were not told twice, a header alone
/// does not count, and an Ack packet with ranges is due.
#[derive(Debug, Default)]
pub struct Received {
    ranges: Ranges,
    largest_at: Time,
    congestion_count: u32,
    /// Packets that wait for their acknowledgement.
    waiting: u32,
    due_at: Option<Time>,
    /// The smallest number that was not told, and the smallest one that was told once.
    untold_from: Option<u64>,
    told_once_from: Option<u64>,
}

impl Received {
    /// Takes a packet. The answer is `false` when it came before, or when it is so old that it may have: then it must
    /// be dropped.
    #[must_use = "a duplicate must be dropped"]
    pub fn receive(&mut self, packet: Arrival, now: Time) -> bool {
        let number = packet.packet_number;
        let before = self.ranges.largest();
        if number == NOTHING_ACKNOWLEDGED || !self.ranges.insert_one(number) {
            return false;
        }
        if before.is_none_or(|largest| number > largest) {
            self.largest_at = now;
        }
        if packet.is_marked {
            self.congestion_count = self.congestion_count.wrapping_add(1);
        }
        if packet.is_acknowledged {
            self.waiting = self.waiting.saturating_add(1);
            self.untold_from = Some(self.untold_from.map_or(number, |from| from.min(number)));
            let in_order = before.is_none_or(|largest| largest.checked_add(1) == Some(number));
            let at_once = !in_order || packet.ack_now || packet.is_marked || self.waiting >= PACKETS_PER_ACK;
            let due_at = if at_once { now } else { now + ACK_DELAY };
            self.due_at = Some(self.due_at.map_or(due_at, |earlier| earlier.min(due_at)));
        }
        true
    }

    /// The statement of the next header.
    pub fn acknowledged(&self, now: Time) -> Acknowledged {
        let Some(largest) = self.ranges.largest() else {
            return Acknowledged::NOTHING;
        };
        let reach = largest.saturating_sub(HEADER_BITS);
        let mut bits = 0;
        for span in self.ranges.newest_first().take_while(|span| span.last >= reach) {
            let Some(below) = largest.checked_sub(1) else { break };
            let (first, last) = (span.first.max(reach), span.last.min(below));
            if first <= last {
                bits |= u64::MAX >> (HEADER_BITS - 1 - (last - first)) << (below - last);
            }
        }
        let delay_us = u32::try_from((now - self.largest_at).as_micros()).unwrap_or(u32::MAX);
        Acknowledged { largest, bits, delay_us }
    }

    /// The payload of an Ack packet: what [`acknowledged`](Self::acknowledged) has no room for. Its length is returned;
    /// 0 when the header says everything.
    pub fn ranges(&self, payload: &mut [u8; MAX_ACK_PAYLOAD_LEN]) -> usize {
        let oldest_range_in_header =
            self.ranges.newest_first().last().is_none_or(|oldest| self.header_reaches(oldest.first));
        if oldest_range_in_header {
            return 0;
        }
        let from = self.not_told_twice_from().unwrap_or(u64::MAX);
        let told = self.ranges.newest_first().enumerate();
        let told = told.take_while(|(index, span)| *index < RANGES_REPEATED || span.last >= from);
        ack_payload::emit(told.map(|(_, span): (usize, Span)| span), payload)
    }

    /// Whether a header cannot tell everything that must be told, so that the acknowledgement needs an Ack packet.
    pub fn needs_ranges(&self) -> bool {
        self.not_told_twice_from().is_some_and(|from| !self.header_reaches(from))
    }

    /// Packets that came marked, modulo 2³²: the header's field.
    pub const fn congestion_count(&self) -> u32 {
        self.congestion_count
    }

    /// Whether an acknowledgement should leave now, in any packet.
    pub fn is_due(&self, now: Time) -> bool {
        self.due_at.is_some_and(|due_at| due_at <= now)
    }

    /// When the next acknowledgement is due.
    pub const fn next_timeout(&self) -> Option<Time> {
        self.due_at
    }

    /// A packet with the acknowledgement has left. A header that [does not reach](Self::needs_ranges) far enough
    /// changes nothing: the acknowledgement stays due.
    pub fn told(&mut self, told: Told) {
        if told == Told::InHeader && self.needs_ranges() {
            return;
        }
        self.told_once_from = self.untold_from.take();
        self.waiting = 0;
        self.due_at = None;
    }

    fn not_told_twice_from(&self) -> Option<u64> {
        match (self.untold_from, self.told_once_from) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (from, None) | (None, from) => from,
        }
    }

    fn header_reaches(&self, number: u64) -> bool {
        self.ranges.largest().is_none_or(|largest| number >= largest.saturating_sub(HEADER_BITS))
    }
}

#[cfg(test)]
mod tests;
