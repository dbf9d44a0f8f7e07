//! The upper handler, as the association of one of its connections sees it.

use lunette_ecl::association::Upper as StreamUpper;
use lunette_pdu::BHS_LEN;
use lunette_reactor::{ConnectionId, Context};

use crate::Upper;

/// Pieces up to this length are collected: PDUs without data. To copy one costs less than to call the upper handler for
/// it.
const MAX_PIECE_LEN: usize = 256;

/// Bytes that are collected at most, with those that the upper handler has left for later.
const MAX_COLLECTED_LEN: usize = 64 * 1024;

pub(crate) struct Above<'a, 'b, H> {
    pub(crate) upper: &'a mut H,
    pub(crate) cx: &'a mut Context<'b>,
    pub(crate) id: ConnectionId,
    /// Bytes that are next in the stream: the upper handler has left them for later, or was not offered them yet.
    pub(crate) rest: &'a mut Vec<u8>,
    /// The upper handler has left the first of these in this batch.
    pub(crate) leaves: &'a mut bool,
    /// Whether short pieces may wait for each other. Not in a login, whose end changes what the next bytes mean.
    pub(crate) is_bound: bool,
}

impl<H: Upper> Above<'_, '_, H> {
    /// Offers what was collected or left for later.
    pub(crate) fn offer_rest(&mut self) {
        if !self.rest.is_empty() && self.upper.takes(self.id) {
            let taken = self.upper.received(self.cx, self.id, self.rest);
            self.rest.drain(..taken);
            *self.leaves = !self.rest.is_empty();
        }
    }
}

impl<H: Upper> StreamUpper for Above<'_, '_, H> {
    type Place = H::Place;

    fn takes(&mut self) -> bool {
        self.offer_rest();
        self.rest.is_empty() && self.upper.takes(self.id)
    }

    fn collects(&self, len: usize) -> bool {
        // To take a longer piece behind what was left costs a copy, and to keep it by itself costs more.
        self.is_bound && (len <= MAX_PIECE_LEN || *self.leaves) && self.rest.len() + len <= MAX_COLLECTED_LEN
    }

    fn deliver(&mut self, bytes: &[u8]) {
        // What is placed is told without bytes, and is dealt with at once.
        if !bytes.is_empty() && self.collects(bytes.len()) {
            return self.rest.extend_from_slice(bytes);
        }
        let taken = self.upper.received(self.cx, self.id, bytes);
        self.rest.extend_from_slice(&bytes[taken..]);
        *self.leaves = !self.rest.is_empty();
    }

    fn place_early(&mut self, bhs: &[u8; BHS_LEN], pdu_offset: u32, len: usize) -> Option<(Self::Place, &mut [u8])> {
        self.upper.place_early(self.id, bhs, pdu_offset, len)
    }

    fn placed(&mut self, place: Self::Place, skipped: usize, len: usize) -> bool {
        self.upper.placed(self.cx, self.id, place, skipped, len)
    }
}

#[cfg(test)]
mod tests {
    use lunette_reactor::Reactor;

    use super::*;
    use crate::tests::Login;

    #[test]
    fn what_is_collected_is_bounded() {
        let mut reactor = Reactor::new().unwrap();
        let mut cx = reactor.context();
        let id = cx.open_virtual();
        let (mut upper, mut rest, mut leaves) = (Login::default(), Vec::new(), true);
        let mut above =
            Above { upper: &mut upper, cx: &mut cx, id, rest: &mut rest, leaves: &mut leaves, is_bound: true };
        while above.collects(1000) {
            above.deliver(&[0; 1000]);
        }
        assert!((MAX_COLLECTED_LEN - 1000..=MAX_COLLECTED_LEN).contains(&above.rest.len()));
        above.is_bound = false;
        above.rest.clear();
        assert!(!above.collects(BHS_LEN), "a login's packets are taken one by one");
    }
}
