//! The login, and what it has agreed on.

use lunette_buffer::Payload;
use lunette_pdu::LoginResponse;

use super::{Connection, Phase};
use crate::Time;
use crate::iscsi_initiator::error::SessionError;
use crate::iscsi_initiator::event::Event;
use crate::iscsi_initiator::full_feature::FullFeature;
use crate::iscsi_initiator::login::{Outcome, Step};
use crate::iscsi_initiator::shared::Shared;
use crate::keys::Digest;

impl Connection {
    pub(super) fn login_response(
        &mut self,
        pdu: &LoginResponse,
        shared: &mut Shared,
        now: Time,
    ) -> Result<(), SessionError> {
        let Phase::Login(login) = &mut self.phase else { return Ok(()) };
        if pdu.status.is_success() {
            if login.is_first_response() {
                self.sender.first_status(pdu.stat_sn);
            } else {
                self.sender.status(pdu.stat_sn)?;
            }
        }
        let step = login.response(pdu, &self.segment)?;
        if matches!(step, Step::Done(_)) {
            shared.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn)?;
        }
        self.login_step(step, shared, now);
        Ok(())
    }

    pub(super) fn login_step(&mut self, step: Step, shared: &mut Shared, now: Time) {
        match step {
            Step::Send(mut request, text) => {
                request.exp_stat_sn = self.sender.exp_stat_sn();
                self.sender.outbox.push(request.emit(), Payload::from(text));
            }
            Step::Redirected { addresses, permanent } => {
                self.over();
                self.events.push_back(Event::Redirected { cid: self.cid, addresses, permanent });
            }
            Step::Done(outcome) => {
                if let Err(error) = self.logged_in(*outcome, shared, now) {
                    self.close(error);
                }
            }
        }
    }

    fn logged_in(&mut self, outcome: Outcome, shared: &mut Shared, now: Time) -> Result<(), SessionError> {
        let parameters = shared.agreed.logged_in(outcome)?;
        self.carries_session = true;
        let digests = (parameters.header_digest == Digest::Crc32c, parameters.data_digest == Digest::Crc32c);
        self.receiver.configure(digests.0, digests.1, parameters.recv_data_segment_len);
        self.sender.outbox.configure(digests.0, digests.1);
        let markers = parameters.marker_intervals();
        self.receiver.start_markers(markers.in_, parameters.error_recovery_level > 0);
        self.sender.outbox.start_markers(markers.out);
        self.phase = Phase::FullFeature(Box::new(FullFeature::new(self.cid, parameters)));
        self.deadline = None;
        self.last_received = now;
        self.events.push_back(Event::LoggedIn(self.cid));
        Ok(())
    }
}
