//! Parity of stream packets: a lost packet is rebuilt from the others of its group, without a round trip.
//!
//! A sender that loses packets puts its stream packets into *groups*: a group number and the position in it stand in
//! the header. Behind each group goes one Parity packet, the sum of its packets: bit by bit, modulo 2, of the fields of
//! the header that belong to the stream, and of the payloads. A receiver sums what comes. When all of a group but one
//! have come, the sum is that one.
//!
//! - A payload counts in the sum with a byte of 1 behind it and zeroes behind that, so the length of the lost one is
//!   found.
//! - The summed fields stand in the Parity packet's own header, so they are authenticated. The payload check is the sum
//!   of the payload checks: a rebuilt packet whose payload does not fit its payload check is dropped, which proves what
//!   travelled as well as its own packet would have.
//! - A rebuilt packet is not acknowledged. The sender takes it for lost, slows down, and sends it again: the data is
//!   there earlier, and the path is shared as without parity.

use std::collections::VecDeque;

use lunette_crc32c::crc32c;
use lunette_pdu::BHS_LEN;

use crate::header::{Flags, Header, PacketType};
use crate::limits::{MAX_PARITY_GROUP_PACKETS, MAX_PARITY_GROUP_SPAN, MAX_PARITY_GROUPS};

mod grouping;

pub use grouping::Grouping;

/// Stands behind the payload of each packet in a sum.
const END: u8 = 1;

/// The sum of packets.
#[derive(Debug, Clone)]
pub struct Sum {
    bhs: [u8; BHS_LEN],
    stream_offset: u64,
    pdu_offset: u32,
    payload_check: u32,
    payload: Vec<u8>,
}

impl Default for Sum {
    fn default() -> Self {
        Self { bhs: [0; BHS_LEN], stream_offset: 0, pdu_offset: 0, payload_check: 0, payload: Vec::new() }
    }
}

impl Sum {
    /// Adds a stream packet.
    fn add_packet<'a>(&mut self, header: &Header, payload: impl IntoIterator<Item = &'a [u8]>) {
        let mut at = 0;
        for piece in payload {
            self.add_bytes(at, piece);
            at += piece.len();
        }
        self.add_bytes(at, &[END]);
        self.add_fields(header);
    }

    /// Adds the sum that a Parity packet brings.
    fn add_parity(&mut self, header: &Header, payload: &[u8]) {
        self.add_bytes(0, payload);
        self.add_fields(header);
    }

    fn add_fields(&mut self, header: &Header) {
        add(&mut self.bhs, &header.bhs);
        self.stream_offset ^= header.stream_offset;
        self.pdu_offset ^= header.pdu_offset;
        self.payload_check ^= header.payload_check;
    }

    fn add_bytes(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.payload.len() < end {
            self.payload.resize(end, 0);
        }
        add(&mut self.payload[at..end], bytes);
    }

    /// Writes the sum into the header of a Parity packet, and gives its payload.
    pub fn into_packet(self, header: &mut Header) -> Vec<u8> {
        header.bhs = self.bhs;
        header.stream_offset = self.stream_offset;
        header.pdu_offset = self.pdu_offset;
        header.payload_check = self.payload_check;
        self.payload
    }

    /// The packet that is the sum. `like` is another one of its group. `None` when it was damaged.
    fn into_rebuilt(self, like: &Header) -> Option<Rebuilt> {
        let Self { bhs, stream_offset, pdu_offset, payload_check, payload } = self;
        let len = payload.iter().rposition(|byte| *byte != 0).filter(|at| payload[*at] == END)?;
        let payload = &payload[..len];
        if !like.flags.contains(Flags::SEALED) && crc32c(payload) != payload_check {
            return None;
        }
        let header = Header {
            packet_type: PacketType::Stream,
            log2_quantum: 0,
            stream_offset,
            pdu_offset,
            payload_check,
            bhs,
            ..*like
        };
        Some(Rebuilt { header, bytes: [&bhs, payload].concat() })
    }
}

fn add(sum: &mut [u8], bytes: &[u8]) {
    for (sum, byte) in sum.iter_mut().zip(bytes) {
        *sum ^= byte;
    }
}

/// A stream packet that was lost, as it was sent. What its header says beyond the stream is another packet's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// The header.
    pub header: Header,
    /// The basic header segment and the payload.
    pub bytes: Vec<u8>,
}

/// A group, as it comes.
#[derive(Debug)]
struct Group {
    number: u16,
    /// The packet number of the one that came first.
    first_came: u64,
    /// The positions that came.
    seen: u64,
    /// How many packets it has, when its Parity packet came.
    len: Option<u8>,
    /// Nothing is left to be rebuilt.
    is_done: bool,
    sum: Sum,
}

impl Group {
    fn add(&mut self, header: &Header, payload: &[u8]) -> Option<Rebuilt> {
        if self.is_done {
            return None;
        }
        if header.packet_type == PacketType::Parity {
            if self.len.replace(header.parity.position).is_some() {
                return None;
            }
            self.sum.add_parity(header, payload);
        } else {
            let bit = 1 << header.parity.position;
            if self.seen & bit != 0 {
                return None;
            }
            self.seen |= bit;
            self.sum.add_packet(header, [payload]);
        }
        let missing = u32::from(self.len?).checked_sub(self.seen.count_ones());
        self.is_done = missing.is_none_or(|missing| missing < 2);
        let sum = self.is_done.then(|| std::mem::take(&mut self.sum))?;
        if missing == Some(1) { sum.into_rebuilt(header) } else { None }
    }
}

/// The groups that a receiver sums.
#[derive(Debug, Default)]
pub struct Groups {
    /// The newest last.
    groups: VecDeque<Group>,
}

impl Groups {
    /// Takes a packet of a group that has not come before, authentic and undamaged; gives what was lost when it
    /// follows.
    ///
    /// Group numbers come round again, and packet numbers do not. A packet that was held back until its group's number
    /// is in use again would make a sum that was never sent, so its packet number must fit the group, too.
    pub fn add(&mut self, header: &Header, payload: &[u8]) -> Option<Rebuilt> {
        let (number, packet_number) = (header.parity.group, header.packet_number);
        let is_ahead = self.groups.back().is_none_or(|newest| {
            number.wrapping_sub(newest.number).cast_signed() > 0 && packet_number > newest.first_came
        });
        if is_ahead {
            if self.groups.len() == MAX_PARITY_GROUPS {
                self.groups.pop_front();
            }
            let sum = Sum::default();
            self.groups.push_back(Group { number, first_came: packet_number, seen: 0, len: None, is_done: false, sum });
        }
        // One that is not there is too old, or was overtaken by all of the next one.
        let is_its = |group: &&mut Group| {
            group.number == number && group.first_came.abs_diff(packet_number) < MAX_PARITY_GROUP_SPAN
        };
        self.groups.iter_mut().rev().find(is_its)?.add(header, payload)
    }
}

const _: () = assert!(MAX_PARITY_GROUP_PACKETS as u32 == u64::BITS);

#[cfg(test)]
mod tests;
