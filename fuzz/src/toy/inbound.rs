//! What the initiator has sent, as the toy must know it.

use std::collections::BTreeMap;

use lunette_pdu::{Ahs, BHS_LEN, Bhs, DIGEST_LEN, InitiatorPdu, InitiatorTaskTag, pad_len};
use lunette_session::keys::{Digest, Parameters};

/// What the initiator has sent, PDU by PDU, as far as it can be told.
#[derive(Default)]
pub(super) struct Inbound {
    bytes: Vec<u8>,
    /// Data that the initiator takes and sends for each tag that it ever used; the largest.
    commands: BTreeMap<u32, (u64, u64)>,
    count: usize,
    lost: bool,
    /// A PDU was damaged, and later ones may be taken all the same: nobody can tell what is right.
    pub(super) blind: bool,
}

impl Inbound {
    pub(super) fn follow(&mut self, bytes: &[u8], parameters: &Parameters) {
        self.bytes.extend_from_slice(bytes);
        while !self.lost {
            let Some(bhs) = self.bytes.get(..BHS_LEN).and_then(Bhs::ref_from).copied() else { return };
            let digest = |digest: Digest| if digest == Digest::Crc32c { DIGEST_LEN } else { 0 };
            let data_start = BHS_LEN + bhs.ahs_len() + digest(parameters.header_digest);
            let data_len = bhs.data_segment_len();
            let mut end = data_start + data_len + pad_len(data_len);
            if data_len > 0 {
                end += digest(parameters.data_digest);
            }
            // The connection ends at such a header.
            self.lost = data_len > parameters.recv_data_segment_len as usize;
            let Some(head) = self.bytes.get(BHS_LEN..BHS_LEN + bhs.ahs_len()) else { return };
            if let Ok(InitiatorPdu::ScsiCommand(command)) = InitiatorPdu::parse(&bhs) {
                let bidi = Ahs::iter(head).map_while(Result::ok).map(|segment| match segment {
                    Ahs::BidiReadLength(len) => u64::from(len),
                    _ => 0,
                });
                let length = u64::from(command.expected_data_transfer_length);
                let entry = self.commands.entry(command.itt.0).or_default();
                entry.0 = entry.0.max(length).max(bidi.max().unwrap_or(0));
                entry.1 = entry.1.max(length);
            }
            if self.bytes.len() < end {
                // Counted already; a second time does no harm.
                return;
            }
            self.count += 1;
            self.bytes.drain(..end);
        }
    }

    /// Bytes that the initiator takes and sends for the command with this tag.
    pub(super) fn expected(&self, itt: InitiatorTaskTag) -> (u64, u64) {
        if self.blind {
            return (u64::MAX, u64::MAX);
        }
        *self.commands.get(&itt.0).unwrap_or_else(|| panic!("an answer to {itt:?}, which was never sent"))
    }
}
