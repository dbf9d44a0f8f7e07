//! Bytes in: headers and data segments, one after the other, go to the phase that the connection is in.

use std::ops::ControlFlow;

use lunette_pdu::{PduError, TargetPdu};

use super::{Connection, Phase};
use crate::Time;
use crate::iscsi_initiator::error::{SessionError, broken};
use crate::iscsi_initiator::event::Event;
use crate::iscsi_initiator::expect::Expect;
use crate::iscsi_initiator::shared::Shared;
use crate::receiver::{FrameError, Stage};

/// The error of a header that is none of a target's.
#[cold]
pub(super) fn malformed(error: PduError) -> SessionError {
    broken("7.7", error.to_string())
}

impl Connection {
    /// Whether it is clear at a glance that nothing can be done before more bytes come: the straight way has taken all,
    /// and nothing is to be told or sent. A [step](Self::step) finds out whether that is so in other cases.
    #[inline]
    pub(in crate::iscsi_initiator) fn waits_for_bytes(&self, input: &[u8]) -> bool {
        let wants_more = self.receiver.stage() == Stage::Header || matches!(self.expect, Expect::Data(_));
        input.is_empty() && wants_more && self.events.is_empty() && !self.sender.has_data() && self.takes_requests()
    }

    /// Moves on by what does not go the [straight way](super::straight), which comes first. Breaks with an event, or
    /// when all that can be done is done.
    pub(in crate::iscsi_initiator) fn step(
        &mut self,
        shared: &mut Shared,
        input: &mut &[u8],
        now: Time,
    ) -> ControlFlow<Option<Event>> {
        if !self.events.is_empty() {
            return ControlFlow::Break(self.events.pop_front());
        }
        match self.advance(shared, input, now) {
            Ok(true) => return ControlFlow::Continue(()),
            Ok(false) => {}
            Err(error) => {
                self.close(error);
                return ControlFlow::Continue(());
            }
        }
        self.fill(shared);
        self.log_out_if_idle(shared);
        ControlFlow::Break(None)
    }

    /// An event that has not been told.
    pub(in crate::iscsi_initiator) fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(in crate::iscsi_initiator) fn direct<'a>(&mut self, shared: &'a mut Shared) -> Option<&'a mut [u8]> {
        let place = self.expect.place(&mut shared.tasks)?;
        self.receiver.direct(place)
    }

    pub(in crate::iscsi_initiator) fn direct_received(&mut self, shared: &mut Shared, len: usize, now: Time) {
        self.heard(now);
        if let Some(place) = self.expect.place(&mut shared.tasks) {
            self.receiver.direct_filled(place, len);
        }
    }

    /// Takes any PDU for a sign of life.
    #[inline]
    pub(in crate::iscsi_initiator) fn heard(&mut self, now: Time) {
        self.last_received = now;
        if self.deadline.is_some() && matches!(&self.phase, Phase::FullFeature(full) if !full.is_logging_out()) {
            self.deadline = None;
        }
    }

    /// When bytes came last.
    pub(in crate::iscsi_initiator) fn heard_at(&self) -> Time {
        self.last_received
    }

    /// Moves on by one header or one data segment. False when that needs more bytes.
    fn advance(&mut self, shared: &mut Shared, input: &mut &[u8], now: Time) -> Result<bool, SessionError> {
        if self.is_closed() {
            *input = &[];
            return Ok(false);
        }
        match (self.receiver.stage(), &self.expect) {
            (Stage::Header, _) if input.is_empty() => Ok(false),
            (Stage::Header, _) => self.advance_header(shared, input),
            // The straight way has taken what there is of it.
            (Stage::Data, Expect::Data(_)) => Ok(false),
            (Stage::Data, _) => self.advance_data(shared, input, now),
        }
    }

    fn advance_header(&mut self, shared: &mut Shared, input: &mut &[u8]) -> Result<bool, SessionError> {
        let complete = self.receiver.header(input)?;
        let lost = self.receiver.take_lost_headers();
        if lost > 0 {
            shared.recoveries.lost_headers += lost;
            self.probe(shared);
        }
        if !complete {
            return Ok(false);
        }
        let bhs = self.receiver.bhs();
        let pdu = TargetPdu::parse(bhs).map_err(malformed)?;
        let (opcode, segment_len) = (bhs.opcode(), bhs.data_segment_len());
        self.expect = match (self.split(shared), pdu) {
            (Some((full, mut context)), pdu) => full.header(pdu, &mut context)?,
            (None, TargetPdu::LoginResponse(_)) => Expect::Segment(pdu),
            _ => return Err(broken("6.3", format!("{opcode} before the login has ended"))),
        };
        if matches!(self.expect, Expect::Segment(_)) {
            self.segment.clear();
            self.segment.resize(segment_len, 0);
        }
        Ok(true)
    }

    fn advance_data(&mut self, shared: &mut Shared, input: &mut &[u8], now: Time) -> Result<bool, SessionError> {
        let place = match &self.expect {
            Expect::Segment(_) => &mut self.segment[..],
            expect => expect.place(&mut shared.tasks).unwrap_or_default(),
        };
        match self.receiver.data(input, place) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(FrameError::DataDigest) if self.recovers() => return self.damaged(shared).map(|()| true),
            Err(error) => return Err(error.into()),
        }
        let expect = std::mem::replace(&mut self.expect, Expect::Nothing);
        match (&expect, &self.phase) {
            (Expect::Nothing, _) => {}
            (Expect::Segment(TargetPdu::LoginResponse(response)), Phase::Login(_)) => {
                self.login_response(response, shared, now)?;
            }
            (expect, _) => self.pdu(expect, shared)?,
        }
        Ok(true)
    }

    /// A PDU of the full feature phase has come to its end.
    fn pdu(&mut self, expect: &Expect, shared: &mut Shared) -> Result<(), SessionError> {
        let segment = std::mem::take(&mut self.segment);
        let Some((full, mut context)) = self.split(shared) else { return Ok(()) };
        let outcome = match expect {
            Expect::Recoverable(pdu) => full.data_in_arrived(pdu, &mut context),
            Expect::Segment(pdu) => full.pdu(pdu, &segment, &mut context),
            // Data goes the straight way.
            Expect::Data(_) | Expect::Nothing => Ok(()),
        };
        self.segment = segment;
        outcome
    }

    /// A PDU was lost, and it cannot be known which: the answer to a ping has a status number, so it tells of all
    /// responses before.
    fn probe(&mut self, shared: &mut Shared) {
        if let Some((full, mut context)) = self.split(shared)
            && full.recovers()
        {
            full.keep_alive(&mut context);
        }
    }

    fn recovers(&self) -> bool {
        matches!(&self.phase, Phase::FullFeature(full) if full.recovers())
    }

    /// The data segment that has just ended is damaged.
    fn damaged(&mut self, shared: &mut Shared) -> Result<(), SessionError> {
        let expect = std::mem::replace(&mut self.expect, Expect::Nothing);
        let Some((full, mut context)) = self.split(shared) else { return Ok(()) };
        context.shared.recoveries.damaged_pdus += 1;
        match expect {
            Expect::Segment(pdu) => full.damaged(&pdu, &mut context),
            Expect::Recoverable(pdu) => full.data_in_damaged(&pdu, &mut context),
            Expect::Data(_) | Expect::Nothing => Ok(()),
        }
    }
}
