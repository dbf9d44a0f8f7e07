//! The sent packets, and their fate (RFC 9002 section 6.1).

use std::collections::VecDeque;
use std::time::Duration;

use lunette_session::Time;

use super::delivery::{Arrived, Delivery, Departure, Sample};
use super::ranges::{Ranges, Span};
use super::reordering::Reordering;
use crate::limits::MAX_PACKETS_IN_FLIGHT;

/// Losses that are remembered, to see whether their packets were only late.
const REMEMBERED_LOSSES: usize = 256;

/// Packets without an acknowledgement of their own whose time of sending is remembered, for the round-trip time.
const REMEMBERED_OTHERS: usize = 32;

/// A packet of a type that is acknowledged, as it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentPacket<C> {
    /// The packet's number, from [`Recovery::next_packet_number`](super::Recovery::next_packet_number).
    pub packet_number: u64,
    /// The length of its datagram.
    pub bytes: usize,
    /// Whether it asks if the path carries its length. The loss of such a packet says nothing about congestion (RFC
    /// 8899 section 3).
    pub is_path_probe: bool,
    /// The content of the packet. It comes back in an [`Outcome`], once.
    pub content: C,
}

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<C> {
    /// The peer has it.
    Acknowledged(C),
    /// The packet is taken for lost: its content must be sent again in a packet with another number.
    Lost(C),
}

/// Packets in flight: sent, and neither acknowledged nor taken for lost.
#[derive(Debug)]
pub struct Sent<C> {
    /// In the order of numbers. What was acknowledged behind one in flight stays as an empty slot.
    slots: VecDeque<Slot<C>>,
    acknowledged: Ranges,
    bytes_in_flight: u64,
    packets_in_flight: usize,
    last_sent_at: Time,
    /// In the order of numbers.
    losses: VecDeque<Loss>,
    reordering: Reordering,
    others: [(u64, Time); REMEMBERED_OTHERS],
    /// The first of the losses between which nothing was acknowledged.
    streak: Option<Loss>,
    delivery: Delivery,
}

#[derive(Debug)]
struct Slot<C> {
    packet_number: u64,
    sent_at: Time,
    bytes: u32,
    is_path_probe: bool,
    departure: Departure,
    content: Option<C>,
}

#[derive(Debug, Clone, Copy)]
struct Loss {
    packet_number: u64,
    sent_at: Time,
    by_time: bool,
}

/// Which acknowledged packets let the window grow.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    /// The time of the last decrease, after which packets were sent,
    pub sent_after: Option<Time>,
    /// and with a smaller number than this: later ones did not fill the window (RFC 9002 section 7.8).
    pub below: u64,
}

/// The news of an acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
pub struct Newly {
    /// Packets that were in flight.
    pub packets: u64,
    /// Bytes of those that let the window grow.
    pub growth_bytes: u64,
    /// Number and time of the newest one.
    pub newest: Option<(u64, Time)>,
    /// Packets that had been taken for lost.
    pub late: u32,
    /// When the newest of these was sent.
    pub late_sent_at: Option<Time>,
    /// Bytes of packets that were in flight.
    pub bytes: u64,
    /// The newly acknowledged packet that left last.
    pub arrived: Option<Arrived>,
}

/// The packets that were taken for lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets, without [path probes](SentPacket::is_path_probe).
    pub packets: u32,
    /// Bytes of these.
    pub bytes: u64,
    /// When the newest of them was sent.
    pub newest_sent_at: Option<Time>,
    /// Whether nothing came through for so long that the window must begin again (RFC 9002 section 7.6).
    pub is_persistent: bool,
}

/// The times that decide about losses.
#[derive(Debug, Clone, Copy)]
pub struct LossTimes {
    /// max(smoothed, latest) round trip.
    pub round_trip: Duration,
    /// How long everything must be lost for persistent congestion.
    pub persistent: Duration,
    /// When the path was measured first: what was sent before does not count for persistent congestion.
    pub measured_at: Option<Time>,
}

