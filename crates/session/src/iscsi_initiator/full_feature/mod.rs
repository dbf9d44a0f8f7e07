//! The full feature phase of one connection.

mod commands;
mod control;
mod data_recovery;
mod reassign;
mod recovery;
mod retry;
mod task_management;
mod text;
mod unanswered;

use std::collections::VecDeque;

use lunette_buffer::Payload;
use lunette_pdu::{BHS_LEN, Cid, LunField, SerialNumber, TargetPdu};

use self::control::logout_response;
use self::data_recovery::status_with_data;
use self::recovery::Recovery;
use self::task_management::task_management_response;
use super::connection::Expect;
use super::error::{SessionError, broken};
use super::event::{Event, TaskTag};
use super::lost::Answer;
use super::request::{Request, SentRequest, Underway};
use super::sender::Sender;
use super::shared::Shared;
use crate::Time;
use crate::keys::Parameters;

pub(super) use self::commands::{Ended, data_in_ended, scsi_response};
pub(super) use self::task_management::manage_tasks;

/// The state on which a connection works.
pub(super) struct Context<'a> {
    pub(super) cid: Cid,
    pub(super) shared: &'a mut Shared,
    pub(super) sender: &'a mut Sender,
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) now: Time,
}

pub(super) struct FullFeature {
    cid: Cid,
    parameters: Parameters,
    /// Our own ping that has no answer yet.
    keepalive: Option<TaskTag>,
    /// A connection has one text exchange at a time (RFC 7143 section 11.10).
    text: Option<TaskTag>,
    logging_out: bool,
    /// The connection takes no more requests, and logs out when none is under way.
    leaving: bool,
    /// The target has said that it will drop the connection or the session.
    dropping: bool,
    /// From recovery level 1 on.
    recovery: Option<Box<Recovery>>,
    announced: Option<(u32, u32)>,
}

impl FullFeature {
    pub(super) fn new(cid: Cid, parameters: Parameters) -> Self {
        let recovery = (parameters.error_recovery_level > 0).then(Box::default);
        Self {
            cid,
            parameters,
            keepalive: None,
            text: None,
            logging_out: false,
            leaving: false,
            dropping: false,
            recovery,
            announced: None,
        }
    }

    pub(super) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Whether a text exchange is under way here.
    pub(super) fn has_text(&self) -> bool {
        self.text.is_some()
    }

    /// Whether new requests may be sent. None follows a logout (RFC 7143 section 11.14).
    pub(super) fn takes_requests(&self) -> bool {
        !self.logging_out && !self.leaving
    }

    pub(super) fn is_logging_out(&self) -> bool {
        self.logging_out
    }

    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    /// The session has no other connection any more.
    pub(super) fn stay(&mut self) {
        self.leaving = false;
    }

    /// Time2Wait and Time2Retain in seconds, as the target has announced them with the end of the connection.
    pub(super) fn announced(&self) -> Option<(u32, u32)> {
        self.announced
    }

    /// The meaning of the stream's end.
    pub(super) fn lost(&self) -> SessionError {
        if self.dropping { SessionError::Dropped } else { SessionError::Disconnected }
    }

    /// Deals with a header, and says what its data segment is for.
    pub(super) fn header(&mut self, pdu: TargetPdu, context: &mut Context<'_>) -> Result<Expect, SessionError> {
        match &pdu {
            TargetPdu::DataIn(data) if self.recovers() => self.recoverable_data_in(data, context),
            TargetPdu::DataIn(data) => {
                let is_awaited = self.data_in(data, context)?.is_some();
                Ok(if is_awaited { Expect::Data(*data) } else { Expect::Nothing })
            }
            TargetPdu::LoginResponse(_) => Err(broken("6.3", "a login response after the login")),
            _ => Ok(Expect::Segment(pdu)),
        }
    }

    /// Deals with a PDU whose data segment is here and verified.
    pub(super) fn pdu(
        &mut self,
        pdu: &TargetPdu,
        segment: &[u8],
        context: &mut Context<'_>,
    ) -> Result<(), SessionError> {
        if self.recovers() { self.arrived(pdu, segment, context) } else { self.deal_with(pdu, segment, context) }
    }

    /// Looks at the StatSN of a PDU that only reports the next one: a number beyond it tells of a lost PDU.
    fn status_reported(&self, stat_sn: SerialNumber, context: &Context<'_>) -> Result<(), SessionError> {
        let due = context.sender.exp_stat_sn();
        if stat_sn.is_after(due) && !self.recovers() {
            return Err(broken("4.2.2.2", format!("StatSN {stat_sn} is reported as the next one: {due} was due")));
        }
        Ok(())
    }

