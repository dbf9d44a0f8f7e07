//! The PDUs in a stream as they are sent: which byte is what.

use std::ops::Range;

use lunette_pdu::{BHS_LEN, Bhs, DIGEST_LEN, Opcode, pad_len};

/// A part of a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Header,
    Ahs,
    HeaderDigest,
    Data,
    Pad,
    DataDigest,
    /// Not part of a PDU: a fixed interval marker (RFC 3720 appendix A).
    Marker,
}

impl Place {
    /// Whether the header digest covers it.
    pub(crate) fn is_of_header(self) -> bool {
        matches!(self, Self::Header | Self::Ahs | Self::HeaderDigest)
    }
}

/// The places in a PDU, in their order.
const PLACES: [Place; 6] = [Place::Header, Place::Ahs, Place::HeaderDigest, Place::Data, Place::Pad, Place::DataDigest];

const MARKER_LEN: usize = 8;

/// The agreement of a session about its streams.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Format {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// Bytes from one marker to the next.
    pub(crate) marker_interval: Option<usize>,
}

impl Format {
    /// Whether no harm of a damaged byte there goes unnoticed.
    pub(crate) fn cover(self, place: Place) -> bool {
        match place {
            _ if place.is_of_header() => self.header_digest,
            Place::Data | Place::Pad | Place::DataDigest => self.data_digest,
            // Only a receiver that has lost its place looks at one, and then at both copies of the pointer.
            _ => self.marker_interval.is_some(),
        }
    }
}

/// A run of bytes of one part of a PDU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) place: Place,
    /// The opcode of the PDU, as the first byte of its header says.
    pub(crate) opcode: Opcode,
    pub(crate) bytes: Range<usize>,
}