impl<C> Default for Sent<C> {
    fn default() -> Self {
        Self {
            slots: VecDeque::new(),
            acknowledged: Ranges::default(),
            bytes_in_flight: 0,
            packets_in_flight: 0,
            last_sent_at: Time::default(),
            losses: VecDeque::new(),
            reordering: Reordering::default(),
            others: [(u64::MAX, Time::default()); REMEMBERED_OTHERS],
            streak: None,
            delivery: Delivery::default(),
        }
    }
}

impl<C> Sent<C> {
    /// A packet has left. Numbers must ascend.
    pub fn on_sent(&mut self, packet: SentPacket<C>, now: Time) {
        let SentPacket { packet_number, bytes, is_path_probe, content } = packet;
        debug_assert!(self.slots.back().is_none_or(|last| last.packet_number < packet_number), "numbers ascend");
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let departure = self.delivery.on_sent(self.packets_in_flight == 0, now);
        let content = Some(content);
        self.slots.push_back(Slot { packet_number, sent_at: now, bytes, is_path_probe, departure, content });
        self.bytes_in_flight += u64::from(bytes);
        self.packets_in_flight += 1;
        self.last_sent_at = now;
    }

    /// A packet has left that is not acknowledged for its own sake (Ack, Close).
    pub fn on_other_sent(&mut self, packet_number: u64, now: Time) {
        self.others[other_place(packet_number)] = (packet_number, now);
    }

    /// The peer has received the packets of `span`.
    pub fn on_acknowledged(
        &mut self,
        span: Span,
        growth: Growth,
        newly: &mut Newly,
        outcome: &mut impl FnMut(Outcome<C>),
    ) {
        let Self { slots, acknowledged, bytes_in_flight, packets_in_flight, losses, reordering, delivery, .. } = self;
        let largest_before = acknowledged.largest();
        acknowledged.insert(span, |span| {
            let at = place(slots, span.first);
            for slot in slots.range_mut(at..).take_while(|slot| slot.packet_number <= span.last) {
                let Some(content) = slot.content.take() else { continue };
                *bytes_in_flight -= u64::from(slot.bytes);
                *packets_in_flight -= 1;
                newly.packets += 1;
                newly.bytes += u64::from(slot.bytes);
                delivery.on_arrived(slot.departure, slot.sent_at, slot.bytes.into(), &mut newly.arrived);
                newly.newest = newly.newest.max(Some((slot.packet_number, slot.sent_at)));
                if slot.packet_number < growth.below && growth.sent_after.is_none_or(|after| slot.sent_at > after) {
                    newly.growth_bytes += u64::from(slot.bytes);
                }
                outcome(Outcome::Acknowledged(content));
            }
            // What was taken for lost was only late, because the path changes the order of packets.
            let begin = losses.partition_point(|loss| loss.packet_number < span.first);
            let end = losses.partition_point(|loss| loss.packet_number <= span.last);
            for loss in losses.drain(begin..end) {
                newly.late += 1;
                newly.late_sent_at = newly.late_sent_at.max(Some(loss.sent_at));
                let distance = largest_before.map_or(0, |largest| largest.saturating_sub(loss.packet_number));
                reordering.on_late(distance, loss.by_time);
            }
        });
        self.forget_front();
    }

    /// Takes packets for lost that are older than acknowledged ones by the thresholds of RFC 9002 section 6.1.
    pub fn detect_losses(&mut self, times: LossTimes, now: Time, outcome: &mut impl FnMut(Outcome<C>)) -> Losses {
        let mut losses = Losses::default();
        let Some(largest) = self.acknowledged.largest() else {
            return losses;
        };
        // Numbers and times of sending ascend together, so what is lost is always at the front.
        while let Some(slot) = self.slots.front().filter(|slot| slot.packet_number < largest) {
            let by_number = largest - slot.packet_number >= self.reordering.packets();
            let by_time = slot.sent_at + self.reordering.delay(times.round_trip) <= now;
            if !by_number && !by_time {
                break;
            }
            let Some(mut slot) = self.slots.pop_front() else { break };
            self.bytes_in_flight -= u64::from(slot.bytes);
            self.packets_in_flight -= 1;
            if !slot.is_path_probe {
                let loss = Loss { packet_number: slot.packet_number, sent_at: slot.sent_at, by_time: !by_number };
                losses.packets += 1;
                losses.bytes += u64::from(slot.bytes);
                losses.newest_sent_at = Some(slot.sent_at);
                losses.is_persistent |= self.streak_lasts(loss, times);
                self.remember(loss);
            }
            if let Some(content) = slot.content.take() {
                outcome(Outcome::Lost(content));
            }
            self.forget_front();
        }
        losses
    }

