//! The PDUs of the initiator, as the toy must know them.

use std::collections::BTreeMap;

use lunette_pdu::{Ahs, BHS_LEN, Bhs, InitiatorPdu, InitiatorTaskTag};
use lunette_session::keys::{Digest, Parameters};
use lunette_testkit::Format;

/// The PDUs of the initiator, one by one, as far as they can be told.
#[derive(Default)]
pub(super) struct Inbound {
    bytes: Vec<u8>,
    /// Bytes of the login requests that were answered.
    pub(super) login_len: usize,
    /// The keys of the login.
    pub(super) keys: Vec<u8>,
    /// The negotiated parameters, once the login has ended.
    parameters: Option<Parameters>,
    /// The longest data segment that the target ever wanted to declare.
    pub(super) longest_segment: u32,
    /// Data that the initiator takes and sends for each tag that it ever used; the largest.
    commands: BTreeMap<u32, (u64, u64)>,
    lost: bool,
    /// A PDU was damaged, and later ones may be taken all the same: either is right.
    pub(super) blind: bool,
}

impl Inbound {
    /// The target has answered the next login request.
    pub(super) fn login_answered(&mut self) {
        if let Some((request, len)) = Format::PLAIN.first(&self.bytes) {
            self.keys.extend_from_slice(&request.data);
            self.bytes.drain(..len);
            self.login_len += len;
        }
    }

    /// The login has ended. From here on what is sent is followed PDU by PDU.
    pub(super) fn admitted(&mut self, parameters: &Parameters) {
        self.longest_segment = self.longest_segment.max(parameters.recv_data_segment_len);
        self.parameters = Some(parameters.clone());
        self.follow(&[]);
    }

    pub(super) fn follow(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let Some(parameters) = &self.parameters else { return };
        while !self.lost {
            let Some(bhs) = self.bytes.get(..BHS_LEN).and_then(Bhs::ref_from).copied() else { return };
            let end = format(parameters).wire_len(&bhs);
            // The connection ends at such a header.
            self.lost = bhs.data_segment_len() > self.longest_segment as usize;
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

/// The digests that were negotiated.
pub(super) fn format(parameters: &Parameters) -> Format {
    let on = |digest| digest == Digest::Crc32c;
    Format { header_digest: on(parameters.header_digest), data_digest: on(parameters.data_digest) }
}
