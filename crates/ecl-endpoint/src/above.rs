//! The upper handler, as the association of one of its connections sees it.

use lunette_ecl::association::Upper as StreamUpper;
use lunette_pdu::BHS_LEN;
use lunette_reactor::{ConnectionId, Context};

use crate::Upper;

pub(crate) struct Above<'a, 'b, H> {
    pub(crate) upper: &'a mut H,
    pub(crate) cx: &'a mut Context<'b>,
    pub(crate) id: ConnectionId,
    pub(crate) rest: &'a mut Vec<u8>,
}

impl<H: Upper> Above<'_, '_, H> {
    /// Offers what was left for later once more.
    pub(crate) fn offer_rest(&mut self) {
        if !self.rest.is_empty() && self.upper.takes(self.id) {
            let taken = self.upper.received(self.cx, self.id, self.rest);
            self.rest.drain(..taken);
        }
    }
}

impl<H: Upper> StreamUpper for Above<'_, '_, H> {
    type Place = H::Place;

    fn takes(&self) -> bool {
        self.rest.is_empty() && self.upper.takes(self.id)
    }

    fn deliver(&mut self, bytes: &[u8]) {
        let taken = self.upper.received(self.cx, self.id, bytes);
        self.rest.extend_from_slice(&bytes[taken..]);
    }

    fn place_early(&mut self, bhs: &[u8; BHS_LEN], pdu_offset: u32, len: usize) -> Option<(Self::Place, &mut [u8])> {
        self.upper.place_early(self.id, bhs, pdu_offset, len)
    }

    fn placed(&mut self, place: Self::Place, skipped: usize, len: usize) -> bool {
        self.upper.placed(self.cx, self.id, place, skipped, len)
    }
}