    /// The statement of an acknowledgement about the path. `shortest` is the shortest round trip.
    pub fn sample(&mut self, newly: &Newly, shortest: Duration, now: Time) -> Option<Sample> {
        let arrived = newly.arrived?;
        Some(self.delivery.sample(arrived, newly.bytes, shortest, now))
    }

    /// Notes that nothing more is to be sent for now.
    pub fn on_nothing_to_send(&mut self) {
        self.delivery.on_nothing_to_send(self.bytes_in_flight);
    }

    /// Packets that were sent before `now` took another path.
    pub fn on_path_change(&mut self, now: Time) {
        self.delivery.on_path_change(now);
    }

    /// Whether a packet that was sent then took the path of now.
    pub fn is_of_path(&self, sent_at: Time) -> bool {
        self.delivery.is_of_path(sent_at)
    }

    /// Losses have made the window smaller: one event, however many packets it took.
    pub fn on_decrease(&mut self) {
        self.reordering.on_decrease();
    }

    /// When the oldest packet in flight is lost by time, if it is older than an acknowledged one.
    pub fn loss_time(&self, round_trip: Duration) -> Option<Time> {
        let largest = self.acknowledged.largest()?;
        let oldest = self.slots.front().filter(|slot| slot.packet_number < largest)?;
        Some(oldest.sent_at + self.reordering.delay(round_trip))
    }

    /// Whether losses without an acknowledgement between them last for the time of persistent congestion (RFC 9002
    /// section 7.6.2).
    fn streak_lasts(&mut self, loss: Loss, times: LossTimes) -> bool {
        if times.measured_at.is_none_or(|measured_at| loss.sent_at < measured_at) {
            return false;
        }
        let goes_on =
            |begin: &Loss| !self.acknowledged.intersects(Span { first: begin.packet_number, last: loss.packet_number });
        let begin = *self.streak.insert(self.streak.filter(goes_on).unwrap_or(loss));
        let lasts = loss.sent_at - begin.sent_at > times.persistent;
        if lasts {
            self.streak = None;
        }
        lasts
    }

    fn remember(&mut self, loss: Loss) {
        if self.losses.len() == REMEMBERED_LOSSES {
            self.losses.pop_front();
        }
        self.losses.push_back(loss);
    }

    fn forget_front(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.content.is_none()) {
            self.slots.pop_front();
        }
    }

    /// When the packet of this number was sent, if it is one of the last that are not acknowledged for their own sake.
    pub fn other_sent_at(&self, packet_number: u64) -> Option<Time> {
        let (number, sent_at) = self.others[other_place(packet_number)];
        (number == packet_number).then_some(sent_at)
    }

    /// The content of the oldest packet in flight: what a probe best carries once more.
    pub fn oldest(&self) -> Option<&C> {
        self.slots.front().and_then(|slot| slot.content.as_ref())
    }

    /// Bytes in flight.
    pub const fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Packets in flight.
    pub const fn packets_in_flight(&self) -> usize {
        self.packets_in_flight
    }

    /// Whether as many packets are remembered as may be.
    pub fn is_full(&self) -> bool {
        self.slots.len() >= MAX_PACKETS_IN_FLIGHT
    }

    /// When the last packet was sent that is acknowledged.
    pub const fn last_sent_at(&self) -> Time {
        self.last_sent_at
    }

    /// How far the path changes the order of packets.
    pub const fn reordering(&self) -> &Reordering {
        &self.reordering
    }
}

/// The index of the first slot whose number is not below `number`.
fn place<C>(slots: &VecDeque<Slot<C>>, number: u64) -> usize {
    match slots.front() {
        Some(front) if front.packet_number < number => slots.partition_point(|slot| slot.packet_number < number),
        _ => 0,
    }
}

const fn other_place(packet_number: u64) -> usize {
    (packet_number % REMEMBERED_OTHERS as u64) as usize
}

#[cfg(test)]
mod tests;
