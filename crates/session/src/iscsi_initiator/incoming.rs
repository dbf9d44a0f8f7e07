//! The Data-In of one command: where it may come, and what has come (RFC 7143 sections 11.7, 13.13, 13.18 and 13.19).

use std::ops::Range;

use lunette_pdu::DataIn;

use super::error::{SessionError, broken};
use crate::extents::Extents;
use crate::keys::Parameters;

#[derive(Debug, Default)]
pub(crate) struct Incoming {
    arrived: Extents,
    /// Sequences that have ended lie below. Those that follow in order do not.
    floor: u32,
    /// How far the current sequence has reached, or the last one when none is open. In order, the next byte.
    reach: u32,
    /// Bytes of the current sequence: since the last F bit.
    burst: u32,
    /// Bytes that have come may come once more: the target began again on another connection.
    again: bool,
}

impl Incoming {
    /// Takes the header of a Data-In into a buffer of `room` bytes. Its bytes have a place afterwards, and are the
    /// first there.
    #[inline]
    pub(crate) fn accept(&mut self, pdu: &DataIn, room: u64, parameters: &Parameters) -> Result<(), SessionError> {
        self.check_order(pdu.buffer_offset, parameters)?;
        let Range { start, end } = range(pdu, room)?;
        let burst = self.burst + (end - start);
        if burst > parameters.max_burst_len {
            let most = parameters.max_burst_len;
            return Err(broken("13.13", format!("a sequence of {burst} bytes with MaxBurstLength={most}")));
        }
        self.insert(start..end)?;
        self.reach = if self.burst == 0 { end } else { self.reach.max(end) };
        self.burst = burst;
        if pdu.final_ {
            self.floor = self.reach;
            self.burst = 0;
        }
        Ok(())
    }

    /// Accepts a Data-In at a recovery level above 0. What was lost comes later than in its order, so no order is kept.
    pub(crate) fn accept_anywhere(&mut self, pdu: &DataIn, room: u64) -> Result<(), SessionError> {
        let range = range(pdu, room)?;
        if self.again {
            self.arrived.remove(&range).map_err(|why| broken("11.7.6", why.to_string()))?;
        }
        self.insert(range)
    }

    /// The bytes of an accepted PDU were damaged.
    pub(crate) fn discard(&mut self, pdu: &DataIn) -> Result<(), SessionError> {
        let end = pdu.buffer_offset.saturating_add(pdu.data_segment_len as u32);
        self.arrived.remove(&(pdu.buffer_offset..end)).map_err(|why| broken("11.7.6", why.to_string()))
    }

    #[inline]
    fn insert(&mut self, range: Range<u32>) -> Result<(), SessionError> {
        let place = |why| broken("11.7.6", format!("Data-In for bytes {}..{}: {why}", range.start, range.end));
        self.arrived.insert(range.clone()).map_err(place)
    }

    /// Where the next PDU may begin. Its bytes must be new in any case.
    #[inline]
    fn check_order(&self, offset: u32, parameters: &Parameters) -> Result<(), SessionError> {
        let (pdus, sequences) = (parameters.data_pdu_in_order, parameters.data_sequence_in_order);
        let begins = self.burst == 0;
        let (due, exact) = match (pdus, sequences) {
            (true, true) => (self.reach, true),
            (true, false) if !begins => (self.reach, true),
            (_, false) => return Ok(()),
            (false, true) => (self.floor, false),
        };
        if offset < due || (exact && offset > due) {
            let how = if offset < due { "overlaps data that has come" } else { "leaves a gap" };
            return Err(broken("11.7.6", format!("Data-In at offset {offset} {how}: {due} was due")));
        }
        Ok(())
    }

    /// Allows that PDUs which have come are sent once more: another connection goes on.
    pub(crate) fn comes_again(&mut self) {
        self.again = true;
    }

    /// Bytes that have come.
    pub(crate) fn received(&self) -> u32 {
        self.arrived.len_bytes()
    }

    /// The bytes from the start that have no gap between them.
    pub(crate) fn front(&self) -> u32 {
        self.arrived.front()
    }

    /// Whether the F bit of a sequence is still to come.
    pub(crate) fn in_sequence(&self) -> bool {
        self.burst > 0
    }
}

/// The place of a PDU in a buffer of `room` bytes.
#[inline]
fn range(pdu: &DataIn, room: u64) -> Result<Range<u32>, SessionError> {
    let end = u64::from(pdu.buffer_offset) + pdu.data_segment_len as u64;
    if end > room {
        return Err(broken("11.7.6", format!("Data-In up to byte {end} of a buffer of {room}")));
    }
    Ok(pdu.buffer_offset..end as u32)
}