    /// Deals with a PDU in its turn.
    fn deal_with(&mut self, pdu: &TargetPdu, segment: &[u8], context: &mut Context<'_>) -> Result<(), SessionError> {
        match pdu {
            TargetPdu::ScsiResponse(pdu) => {
                let ended = scsi_response(self.cid, pdu, segment, context)?;
                context.end(ended);
                Ok(())
            }
            TargetPdu::R2t(pdu) => self.r2t(pdu, context),
            TargetPdu::NopIn(pdu) => self.nop_in(pdu, segment, context),
            TargetPdu::TextResponse(pdu) => self.text_response(pdu, segment, context),
            TargetPdu::TaskManagementResponse(pdu) => task_management_response(pdu, context),
            TargetPdu::LogoutResponse(pdu) => logout_response(pdu, context),
            TargetPdu::AsyncMessage(pdu) => self.async_message(pdu, segment, context),
            TargetPdu::Reject(pdu) => self.reject(pdu, segment, context),
            // At recovery level 0 it was dealt with at its header.
            TargetPdu::DataIn(pdu) => status_with_data(pdu, context),
            TargetPdu::LoginResponse(_) => Ok(()),
        }
    }
}

impl Context<'_> {
    /// StatSN, ExpCmdSN and MaxCmdSN of a PDU that takes a status number.
    fn status(
        &mut self,
        stat_sn: SerialNumber,
        exp_cmd_sn: SerialNumber,
        max_cmd_sn: SerialNumber,
    ) -> Result<(), SessionError> {
        self.sender.status(stat_sn)?;
        self.shared.window.update(exp_cmd_sn, max_cmd_sn)
    }

    /// Tells of the end of a command, in its turn among other events.
    fn end(&mut self, ended: Option<Ended>) {
        if let Some(ended) = ended {
            self.events.extend(ended.tell(self.shared, Event::completed));
        }
    }

    /// Ends commands without a response.
    fn give_back(&mut self, tasks: &[TaskTag]) {
        for tag in tasks {
            self.sender.forget(*tag);
            if let Some(task) = self.shared.remove_task(*tag) {
                if task.cid != self.cid {
                    self.shared.withdraw(task.cid, *tag);
                }
                self.events.push_back(Event::Aborted(task.command));
            }
        }
    }

    /// Ends all commands to a logical unit that were submitted before `order`.
    fn give_back_unit(&mut self, lun: LunField, order: u64) {
        let tasks = self.shared.tasks_ended_by_others(|task| task.command.lun == lun && task.order < order);
        self.give_back(&tasks);
    }

    /// The target has answered a step of a recovery.
    fn answered(&mut self, answer: Answer) {
        self.shared.lost.answers.push(answer);
    }

    /// Notes a request that is sent now, ahead of the window. `None` when too many wait for their answer.
    fn add_request(&mut self, request: Request) -> Option<TaskTag> {
        self.shared.requests.insert(Underway { cid: self.cid, cmd_sn: None, request, sent: None }).ok()
    }

    /// Sends a PDU of a request.
    fn send_request(&mut self, tag: TaskTag, header: [u8; BHS_LEN], segment: Vec<u8>) {
        if self.shared.parameters.error_recovery_level > 0
            && let Some(underway) = self.request(tag)
        {
            underway.sent = Some(Box::new(SentRequest::new(header, segment.clone())));
        }
        self.sender.outbox.push(header, Payload::from(segment));
    }

    /// The number of a request that takes its turn among the commands.
    fn take_number(&mut self, tag: TaskTag) -> SerialNumber {
        let cmd_sn = self.shared.window.take();
        if let Some(underway) = self.request(tag) {
            underway.cmd_sn = Some(cmd_sn);
        }
        cmd_sn
    }

    /// The request of this connection that has this tag.
    fn request(&mut self, tag: TaskTag) -> Option<&mut Underway> {
        self.shared.requests.get_mut(tag).filter(|underway| underway.cid == self.cid)
    }

    /// Finds the request that is answered. `None` when it was sent twice, and has an answer already.
    fn take_request(
        &mut self,
        tag: TaskTag,
        what: &str,
        is_kind: impl Fn(&Request) -> bool,
    ) -> Result<Option<Request>, SessionError> {
        let is_repeated = self.shared.is_repeated(tag);
        match self.request(tag) {
            Some(underway) if is_kind(&underway.request) => {
                Ok(self.shared.requests.remove(tag).map(|underway| underway.request))
            }
            None if is_repeated => Ok(None),
            _ => Err(broken("11.2.1.8", format!("{what} for tag {}, which waits for none", tag.itt()))),
        }
    }
}
