//! How a sender puts packets into groups: as many parity packets as losses call for.

use super::Sum;
use crate::header::{Header, ParityPosition};
use crate::limits::MAX_PARITY_GROUP_PACKETS;

/// The packets over which loss is measured: older ones count half, a quarter, and so on.
const MEASURED_PACKETS: u32 = 4096;

/// Packets without loss that are assumed before there are any: one early loss says little.
const ASSUMED_PACKETS: u32 = 256;

/// The length of a group, at which a quarter of a packet is lost on average: then two of a group are lost in one group
/// of forty.
const GROUPS_PER_LOSS: u32 = 4;

/// When nothing follows, a group may end early as long as parity takes no more than that many times the share of the
/// lost packets: the answers that a client waits for are at the end.
const EARLY_SHARE_PER_LOSS: u32 = 16;

/// The smallest group: parity never costs more than a quarter.
const MIN_GROUP_PACKETS: u32 = 4;

/// The groups of one direction as they are sent.
#[derive(Debug, Default)]
pub struct Grouping {
    is_on: bool,
    packets: u32,
    lost: u32,
    /// Losses that turned out to be late packets and are taken off `lost`.
    late: u64,
    /// The group that is open, or the last one.
    group: u16,
    len: u8,
    sum: Sum,
    /// Bytes that early parity may take.
    budget: usize,
}

impl Grouping {
    /// Groups are built when packets are lost.
    pub fn new() -> Self {
        Self { is_on: true, packets: ASSUMED_PACKETS, ..Self::default() }
    }

    /// A packet of the stream has arrived, or was lost.
    pub fn on_outcome(&mut self, is_lost: bool) {
        self.packets += 1;
        self.lost += u32::from(is_lost);
        if self.packets >= MEASURED_PACKETS {
            self.packets /= 2;
            self.lost /= 2;
        }
    }

    /// Notes how many packets in all were taken for lost and were late.
    pub fn on_late(&mut self, late: u64) {
        let more = late - self.late;
        self.lost = self.lost.saturating_sub(u32::try_from(more).unwrap_or(u32::MAX));
        self.late = late;
    }

    /// How many packets a group has.
    fn group_len(&self) -> u32 {
        let wanted = self.packets / self.lost.max(1) / GROUPS_PER_LOSS;
        wanted.clamp(MIN_GROUP_PACKETS, u32::from(MAX_PARITY_GROUP_PACKETS))
    }

    /// Where the next stream packet stands. It must be [added](Self::add), unless it belongs to no group.
    pub fn next_position(&mut self) -> ParityPosition {
        let is_wanted = self.len > 0 || self.is_on && self.lost > 0;
        if !is_wanted || self.len == MAX_PARITY_GROUP_PACKETS {
            return ParityPosition::NONE;
        }
        if self.len == 0 {
            self.group = self.group.checked_add(1).unwrap_or(1);
        }
        ParityPosition { group: self.group, position: self.len }
    }

    /// Adds a packet that stands at the next position.
    pub fn add<'a>(&mut self, header: &Header, payload: impl IntoIterator<Item = &'a [u8]>) {
        self.sum.add_packet(header, payload);
        self.len += 1;
        let cost = self.sum.payload.len();
        let share = self.packets / (EARLY_SHARE_PER_LOSS * self.lost).max(1);
        // Room for one early parity packet at most.
        self.budget = (self.budget + cost / share.max(MIN_GROUP_PACKETS) as usize).min(cost);
    }

    /// Whether the Parity packet of the open group should leave: the group is complete, or nothing follows for now and
    /// the share allows it.
    pub fn is_due(&self, is_idle: bool) -> bool {
        let is_complete = u32::from(self.len) >= self.group_len();
        self.len > 0 && (is_complete || is_idle && self.budget >= self.sum.payload.len())
    }

    /// Closes the group: what its Parity packet says.
    pub fn take(&mut self) -> (ParityPosition, Sum) {
        let position = ParityPosition { group: self.group, position: self.len };
        self.len = 0;
        let sum = std::mem::take(&mut self.sum);
        self.budget = self.budget.saturating_sub(sum.payload.len());
        (position, sum)
    }
}
