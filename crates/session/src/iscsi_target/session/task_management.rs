//! Task management between the connections of a session (RFC 7143 section 11.5).

use lunette_pdu::{LunField, TaskManagementFunction as Function, TaskManagementResponseCode as Answer};

use super::Session;
use super::fences::Covered;
use super::recovery::Whereabouts;
use crate::Time;
use crate::iscsi_target::connection::Connection;
use crate::iscsi_target::event::{Event, TaskManagement, TaskManagementTicket};
use crate::iscsi_target::tasks::known_task::KnownTask;

impl<H: Copy + PartialEq> Session<H> {
    /// Notes that the request's work is done. Everything that it has ended is at rest: no store works for it any more.
    /// The answer to such a request goes out once the initiator has received what was sent before it.
    pub fn done(&mut self, connection: H, ticket: TaskManagementTicket<H>, now: Time) {
        let request = *ticket.request();
        match request.function {
            Function::QUERY_TASK_SET if self.has_tasks(request.lun) => return self.succeed(connection, ticket, [0; 3]),
            Function::QUERY_TASK_SET | Function::QUERY_ASYNCHRONOUS_EVENT => {
                return self.answer_at_once(connection, &request, request.response());
            }
            _ => {}
        }
        // Only now: a request that is refused, for it names no logical unit, silences no task.
        if let Some(covered) = request.covers() {
            self.silence(connection, covered, |_| true);
        }
        self.let_go_of_empty();
        self.answer_behind_fence(connection, request, now);
    }

    /// Answers a request that nothing has to wait for.
    pub fn answer(
        &mut self,
        connection: H,
        TaskManagementTicket { request, .. }: TaskManagementTicket<H>,
        answer: Answer,
    ) {
        self.answer_at_once(connection, &request, answer);
    }

    /// Answers a request that asks: yes, with what QUERY ASYNCHRONOUS EVENT has found (SAM-5 7.8). RFC 7144.
    pub fn succeed(
        &mut self,
        connection: H,
        TaskManagementTicket { request, .. }: TaskManagementTicket<H>,
        information: [u8; 3],
    ) {
        if let Some(mut protocol) = self.connection_mut(connection) {
            protocol.task_management_succeeded(request.itt, information);
        }
        self.touch(connection);
    }

    /// Whether the initiator waits for the end of any task of the logical unit, on any connection (SAM-5 7.11).
    fn has_tasks(&self, lun: LunField) -> bool {
        self.members().any(|member| self.connection(member).is_some_and(|protocol| protocol.has_tasks(lun)))
    }

    /// Does what a request of `connection` asks for, as far as it concerns this session alone. The rest is the
    /// driver's.
    pub(super) fn manage_tasks(&mut self, connection: H, request: TaskManagement) -> Option<Event<H>> {
        let ticket = match (request.function, request.referenced) {
            (Function::TASK_REASSIGN, _) => self.reassign(connection, request),
            (Function::ABORT_TASK, None) => self.abort_elsewhere(connection, request),
            (Function::QUERY_TASK, _) => self.query_elsewhere(connection, request),
            _ => Some(TaskManagementTicket { request, at: connection }),
        };
        self.let_go_of_empty();
        ticket.map(Event::TaskManagement)
    }

    /// Tasks of other connections that wait for data only to be answered are not answered after a request that covers
    /// them.
    pub(super) fn silence(&mut self, issuing: H, covered: Covered, concerned: impl Fn(&Connection) -> bool) {
        let others: Vec<H> = self.members().filter(|other| *other != issuing).collect();
        for other in others {
            if let Some(mut protocol) = self.connection_mut(other).filter(|protocol| concerned(protocol)) {
                protocol.silence(covered.lun, covered.before);
            }
        }
    }

    /// Answers a request, and says what follows.
    pub(super) fn task_management_done(&mut self, connection: H, request: &TaskManagement) {
        self.answer_at_once(connection, request, request.response());
        match request.function {
            // The target learns elsewhere of its reset when the connection is gone.
            Function::TARGET_COLD_RESET if self.member(connection).is_some() => {
                self.events.push_back((connection, Event::TargetReset));
                self.touch(connection);
            }
            Function::I_T_NEXUS_RESET => self.reset(Some(connection)),
            _ => {}
        }
    }

    pub(super) fn answer_at_once(&mut self, connection: H, request: &TaskManagement, answer: Answer) {
        if let Some(mut protocol) = self.connection_mut(connection) {
            protocol.task_management_done(request.itt, answer);
        }
        self.touch(connection);
    }

    /// TASK REASSIGN: a connection takes over a task.
    fn reassign(&mut self, to: H, request: TaskManagement) -> Option<TaskManagementTicket<H>> {
        let named = request.referenced_itt;
        let is_here = self.connection(to).is_some_and(|protocol| protocol.known_task(named).is_some());
        let (from, answer) = match self.find_elsewhere(to, &request) {
            Whereabouts::Suspended { connection, detached: true, .. } => (Some(connection), Answer::FUNCTION_COMPLETE),
            Whereabouts::Suspended { .. } | Whereabouts::Served => (None, Answer::TASK_STILL_ALLEGIANT),
            Whereabouts::Request => (None, Answer::FUNCTION_REJECTED),
            // It has ended for this one itself.
            Whereabouts::Nowhere if is_here => (None, Answer::TASK_STILL_ALLEGIANT),
            Whereabouts::Nowhere => return Some(TaskManagementTicket { request, at: to }),
        };
        // RFC 7143 section 11.5.1: the answer goes out before the task moves.
        self.answer_at_once(to, &request, answer);
        if let Some(from) = from {
            self.move_task(from, to, named, request.exp_data_sn);
        }
        None
    }

    /// ABORT TASK of a task that the connection does not have. On a connection that was lost it is aborted from here
    /// (RFC 7143 section 11.5.1); when it has ended there, its answer comes first.
    fn abort_elsewhere(&mut self, by: H, request: TaskManagement) -> Option<TaskManagementTicket<H>> {
        match self.find_elsewhere(by, &request) {
            Whereabouts::Suspended { connection, task: KnownTask { tag: Some(tag), .. }, .. } => {
                let request = TaskManagement { referenced: Some(tag), ..request };
                return Some(TaskManagementTicket { request, at: connection });
            }
            Whereabouts::Suspended { connection, .. } => {
                self.move_task(connection, by, request.referenced_itt, 0);
                self.answer_at_once(by, &request, Answer::FUNCTION_COMPLETE);
            }
            Whereabouts::Request => self.answer_at_once(by, &request, Answer::FUNCTION_REJECTED),
            Whereabouts::Served | Whereabouts::Nowhere => return Some(TaskManagementTicket { request, at: by }),
        }
        None
    }

    /// QUERY TASK of a task that the connection does not have. From one that is logged out it comes here (RFC 7144
    /// section 6.3).
    fn query_elsewhere(&mut self, by: H, request: TaskManagement) -> Option<TaskManagementTicket<H>> {
        let whereabouts = self.find_elsewhere(by, &request);
        match whereabouts {
            Whereabouts::Suspended { .. } | Whereabouts::Served => {
                self.succeed(by, TaskManagementTicket { request, at: by }, [0; 3]);
            }
            Whereabouts::Request => self.answer_at_once(by, &request, Answer::FUNCTION_REJECTED),
            Whereabouts::Nowhere => return Some(TaskManagementTicket { request, at: by }),
        }
        if let Whereabouts::Suspended { connection, detached: true, .. } = whereabouts {
            self.move_task(connection, by, request.referenced_itt, 0);
        }
        None
    }
}