/// Walks one direction of a connection.
pub(crate) struct Frames {
    head: [u8; BHS_LEN],
    /// The part that comes next, how many bytes of it have been seen, and how many it has.
    place: usize,
    seen: usize,
    len: usize,
    format: Format,
    /// The login is through.
    full_feature: bool,
    /// Bytes that have gone by.
    total: usize,
    /// Bytes to the next marker, when there are any, and what is left of the one that has begun.
    to_marker: usize,
    of_marker: usize,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self {
            head: [0; BHS_LEN],
            place: 0,
            seen: 0,
            len: BHS_LEN,
            format: Format::default(),
            full_feature: false,
            total: 0,
            to_marker: usize::MAX,
            of_marker: 0,
        }
    }

    /// The login is through: this holds from the next PDU on. Markers stand where they would if the login had had them.
    pub(crate) fn enter_full_feature(&mut self, format: Format) {
        self.format = format;
        self.full_feature = true;
        if let Some(interval) = format.marker_interval {
            let gone = self.total % (interval + MARKER_LEN);
            self.to_marker = if gone <= interval { interval - gone } else { 2 * interval + MARKER_LEN - gone };
        }
        (self.place, self.seen, self.len) = (PLACES.len() - 1, 0, 0);
    }

    pub(crate) fn is_full_feature(&self) -> bool {
        self.full_feature
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// The next region of `bytes` from `at` on; `None` at their end.
    pub(crate) fn next(&mut self, bytes: &[u8], at: usize) -> Option<Region> {
        if let Some(interval) = self.format.marker_interval.filter(|_| self.to_marker == 0 && at < bytes.len()) {
            (self.to_marker, self.of_marker) = (interval, MARKER_LEN);
        }
        if self.of_marker > 0 {
            return self.next_of_marker(bytes, at);
        }
        while self.seen == self.len {
            self.place = (self.place + 1) % PLACES.len();
            (self.seen, self.len) = (0, self.part_len());
        }
        let len = (self.len - self.seen).min(bytes.len() - at).min(self.to_marker);
        if len == 0 {
            return None;
        }
        if self.place == 0 {
            self.head[self.seen..self.seen + len].copy_from_slice(&bytes[at..at + len]);
        }
        self.seen += len;
        self.total += len;
        if self.format.marker_interval.is_some() {
            self.to_marker -= len;
        }
        Some(Region { place: PLACES[self.place], opcode: self.header().opcode(), bytes: at..at + len })
    }

    fn next_of_marker(&mut self, bytes: &[u8], at: usize) -> Option<Region> {
        let len = self.of_marker.min(bytes.len() - at);
        self.of_marker -= len;
        self.total += len;
        (len > 0).then(|| Region { place: Place::Marker, opcode: self.header().opcode(), bytes: at..at + len })
    }

    /// The header whose last byte was just walked over.
    pub(crate) fn finished_header(&self) -> Option<&Bhs> {
        (PLACES[self.place] == Place::Header && self.seen == BHS_LEN).then(|| self.header())
    }

    /// Whether the PDU whose last byte was just walked over ends a login.
    pub(crate) fn login_ended(&self) -> bool {
        const FINAL_TO_FULL_FEATURE: u8 = 0x83;
        const STATUS_CLASS: usize = 36;
        let ends = self.header().opcode() == Opcode::LOGIN_RESPONSE
            && self.head[1] & FINAL_TO_FULL_FEATURE == FINAL_TO_FULL_FEATURE
            && self.head[STATUS_CLASS] == 0;
        ends && !self.full_feature && self.is_at_end()
    }

    fn is_at_end(&self) -> bool {
        let after = PLACES.len() - self.place - 1;
        let rest = (1..=after).map(|ahead| self.len_of(PLACES[self.place + ahead]));
        self.seen == self.len && rest.sum::<usize>() == 0
    }

    fn header(&self) -> &Bhs {
        Bhs::ref_from(&self.head).expect("48 bytes are a header")
    }

    fn part_len(&self) -> usize {
        self.len_of(PLACES[self.place])
    }

    fn len_of(&self, place: Place) -> usize {
        let data_len = self.header().data_segment_len();
        match place {
            Place::Header => BHS_LEN,
            Place::Ahs => self.header().ahs_len(),
            Place::HeaderDigest if self.format.header_digest => DIGEST_LEN,
            Place::Data => data_len,
            Place::Pad => pad_len(data_len),
            Place::DataDigest if self.format.data_digest && data_len > 0 => DIGEST_LEN,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Format = Format { header_digest: true, data_digest: true, marker_interval: None };

    /// A SCSI command with an AHS of 8 bytes and 5 bytes of data, then a header alone.
    fn stream(format: Format) -> Vec<u8> {
        let mut head = [0; BHS_LEN];
        (head[0], head[4], head[7]) = (0x01, 2, 5);
        let mut bytes = head.to_vec();
        bytes.extend([1; 8]);
        bytes.extend(vec![2; if format.header_digest { 4 } else { 0 }]);
        bytes.extend([3; 8]);
        bytes.extend(vec![4; if format.data_digest { 4 } else { 0 }]);
        bytes.extend([0; BHS_LEN]);
        bytes
    }

    fn walk(format: Format, piece: usize) -> Vec<(Place, usize)> {
        let mut frames = Frames::new();
        frames.enter_full_feature(format);
        let mut lens: Vec<(Place, usize)> = Vec::new();
        for piece in stream(format).chunks(piece) {
            let mut at = 0;
            while let Some(region) = frames.next(piece, at) {
                match lens.last_mut().filter(|(place, _)| *place == region.place) {
                    Some((_, len)) => *len += region.bytes.len(),
                    None => lens.push((region.place, region.bytes.len())),
                }
                at = region.bytes.end;
            }
        }
        lens
    }

    #[test]
    fn the_answer_that_ends_a_login_has_no_digests_yet() {
        let mut frames = Frames::new();
        let mut bytes = [0; BHS_LEN + 4 + BHS_LEN];
        (bytes[0], bytes[1], bytes[7]) = (0x23, 0x87, 3);
        let mut at = 0;
        while !frames.login_ended() {
            at = frames.next(&bytes, at).unwrap().bytes.end;
        }
        assert_eq!(at, BHS_LEN + 4);
        frames.enter_full_feature(BOTH);
        let region = frames.next(&bytes, at).unwrap();
        assert_eq!((region.place, region.bytes.len()), (Place::Header, BHS_LEN));
    }

    #[test]
    fn every_byte_has_its_place_however_the_stream_is_cut() {
        use Place::*;
        for piece in [1, 7, 48, 1000] {
            let expected =
                [(Header, 48), (Ahs, 8), (HeaderDigest, 4), (Data, 5), (Pad, 3), (DataDigest, 4), (Header, 48)];
            assert_eq!(walk(BOTH, piece), expected);
            assert_eq!(walk(Format::default(), piece), [(Header, 48), (Ahs, 8), (Data, 5), (Pad, 3), (Header, 48)]);
        }
    }

    #[test]
    fn markers_stand_between_the_bytes_of_pdus() {
        use Place::*;
        let mut frames = Frames::new();
        assert_eq!(frames.next(&[0; 44], 0).unwrap().bytes.len(), 44);
        frames.enter_full_feature(Format { marker_interval: Some(64), ..Format::default() });
        let (bytes, mut at, mut found) = ([0; 120], 0, Vec::new());
        while let Some(region) = frames.next(&bytes, at) {
            at = region.bytes.end;
            found.push((region.place, region.bytes.len()));
        }
        // 20 bytes are left to the first marker.
        assert_eq!(
            found,
            [(Header, 20), (Marker, 8), (Header, 28), (Header, 36), (Marker, 8), (Header, 12), (Header, 8)]
        );
    }
}
