//! The state outside a full feature phase that one turn of it works on, and what needs no more.

use std::collections::VecDeque;

use lunette_buffer::Payload;
use lunette_pdu::{BHS_LEN, Cid, LunField, SerialNumber};

use super::error::{SessionError, broken};
use super::event::{Event, TaskTag};
use super::lost::Answer;
use super::request::{Request, SentRequest, Underway};
use super::sender::Sender;
use super::shared::Shared;
use crate::Time;

/// The state on which a connection works for one turn.
pub(super) struct TurnContext<'a> {
    pub(super) cid: Cid,
    pub(super) shared: &'a mut Shared,
    pub(super) sender: &'a mut Sender,
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) now: Time,
}

impl TurnContext<'_> {
    /// StatSN, ExpCmdSN and MaxCmdSN of a PDU that takes a status number.
    pub(super) fn status(
        &mut self,
        stat_sn: SerialNumber,
        exp_cmd_sn: SerialNumber,
        max_cmd_sn: SerialNumber,
    ) -> Result<(), SessionError> {
        self.sender.status(stat_sn)?;
        self.shared.window.update(exp_cmd_sn, max_cmd_sn)
    }

    /// Ends commands without a response.
    pub(super) fn give_back(&mut self, tasks: &[TaskTag]) {
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
    pub(super) fn give_back_unit(&mut self, lun: LunField, order: u64) {
        let tasks = self.shared.tasks_ended_by_others(|task| task.command.lun == lun && task.order < order);
        self.give_back(&tasks);
    }

    /// The target has answered a step of a recovery.
    pub(super) fn answered(&mut self, answer: Answer) {
        self.shared.lost.answers.push(answer);
    }

    /// Notes a request that is sent now, ahead of the window. `None` when too many wait for their answer.
    pub(super) fn add_request(&mut self, request: Request) -> Option<TaskTag> {
        self.shared.requests.insert(Underway { cid: self.cid, cmd_sn: None, request, sent: None }).ok()
    }

    /// Sends a PDU of a request.
    pub(super) fn send_request(&mut self, tag: TaskTag, header: [u8; BHS_LEN], segment: Vec<u8>) {
        if self.shared.agreed.parameters().error_recovery_level > 0
            && let Some(underway) = self.request(tag)
        {
            underway.sent = Some(Box::new(SentRequest::new(header, segment.clone())));
        }
        self.sender.outbox.push(header, Payload::from(segment));
    }

    /// The number of a request that takes its turn among the commands.
    pub(super) fn take_number(&mut self, tag: TaskTag) -> SerialNumber {
        let cmd_sn = self.shared.window.take();
        if let Some(underway) = self.request(tag) {
            underway.cmd_sn = Some(cmd_sn);
        }
        cmd_sn
    }

    /// The request of this connection that has this tag.
    pub(super) fn request(&mut self, tag: TaskTag) -> Option<&mut Underway> {
        self.shared.requests.get_mut(tag).filter(|underway| underway.cid == self.cid)
    }

    /// Finds the request that is answered. `None` when it was sent twice, and has an answer already.
    pub(super) fn take_request(
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
