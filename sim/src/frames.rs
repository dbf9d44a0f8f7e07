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
}

const PLACES: [Place; 6] = [Place::Header, Place::Ahs, Place::HeaderDigest, Place::Data, Place::Pad, Place::DataDigest];

/// What a session agreed on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

impl Digests {
    /// Whether a damaged byte there is found.
    pub(crate) fn cover(self, place: Place) -> bool {
        match place {
            Place::Header | Place::Ahs | Place::HeaderDigest => self.header,
            Place::Data | Place::Pad | Place::DataDigest => self.data,
        }
    }
}

/// A run of bytes of one part of a PDU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) place: Place,
    /// Whose, as the first byte of its header says.
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
    digests: Digests,
    /// The login is through.
    full_feature: bool,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { head: [0; BHS_LEN], place: 0, seen: 0, len: BHS_LEN, digests: Digests::default(), full_feature: false }
    }

    /// The login is through: from the next PDU on, there are these digests.
    pub(crate) fn enter_full_feature(&mut self, digests: Digests) {
        self.digests = digests;
        self.full_feature = true;
        (self.place, self.seen, self.len) = (PLACES.len() - 1, 0, 0);
    }

    pub(crate) fn is_full_feature(&self) -> bool {
        self.full_feature
    }

    pub(crate) fn digests(&self) -> Digests {
        self.digests
    }

    /// The next region of `bytes` from `at` on; `None` at their end.
    pub(crate) fn next(&mut self, bytes: &[u8], at: usize) -> Option<Region> {
        while self.seen == self.len {
            self.place = (self.place + 1) % PLACES.len();
            (self.seen, self.len) = (0, self.part_len());
        }
        let len = (self.len - self.seen).min(bytes.len() - at);
        if len == 0 {
            return None;
        }
        if self.place == 0 {
            self.head[self.seen..self.seen + len].copy_from_slice(&bytes[at..at + len]);
        }
        self.seen += len;
        Some(Region { place: PLACES[self.place], opcode: self.header().opcode(), bytes: at..at + len })
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
            Place::HeaderDigest if self.digests.header => DIGEST_LEN,
            Place::Data => data_len,
            Place::Pad => pad_len(data_len),
            Place::DataDigest if self.digests.data && data_len > 0 => DIGEST_LEN,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SCSI command with an AHS of 8 bytes and 5 bytes of data, then a header alone.
    fn stream(digests: Digests) -> Vec<u8> {
        let mut head = [0; BHS_LEN];
        (head[0], head[4], head[7]) = (0x01, 2, 5);
        let mut bytes = head.to_vec();
        bytes.extend([1; 8]);
        bytes.extend(vec![2; if digests.header { 4 } else { 0 }]);
        bytes.extend([3; 8]);
        bytes.extend(vec![4; if digests.data { 4 } else { 0 }]);
        bytes.extend([0; BHS_LEN]);
        bytes
    }

    fn walk(digests: Digests, piece: usize) -> Vec<(Place, usize)> {
        let mut frames = Frames::new();
        frames.enter_full_feature(digests);
        let mut lens: Vec<(Place, usize)> = Vec::new();
        for piece in stream(digests).chunks(piece) {
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
        frames.enter_full_feature(Digests { header: true, data: true });
        let region = frames.next(&bytes, at).unwrap();
        assert_eq!((region.place, region.bytes.len()), (Place::Header, BHS_LEN));
    }

    #[test]
    fn every_byte_has_its_place_however_the_stream_is_cut() {
        use Place::*;
        for piece in [1, 7, 48, 1000] {
            let both = Digests { header: true, data: true };
            let expected =
                [(Header, 48), (Ahs, 8), (HeaderDigest, 4), (Data, 5), (Pad, 3), (DataDigest, 4), (Header, 48)];
            assert_eq!(walk(both, piece), expected);
            assert_eq!(walk(Digests::default(), piece), [(Header, 48), (Ahs, 8), (Data, 5), (Pad, 3), (Header, 48)]);
        }
    }
}
