//! The driver's calls for tasks, and the ends of those that were aborted.

use lunette_buffer::Buffer;
use lunette_pdu::{InitiatorTaskTag, LunField, SerialNumber, TaskManagementResponseCode};

use super::{Connection, ConnectionMut, Phase};
use crate::iscsi_target::event::{Response, TaskTag};
use crate::iscsi_target::full_feature::FullFeature;

impl ConnectionMut<'_> {
    /// Gives a command the buffer for its data: as long as the device wants data.
    /// [`Event::DataOut`](crate::iscsi_target::Event::DataOut) brings it back.
    pub fn want_data(&mut self, task: TaskTag, buffer: Buffer) {
        match self.alive() {
            Some((full, mut cx, false)) => full.want_data(task, buffer, &mut cx),
            Some((full, mut cx, true)) => full.keep_data(task, buffer, &mut cx),
            None => {}
        }
    }

    /// Ends a task with a response that waits for [`release_answer`](Self::release_answer).
    pub(crate) fn hold_answer(&mut self, task: TaskTag, response: Response) {
        if let Some((full, _, _)) = self.alive() {
            full.hold_answer(task, response);
        }
    }

    /// Nothing holds up the response of a task any more.
    pub(crate) fn release_answer(&mut self, task: TaskTag) {
        match self.alive() {
            Some((full, mut cx, false)) => full.release_answer(task, &mut cx),
            Some((full, _, true)) => full.keep_released(task),
            None => {}
        }
    }

    /// Ends a task with a response that waits for no other: in a session of one connection. [`Session::complete`] is
    /// for all.
    ///
    /// [`Session::complete`]: crate::iscsi_target::Session::complete
    pub fn complete(&mut self, task: TaskTag, response: Response) {
        match self.alive() {
            Some((full, mut cx, false)) => full.complete(task, response, &mut cx),
            Some((full, _, true)) => full.keep_answer(task, response),
            None => {}
        }
    }

    /// Ends a task without a response: it was aborted.
    pub fn abort(&mut self, task: TaskTag) {
        match self.alive() {
            Some((full, mut cx, false)) => full.abort(task, &mut cx),
            Some((full, mut cx, true)) => full.forget(task, &mut cx),
            None => {}
        }
    }

    /// Answers a task management request.
    pub(crate) fn task_management_done(&mut self, itt: InitiatorTaskTag, response: TaskManagementResponseCode) {
        if let Some((full, mut cx)) = self.full() {
            full.task_management_done(itt, response, &mut cx);
        }
    }

    /// Answers a task management request that asks: yes, with what QUERY ASYNCHRONOUS EVENT has found (SAM-5 7.8).
    /// RFC 7144.
    pub(crate) fn task_management_succeeded(&mut self, itt: InitiatorTaskTag, information: [u8; 3]) {
        if let Some((full, mut cx)) = self.full() {
            full.task_management_succeeded(itt, information, &mut cx);
        }
    }

    /// A task management function on another connection of the session concerns these tasks too: for the driver they
    /// have ended, but their responses still wait for data, or for another connection. None may follow its answer.
    /// `lun`: of that logical unit, or of all.
    pub(crate) fn silence(&mut self, lun: Option<LunField>, before: SerialNumber) {
        let Some((full, mut cx, is_suspended)) = self.alive() else { return };
        full.silence_covered(lun, before, &mut cx);
        if is_suspended {
            FullFeature::drop_answers(lun, before, cx.sender);
        }
    }

    /// Tasks of the connection on a logical unit were ended by a task management function that came another way. Tells
    /// the initiator, where FastAbort was agreed on (RFC 7143 section 11.9.1, event 5), and lets go of their data when
    /// it has heard. Call it when nothing works for them any more: the initiator may repeat their work. `before`: of
    /// those on their way, the commands with smaller numbers were ended; see
    /// [`Session::exp_cmd_sn`](crate::iscsi_target::Session::exp_cmd_sn).
    pub(crate) fn tasks_terminated(&mut self, lun: LunField, before: SerialNumber) {
        if let Some((full, mut cx)) = self.full() {
            full.tasks_terminated(lun, before, &mut cx);
        }
    }

    /// Stops waiting for that data. What comes of it is dropped.
    pub(crate) fn forget_data(&mut self, lun: Option<LunField>) {
        if let Some((full, _)) = self.full() {
            full.forget_data(lun);
        }
    }
}

impl Connection {
    /// Whether the driver has that task.
    pub(crate) fn has_task(&self, task: TaskTag) -> bool {
        matches!(&self.phase, Phase::FullFeature(full) | Phase::Suspended(full) if full.has_task(task))
    }

    /// Whether the initiator waits for the end of any task of the logical unit here.
    pub(crate) fn has_tasks(&self, lun: LunField) -> bool {
        matches!(&self.phase, Phase::FullFeature(full) | Phase::Suspended(full) if full.has_tasks(lun))
    }

    /// Whether the initiator has yet to send data of tasks that were ended without a response: of that logical unit, or
    /// of all.
    pub(crate) fn owes_data(&self, lun: Option<LunField>) -> bool {
        matches!(&self.phase, Phase::FullFeature(full) if full.owes_data(lun))
    }
}
