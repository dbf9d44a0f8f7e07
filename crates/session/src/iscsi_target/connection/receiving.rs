//! Bytes in: headers and data segments, one after the other, go to the phase that the connection is in.

use lunette_pdu::{LoginRequest, NopOut, RejectReason, ScsiCommand, TextRequest};

use super::login::login_header;
use super::{Connection, Phase, Violation};
use crate::Time;
use crate::iscsi_target::event::{CloseReason, TaskTag};
use crate::limits::{COMMAND_GAP_TIMEOUT, DATA_OUT_TIMEOUT};
use crate::receiver::{FrameError, Stage};

/// What the data segment of the header that has just been read is for.
pub(crate) enum Expect {
    /// Nothing; it is dropped.
    Nothing,
    /// Keys.
    Login(LoginRequest),
    /// Keys.
    Text(TextRequest),
    /// An echo.
    Ping(NopOut),
    /// Bytes `offset..offset + len` of a task.
    Data { task: TaskTag, offset: u32, len: u32 },
    /// The same, but nobody can take them now. They will be asked for again.
    Lost { task: TaskTag, offset: u32, len: u32 },
    /// Immediate data of a command that does not count before its data is verified.
    Command(ScsiCommand),
}

impl Connection {
    /// Moves on by one header or one data segment. False when that needs more bytes.
    pub(super) fn consume(&mut self, input: &mut &[u8], now: Time) -> bool {
        if self.held.is_empty() {
            return self.advance(input, now);
        }
        let held = std::mem::take(&mut self.held);
        let mut rest = held.rest();
        let moved = self.advance(&mut rest, now);
        let left = rest.len();
        if left == 0 {
            // The piece may end inside a header or a segment that goes on in `input`.
            return moved || !input.is_empty();
        }
        self.held = held.keep_last(left);
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
        if let Phase::FullFeature(full) = &self.phase {
            // Also a request that has waited for its turn may have declared another one.
            self.receiver.limit_segments(full.receive_limit());
        }
        if !self.receiver.header(input)? {
            return Ok(false);
        }
        self.expect = Expect::Nothing;
        let bhs = self.receiver.bhs();
        self.expect = match &mut self.phase {
            Phase::Login(_) => login_header(&self.receiver)?,
            Phase::FullFeature(full) => {
                full.shorten_receive_limit(bhs);
                full.header(bhs, self.receiver.ahs(), &mut self.sender, &mut self.events)?
            }
            Phase::Suspended(_) | Phase::Closed => Expect::Nothing,
        };
        if matches!(self.expect, Expect::Login(_) | Expect::Text(_) | Expect::Ping(_) | Expect::Command(_)) {
            self.segment.resize(bhs.data_segment_len(), 0);
        }
        self.close_if_logged_out();
        Ok(true)
    }

    fn advance_data(&mut self, input: &mut &[u8]) -> Result<bool, Violation> {
        let place: &mut [u8] = match (&self.expect, &mut self.phase) {
            (Expect::Login(_) | Expect::Text(_) | Expect::Ping(_) | Expect::Command(_), _) => &mut self.segment,
            (expect, Phase::FullFeature(full)) => full.place(expect),
            _ => &mut [],
        };
        let before = input.len();
        let received = self.receiver.data(input, place);
        if matches!(self.expect, Expect::Data { .. } | Expect::Lost { .. }) {
            self.progress.received(before - input.len());
        }
        match received {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(FrameError::DataDigest) if self.sender.retained().is_some() => {
                self.segment_lost();
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        }
        let segment = std::mem::take(&mut self.segment);
        match (std::mem::replace(&mut self.expect, Expect::Nothing), &mut self.phase) {
            (Expect::Login(request), Phase::Login(_)) => self.login_request(&request, &segment),
            (expect, Phase::FullFeature(full)) => {
                full.data(&expect, segment, self.receiver.ahs(), &mut self.sender, &mut self.events)?;
            }
            _ => {}
        }
        Ok(true)
    }

    /// A data segment has come damaged. From recovery level 1 on that costs the PDU only (RFC 7143 section 7.8).
    fn segment_lost(&mut self) {
        self.segment.clear();
        let expect = std::mem::replace(&mut self.expect, Expect::Nothing);
        let why = FrameError::DataDigest.to_string();
        self.violated(Violation::harmless(RejectReason::DATA_DIGEST_ERROR, why));
        if let Phase::FullFeature(full) = &mut self.phase {
            full.lost(&expect, &mut self.sender, &mut self.events);
        }
    }

    fn violated(&mut self, violation: Violation) {
        if let (Some(reason), Phase::FullFeature(full)) = (violation.reject, &self.phase) {
            full.reject(reason, violation.data_sn, *self.receiver.bhs().as_array(), &mut self.sender);
        }
        if violation.fatal || !matches!(self.phase, Phase::FullFeature(_)) {
            self.close(CloseReason::Protocol(violation.why));
        } else {
            tracing::debug!(reason = ?violation.reject, why = violation.why, "PDU rejected");
        }
    }

    /// Deals with what waited for its turn, and sees to it that nothing waits for ever.
    pub(super) fn deliver_early(&mut self, now: Time) -> bool {
        let Phase::FullFeature(full) = &mut self.phase else { return false };
        if !full.has_early() && self.gap_ends.is_none() {
            return false;
        }
        let delivered = full.deliver(&mut self.sender, &mut self.events);
        self.gap_ends = match self.gap_ends {
            _ if !full.has_early() => None,
            Some(at) if !delivered => Some(at),
            // A connection that was lost with them is recovered first.
            _ => Some(now + COMMAND_GAP_TIMEOUT + full.session().recovery_time().unwrap_or_default()),
        };
        self.close_if_logged_out();
        delivered
    }
}
