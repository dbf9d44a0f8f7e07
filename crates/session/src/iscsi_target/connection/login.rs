//! The login's way through the connection: from its requests to the full feature phase, or to the end.

use std::sync::Arc;

use lunette_pdu::{LoginRequest, LoginStatus, Opcode, RejectReason};

use super::{Connection, Expect, Phase, Violation};
use crate::Time;
use crate::iscsi_target::event::{CloseReason, Event};
use crate::iscsi_target::full_feature::FullFeature;
use crate::iscsi_target::login::{Refusal, Step, refused};
use crate::iscsi_target::session::Session;
use crate::keys::Digest;
use crate::outbox::Segment;
use crate::receiver::Receiver;

impl Connection {
    /// Lets the login that asked for it into `session`.
    pub fn admit(&mut self, session: Arc<Session>, now: Time) {
        let Phase::Login(login) = &mut self.phase else { return };
        let Some((mut response, text)) = login.admitted(&session) else { return };
        let Some(full) = FullFeature::new(login, session) else { return };
        response.stat_sn = self.sender.next_stat_sn();
        response.data_segment_len = text.len();
        self.sender.outbox.push(response.emit(), Segment::owned(text));
        let parameters = full.parameters();
        let digests = (parameters.header_digest == Digest::Crc32c, parameters.data_digest == Digest::Crc32c);
        self.receiver.configure(digests.0, digests.1, parameters.recv_data_segment_len);
        self.sender.outbox.configure(digests.0, digests.1);
        if parameters.error_recovery_level > 0 {
            self.sender.retain();
        }
        let markers = parameters.marker_intervals();
        self.receiver.start_markers(markers.out, parameters.error_recovery_level > 0);
        let is_marked = markers.out.is_some() || markers.in_.is_some();
        self.loses_pdus = is_marked && parameters.error_recovery_level > 0;
        self.sender.outbox.start_markers(markers.in_);
        self.phase = Phase::FullFeature(Box::new(full));
        self.deadline = None;
        self.last_received = now;
    }

    /// Refuses the login that asked for it.
    pub fn refuse(&mut self, status: LoginStatus) {
        let Phase::Login(login) = &self.phase else { return };
        let Some(request) = login.waiting() else { return };
        self.end_login(&request, Refusal::new(status, status.to_string()));
    }

    /// Bytes that an unfinished login keeps; 0 after its end.
    pub fn login_bytes(&self) -> usize {
        let Phase::Login(login) = &self.phase else { return 0 };
        login.text_bytes() + self.segment.len() + self.held.rest().len() + self.sender.outbox.owned_bytes()
    }

    pub(super) fn login_request(&mut self, request: &LoginRequest, data: &[u8]) {
        let Phase::Login(login) = &mut self.phase else { return };
        match login.request(request, data) {
            Ok(Step::Reply(mut response, text)) => {
                response.stat_sn = self.sender.next_stat_sn();
                response.data_segment_len = text.len();
                self.sender.outbox.push(response.emit(), Segment::owned(text));
            }
            Ok(Step::Admit(admit)) => self.events.push_back(Event::Admit(admit)),
            Err(refusal) => self.end_login(request, refusal),
        }
    }

    fn end_login(&mut self, request: &LoginRequest, refusal: Refusal) {
        let mut response = refused(request, refusal.status);
        response.stat_sn = self.sender.next_stat_sn();
        response.data_segment_len = refusal.keys.len();
        self.sender.outbox.push(response.emit(), Segment::owned(refusal.keys));
        self.close(CloseReason::LoginRefused(refusal.why));
    }
}

/// Before the login has ended, nothing but a login request is listened to.
pub(super) fn login_header(receiver: &Receiver) -> Result<Expect, Violation> {
    let bhs = receiver.bhs();
    if bhs.opcode() != Opcode::LOGIN_REQUEST {
        return Err(Violation::fatal(RejectReason::PROTOCOL_ERROR, format!("{} before the login", bhs.opcode())));
    }
    match LoginRequest::parse(bhs) {
        Ok(request) => Ok(Expect::Login(request)),
        Err(error) => Err(Violation::fatal(RejectReason::INVALID_PDU_FIELD, error.to_string())),
    }
}
