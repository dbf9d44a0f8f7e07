//! The payload of an Ack packet: ranges of packet numbers.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0 | first | the smallest number of the newest range |
//! | 8 | last | its largest number, not above the header's *acknowledged* |
//! | 16, 32, … | first, last | the next older range, with at least one number between the two |
//!
//! Big-endian, at most [`MAX_ACK_RANGES`] ranges. The payload may be empty: then the header says everything.

use super::ranges::Span;
use crate::limits::MAX_ACK_RANGES;

const RANGE_LEN: usize = 16;

/// The longest payload.
pub const MAX_ACK_PAYLOAD_LEN: usize = MAX_ACK_RANGES * RANGE_LEN;

/// Why bytes are no payload of an Ack packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AckPayloadError {
    /// No whole number of ranges, or too many.
    #[error("{0} bytes are no list of at most {MAX_ACK_RANGES} ranges of {RANGE_LEN} bytes")]
    Length(usize),
    /// Ends before it begins, touches the range before it, or is beyond the largest number of the header.
    #[error("range {index} ({first} to {last}) is not below {bound}")]
    Order {
        /// The index of the range in the payload.
        index: usize,
        /// The first number of the range.
        first: u64,
        /// The last number of the range.
        last: u64,
        /// The number below which the range must end.
        bound: u64,
    },
}

/// Ranges of a payload that was checked, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct AckRanges<'a>(&'a [u8]);

impl<'a> AckRanges<'a> {
    /// No ranges: what a header without such a payload brings.
    pub const NONE: Self = Self(&[]);

    /// Checks the payload of a packet whose header acknowledges `largest`.
    ///
    /// # Errors
    ///
    /// [`AckPayloadError`] when its length is wrong or its ranges are not in order.
    pub fn parse(payload: &'a [u8], largest: u64) -> Result<Self, AckPayloadError> {
        if !payload.len().is_multiple_of(RANGE_LEN) || payload.len() > MAX_ACK_PAYLOAD_LEN {
            return Err(AckPayloadError::Length(payload.len()));
        }
        let ranges = Self(payload);
        let mut bound = largest.saturating_add(1);
        for (index, Span { first, last }) in ranges.iter().enumerate() {
            if first > last || last >= bound {
                return Err(AckPayloadError::Order { index, first, last, bound });
            }
            // The number between two ranges was not received, so the next range ends below it.
            bound = first.saturating_sub(1);
        }
        Ok(ranges)
    }

    /// The ranges, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = Span> + use<'a> {
        self.0.chunks_exact(RANGE_LEN).map(|range| {
            let (first, last) = range.split_at(RANGE_LEN / 2);
            Span { first: number(first), last: number(last) }
        })
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Writes `ranges`, the newest first, and returns the length of the payload. Ranges beyond [`MAX_ACK_RANGES`] are left
/// out.
pub fn emit(ranges: impl Iterator<Item = Span>, payload: &mut [u8; MAX_ACK_PAYLOAD_LEN]) -> usize {
    let mut len = 0;
    for (place, span) in payload.chunks_exact_mut(RANGE_LEN).zip(ranges) {
        let (first, last) = place.split_at_mut(RANGE_LEN / 2);
        first.copy_from_slice(&span.first.to_be_bytes());
        last.copy_from_slice(&span.last.to_be_bytes());
        len += RANGE_LEN;
    }
    len
}

#[cfg(test)]
mod tests;
