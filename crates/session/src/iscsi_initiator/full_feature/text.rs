//! Text requests, and what the target may declare again in its answers (RFC 7143 sections 11.10, 11.11 and 13.12). Our
//! own MaxRecvDataSegmentLength stays as the login has it.

use lunette_pdu::text::TextWriter;
use lunette_pdu::{LunField, TargetTransferTag, TextRequest, TextResponse};

use super::FullFeature;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::iscsi_initiator::event::{Event, TaskTag};
use crate::iscsi_initiator::request::{Request, Underway};
use crate::iscsi_initiator::text::TextExchange;
use crate::iscsi_initiator::turn_context::TurnContext;
use crate::keys::{DATA_LENGTH, MAX_RECV_DATA_SEGMENT_LENGTH, number_in, row};

impl FullFeature {
    /// Sends a text request. False when one is under way, or when a key cannot be sent or belongs to the login.
    pub(in crate::iscsi_initiator) fn text(
        &mut self,
        user: u64,
        pairs: &[(&str, &str)],
        context: &mut TurnContext<'_>,
    ) -> bool {
        let mut list = TextWriter::new();
        for (key, value) in pairs {
            if row(key).is_some() || list.push(key, value).is_err() {
                return false;
            }
        }
        self.begin_text(Some(user), list.as_bytes(), context)
    }

    /// The target wants to negotiate: an empty request gives it the opportunity (RFC 7143 section 11.9.1, event 4). One
    /// that is under way will do.
    pub(super) fn negotiate(&mut self, context: &mut TurnContext<'_>) {
        self.begin_text(None, &[], context);
    }

    fn begin_text(&mut self, user: Option<u64>, list: &[u8], context: &mut TurnContext<'_>) -> bool {
        if self.text.is_some() || self.logging_out || !context.shared.takes_requests() {
            return false;
        }
        let exchange = TextExchange::new(user, list, self.parameters.send_data_segment_len);
        let Some(tag) = context.add_request(Request::Text(exchange)) else { return false };
        self.text = Some(tag);
        send_text(tag, LunField::default(), TargetTransferTag::RESERVED, context);
        true
    }

    /// Restarts a text exchange of another connection. What we began for that connection's sake ends with it.
    pub(super) fn repeat_text(&mut self, exchange: TextExchange, context: &mut TurnContext<'_>) {
        if exchange.user.is_none() {
            return;
        }
        let exchange = exchange.again(self.parameters.send_data_segment_len);
        self.text = context.add_request(Request::Text(exchange));
        if let Some(tag) = self.text {
            send_text(tag, LunField::default(), TargetTransferTag::RESERVED, context);
        }
    }

    pub(super) fn text_response(
        &mut self,
        pdu: &TextResponse,
        segment: &[u8],
        context: &mut TurnContext<'_>,
    ) -> Result<(), SessionError> {
        context.status(pdu.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        let tag = TaskTag::from_itt(pdu.itt);
        let Some(Underway { request: Request::Text(exchange), .. }) = context.request(tag) else {
            if context.shared.is_repeated(tag) {
                return Ok(());
            }
            return Err(broken("11.2.1.8", format!("Text Response for tag {}, which waits for none", pdu.itt)));
        };
        if pdu.final_ != pdu.ttt.is_reserved() {
            return Err(broken("11.11.4", "F and a transfer tag exclude each other"));
        }
        exchange.take(segment, pdu.continue_)?;
        if !pdu.final_ {
            if !self.logging_out {
                send_text(tag, pdu.lun, pdu.ttt, context);
            }
            return Ok(());
        }
        self.text = None;
        if let Some(Underway { request: Request::Text(exchange), .. }) = context.shared.requests.remove(tag) {
            let user = exchange.user;
            let pairs = exchange.finish()?;
            self.declared(&pairs)?;
            if let Some(user) = user {
                context.events.push_back(Event::Text { user, pairs });
            }
        }
        Ok(())
    }

    /// The target may declare another MaxRecvDataSegmentLength (RFC 7143 section 13.12), which holds for all that we
    /// send from the end of the exchange on.
    fn declared(&mut self, pairs: &[(String, String)]) -> Result<(), SessionError> {
        if let Some((_, value)) = pairs.iter().find(|(key, _)| key == MAX_RECV_DATA_SEGMENT_LENGTH) {
            self.parameters.send_data_segment_len = number_in(value, &DATA_LENGTH)
                .ok_or_else(|| broken("13.12", format!("MaxRecvDataSegmentLength={value}")))?;
        }
        Ok(())
    }
}

/// Sends the next part of a text request: in its turn with the commands when the target has room for one more, for
/// istgt counts it as such in any case; else as an immediate request.
fn send_text(tag: TaskTag, lun: LunField, ttt: TargetTransferTag, context: &mut TurnContext<'_>) {
    let Some(Underway { request: Request::Text(exchange), .. }) = context.request(tag) else { return };
    let (part, last) = exchange.next_part();
    let immediate = context.shared.window.room() == 0;
    let pdu = TextRequest {
        immediate,
        final_: last,
        continue_: !last,
        lun,
        itt: tag.itt(),
        ttt,
        cmd_sn: if immediate { context.shared.window.cmd_sn() } else { context.take_number(tag) },
        exp_stat_sn: context.sender.exp_stat_sn(),
        data_segment_len: part.len(),
    };
    context.send_request(tag, pdu.emit(), part);
}
