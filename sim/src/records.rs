//! The records of TLS in a stream as they are sent: which byte is what (RFC 8446 section 5.1).

use std::ops::Range;

use crate::frames::Place;
use crate::wire::Side;

const HEADER_LEN: usize = 5;

/// The front of a ClientHello, which is laid out in one way: up to its cipher suites. The order of its extensions is
/// random, and so is the number that stands at a place of its keys. No seed draws what comes of a change there.
const HELLO_FRONT_LEN: usize = 4 + 2 + 32 + 1 + 32 + 2;

/// Walks one direction of a connection.
pub(crate) struct Records {
    header: [u8; HEADER_LEN],
    /// Bytes of the record that have been seen, its header among them.
    seen: usize,
    /// The record is that of a ClientHello.
    is_hello: bool,
}

/// A run of bytes of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The header or the data; `None` where a change has no outcome that is known.
    pub(crate) place: Option<Place>,
    pub(crate) bytes: Range<usize>,
}

impl Records {
    pub(crate) fn new(to: Side) -> Self {
        Self { header: [0; HEADER_LEN], seen: 0, is_hello: to == Side::Target }
    }

    /// The next part of `bytes` from `at` on; `None` at their end.
    pub(crate) fn next(&mut self, bytes: &[u8], at: usize) -> Option<Part> {
        if self.seen >= HEADER_LEN && self.seen == HEADER_LEN + self.body_len() {
            (self.seen, self.is_hello) = (0, false);
        }
        let (place, end) = match self.seen.checked_sub(HEADER_LEN) {
            None => (Some(Place::Header), HEADER_LEN),
            Some(of_body) if self.is_hello && of_body < HELLO_FRONT_LEN => {
                (Some(Place::Data), HEADER_LEN + self.body_len().min(HELLO_FRONT_LEN))
            }
            Some(_) => ((!self.is_hello).then_some(Place::Data), HEADER_LEN + self.body_len()),
        };
        let len = (end - self.seen).min(bytes.len() - at);
        if place == Some(Place::Header) {
            self.header[self.seen..self.seen + len].copy_from_slice(&bytes[at..at + len]);
        }
        self.seen += len;
        (len > 0).then_some(Part { place, bytes: at..at + len })
    }

    /// The type and the length of the record whose header was just walked over.
    pub(crate) fn finished_header(&self) -> Option<(u8, usize)> {
        (self.seen == HEADER_LEN).then(|| (self.header[0], self.body_len()))
    }

    fn body_len(&self) -> usize {
        usize::from(u16::from_be_bytes([self.header[3], self.header[4]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello of 100 bytes, a record without a body, and one of 3 bytes.
    fn stream() -> Vec<u8> {
        let hello = [&[22, 3, 1, 0, 100], [1; 100].as_slice()].concat();
        [hello.as_slice(), &[20, 3, 3, 0, 0], &[23, 3, 3, 0, 3, 7, 7, 7]].concat()
    }

    fn walk(to: Side, piece: usize) -> Vec<(Option<Place>, usize)> {
        let mut records = Records::new(to);
        let mut lens: Vec<(Option<Place>, usize)> = Vec::new();
        for piece in stream().chunks(piece) {
            let mut at = 0;
            while let Some(Part { place, bytes }) = records.next(piece, at) {
                match lens.last_mut().filter(|(last, _)| *last == place) {
                    Some((_, len)) => *len += bytes.len(),
                    None => lens.push((place, bytes.len())),
                }
                at = bytes.end;
            }
        }
        lens
    }

    #[test]
    fn every_byte_of_a_record_has_its_place_however_the_stream_is_cut() {
        let [header, data] = [Some(Place::Header), Some(Place::Data)];
        for piece in [1, 7, 1000] {
            assert_eq!(walk(Side::Initiator, piece), [(header, 5), (data, 100), (header, 10), (data, 3)]);
            let to_target = [(header, 5), (data, 73), (None, 27), (header, 10), (data, 3)];
            assert_eq!(walk(Side::Target, piece), to_target, "the extensions of a ClientHello are left alone");
        }
    }
}
