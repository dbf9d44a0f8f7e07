//! Text requests, and what may be declared again in them (RFC 7143 sections 11.10, 11.11 and 13.12).

use std::time::Duration;

use lunette_buffer::Payload;
use lunette_pdu::{AsyncEvent, AsyncMessage, RejectReason, SerialNumber, TargetTransferTag, TextRequest, TextResponse};

use super::FullFeature;
use crate::iscsi_target::text::{Asker, Declared, Part, TEXT_TAG};
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;

impl FullFeature {
    pub(super) fn text_request(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        cx: &mut TurnContext<'_>,
    ) -> Result<(), Violation> {
        let (directory, session, origin) = (&self.directory, &self.session, &self.origin);
        let asker = Asker { directory, session, local: self.local, origin };
        let Part { text, continue_, declared } = self
            .text
            .request(request, data, &asker, self.parameters.send_data_segment_len)
            .map_err(|error| Violation::harmless(RejectReason::PROTOCOL_ERROR, error.to_string()))?;
        let (exp_cmd_sn, max_cmd_sn) = cx.window.numbers();
        let stat_sn = cx.sender.next_stat_sn();
        let pdu = TextResponse {
            final_: declared.is_some(),
            continue_,
            lun: request.lun,
            itt: request.itt,
            ttt: if declared.is_some() { TargetTransferTag::RESERVED } else { TEXT_TAG },
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            data_segment_len: text.len(),
        };
        cx.sender.push_numbered(pdu.emit(), Payload::from(text));
        self.commit(declared.unwrap_or_default(), stat_sn);
        Ok(())
    }

    /// Puts declared keys in force for all PDUs after the exchange's last response.
    fn commit(&mut self, declared: Declared, stat_sn: SerialNumber) {
        if let Some(theirs) = declared.theirs {
            self.parameters.send_data_segment_len = theirs;
        }
        if let Some(ours) = declared.ours {
            self.parameters.recv_data_segment_len = ours;
            self.receive_limit.declare(ours, stat_sn);
        }
    }

    /// The longest data segment that the initiator may send now.
    pub(crate) fn receive_limit(&self) -> u32 {
        self.receive_limit.current
    }

    /// The limit may be shorter for the PDUs that follow this one. `acknowledged` is ExpStatSN of this connection,
    /// which a logout of another one does not bring.
    pub(crate) fn shorten_receive_limit(&mut self, acknowledged: SerialNumber) {
        self.receive_limit.acknowledged(acknowledged);
    }

    /// RFC 7143 section 11.9.1, event 4: asks for a text request within `grace`; the answer will declare
    /// `recv_data_segment_len`.
    pub(crate) fn renegotiate(
        &mut self,
        recv_data_segment_len: u32,
        grace: Duration,
        cx: &mut TurnContext<'_>,
    ) -> bool {
        let declared = self.text.to_declare.unwrap_or(self.parameters.recv_data_segment_len);
        if recv_data_segment_len == declared {
            return false;
        }
        self.text.to_declare = Some(recv_data_segment_len);
        let message = AsyncMessage {
            event: AsyncEvent::NEGOTIATION_REQUEST,
            parameter3: u16::try_from(grace.as_secs()).unwrap_or(u16::MAX),
            ..cx.news()
        };
        cx.sender.push_numbered(message.emit(), Payload::Empty);
        true
    }
}
