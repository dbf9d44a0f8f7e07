//! A wire that flips bits in data segments.

use std::collections::VecDeque;

use lunette_pdu::{BHS_LEN, Bhs, DIGEST_LEN, pad_len};
use lunette_testkit::{Dice, Format};

/// One direction of a connection in full feature phase with data digests. Headers are left alone.
pub(crate) struct Storm {
    header_digest: bool,
    /// The mean number of data segments for each one that is damaged.
    one_in: usize,
    header: Vec<u8>,
    /// Bytes up to the end of the PDU.
    rest: usize,
    /// The byte to be damaged, counted from the end of the PDU.
    hit: Option<usize>,
    pub(crate) hits: usize,
}

impl Storm {
    pub(crate) fn new(header_digest: bool, one_in: usize) -> Self {
        Self { header_digest, one_in, header: Vec::new(), rest: 0, hit: None, hits: 0 }
    }

    /// The bytes from `from` on have just been sent.
    pub(crate) fn pass(&mut self, wire: &mut VecDeque<u8>, from: usize, dice: &mut Dice) {
        for byte in wire.iter_mut().skip(from) {
            if self.header.len() < BHS_LEN {
                self.header.push(*byte);
                self.begin(dice);
                continue;
            }
            if self.hit == Some(self.rest) {
                *byte ^= 1 << dice.below(8);
                self.hits += 1;
            }
            self.rest -= 1;
            if self.rest == 0 {
                self.header.clear();
            }
        }
    }

    fn begin(&mut self, dice: &mut Dice) {
        let Some(bytes) = self.header.first_chunk::<BHS_LEN>() else { return };
        let bhs = Bhs::from(*bytes);
        let len = bhs.data_segment_len();
        let tail = if len > 0 { pad_len(len) + DIGEST_LEN } else { 0 };
        let format = Format { header_digest: self.header_digest, data_digest: true };
        self.rest = format.wire_len(&bhs) - BHS_LEN;
        self.hit = (len > 0 && dice.below(self.one_in) == 0).then(|| tail + 1 + dice.below(len));
        if self.rest == 0 {
            self.header.clear();
        }
    }
}
