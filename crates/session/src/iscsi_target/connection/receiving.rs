//! Bytes in: headers and data segments, one after the other, go to the phase that the connection is in.

use lunette_pdu::RejectReason;

use super::{Connection, ConnectionMut, Phase};
use crate::Time;
use crate::iscsi_target::event::CloseReason;
use crate::iscsi_target::expect::Expect;
use crate::iscsi_target::turn_context::TurnContext;
use crate::iscsi_target::violation::Violation;
use crate::limits::{COMMAND_GAP_TIMEOUT, DATA_OUT_TIMEOUT};
use crate::receiver::{FrameError, Stage};

impl ConnectionMut<'_> {
    /// Moves on by one header or one data segment. False when that needs more bytes.
    pub(super) fn consume(&mut self, input: &mut &[u8], now: Time) -> bool {
        self.end_rest_if_due();
        if self.held.is_empty() {
            return self.advance(input, now);
        }
        let held = std::mem::take(&mut self.held);
        let (moved, held) = held.consume(input, |bytes| self.advance(bytes, now));
        self.held = held;
        moved
    }

    fn advance(&mut self, input: &mut &[u8], now: Time) -> bool {
        if !input.is_empty() {
            self.heard(now);
            self.watch_progress(now);
            if self.loses_pdus && self.data_due.is_none() {
                self.data_due = Some(now + DATA_OUT_TIMEOUT);
            }
        }
        let outcome = match self.receiver.stage() {
            Stage::Header => self.advance_header(input),
            Stage::Data => self.advance_data(input),
        };
        match outcome {
            Ok(moved) => moved,
            Err(violation) => {
                self.violated(violation);
                true
            }
        }
    }

    fn advance_header(&mut self, input: &mut &[u8]) -> Result<bool, Violation> {
        let Connection { phase, receiver, sender, events, expect, segment, resting, .. } = &mut *self.connection;
        let Phase::FullFeature(full) = phase else { return Ok(false) };
        // Also a request that has waited for its turn may have declared another one.
        receiver.limit_segments(full.receive_limit());
        if !receiver.header(input)? {
            return Ok(false);
        }
        *expect = Expect::Nothing;
        let bhs = receiver.bhs();
        let mut cx = TurnContext { window: self.window, sender, events };
        *expect = match resting {
            Some(resting) if !full.is_needed_for_rest(bhs, resting.keeps_nothing(), &mut cx) => Expect::Kept,
            _ => full.header(bhs, receiver.ahs(), &mut cx)?,
        };
        // What is kept was sent before the initiator knew of a shorter one.
        if resting.is_none() {
            full.shorten_receive_limit(sender.acknowledged());
        }
        if matches!(expect, Expect::Text(_) | Expect::Ping(_) | Expect::Command(_) | Expect::Kept) {
            segment.resize(bhs.data_segment_len(), 0);
        }
        self.close_if_logged_out();
        Ok(true)
    }

    fn advance_data(&mut self, input: &mut &[u8]) -> Result<bool, Violation> {
        let Connection { phase, receiver, sender, events, expect, segment, progress, resting, .. } =
            &mut *self.connection;
        let Phase::FullFeature(full) = phase else { return Ok(false) };
        let place: &mut [u8] = match expect {
            Expect::Text(_) | Expect::Ping(_) | Expect::Command(_) | Expect::Kept => segment,
            _ => full.place(expect),
        };
        let before = input.len();
        let received = receiver.data(input, place);
        if matches!(expect, Expect::Data { .. } | Expect::Lost { .. }) {
            progress.received(before - input.len());
        }
        match received {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(FrameError::DataDigest) if sender.retained().is_some() => {
                self.segment_lost();
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        }
        let segment = std::mem::take(segment);
        let expect = std::mem::replace(expect, Expect::Nothing);
        if let (Expect::Kept, Some(resting)) = (&expect, resting) {
            resting.keep(receiver, &segment);
            return Ok(true);
        }
        full.data(&expect, segment, receiver.ahs(), &mut TurnContext { window: self.window, sender, events })?;
        Ok(true)
    }

    /// A data segment has come damaged. From recovery level 1 on that costs the PDU only (RFC 7143 section 7.8).
    fn segment_lost(&mut self) {
        self.segment.clear();
        let expect = std::mem::replace(&mut self.expect, Expect::Nothing);
        let why = FrameError::DataDigest.to_string();
        self.violated(Violation::harmless(RejectReason::DATA_DIGEST_ERROR, why));
        if let Some((full, mut cx)) = self.full() {
            full.lost(&expect, &mut cx);
        }
    }

    fn violated(&mut self, violation: Violation) {
        let header = *self.receiver.bhs().as_array();
        if let Some(reason) = violation.reject
            && let Some((_, mut cx)) = self.full()
        {
            cx.reject(reason, violation.data_sn, header);
        }
        if violation.fatal {
            self.close(CloseReason::Protocol(violation.why));
        } else {
            tracing::debug!(reason = ?violation.reject, why = violation.why, "PDU rejected");
        }
    }

    /// Deals with what waited for its turn, and sees to it that nothing waits for ever.
    pub(super) fn deliver_early(&mut self, now: Time) -> bool {
        let Phase::FullFeature(full) = &self.phase else { return false };
        if !full.has_early() && self.gap_ends.is_none() {
            return false;
        }
        let Some((full, mut cx)) = self.full() else { return false };
        let delivered = full.deliver(&mut cx, now);
        let (has_early, recovery_time) = (full.has_early(), full.session().recovery_time());
        self.gap_ends = match self.gap_ends {
            _ if !has_early => None,
            Some(at) if !delivered => Some(at),
            // A connection that was lost with them is recovered first.
            _ => Some(now + COMMAND_GAP_TIMEOUT + recovery_time.unwrap_or_default()),
        };
        self.close_if_logged_out();
        delivered
    }
}
