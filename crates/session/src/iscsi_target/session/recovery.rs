//! Connections that are lost while their tasks live on, and the tasks that other connections of the session take over
//! (ErrorRecoveryLevel 2, RFC 7143 sections 7.1.4.3 and 7.2.2).

use lunette_pdu::{Cid, InitiatorTaskTag, LogoutResponseCode, SerialNumber, TaskManagementFunction as Function};

use super::{Session, State};
use crate::Time;
use crate::iscsi_target::connection::Connection;
use crate::iscsi_target::event::{Event, LogoutTicket, TaskManagement};
use crate::iscsi_target::tasks::known_task::KnownTask;
use crate::limits::MAX_SESSION_SUSPENDED;

/// Where a task is that the initiator names.
pub(super) enum Whereabouts<H> {
    /// On a suspended connection; `detached` when that one is logged out.
    Suspended {
        connection: H,
        task: KnownTask,
        detached: bool,
    },
    /// On a connection that is served.
    Served,
    /// The task is no command, or none has that name.
    Request,
    Nowhere,
}

impl<H: Copy + PartialEq> Session<H> {
    /// A connection is lost and waits to be recovered. It keeps its CID until it is logged out. The initiator is told
    /// (RFC 7143 section 7.1.4.3).
    pub(super) fn suspend(&mut self, connection: H) {
        let Some(cid) = self.move_to_suspended(connection) else { return };
        self.on_any_served(|protocol| protocol.announce_loss(cid));
        self.touch(connection);
    }

    /// Gives its CID, when it was served. When too many connections wait, the first lost is given up.
    fn move_to_suspended(&mut self, connection: H) -> Option<Cid> {
        let at = self.members.iter().position(|member| member.handle == connection)?;
        let State::Served(cid) = self.members[at].state else { return None };
        let mut member = self.members.remove(at);
        member.state = State::Suspended(Some(cid));
        self.members.push(member);
        let first = self.suspended().next().filter(|_| self.suspended().count() > MAX_SESSION_SUSPENDED);
        if let Some(first) = first {
            self.give_up(first);
        }
        Some(cid)
    }

    /// A connection is logged out for recovery.
    pub(super) fn free_cid(&mut self, connection: H) {
        self.move_to_suspended(connection);
        if let Some(member) = self.member_mut(connection).filter(|member| member.state != State::Over) {
            member.state = State::Suspended(None);
        }
    }

    /// The initiator has logged out of a connection for recovery. `received`: how far it has come there. False when the
    /// tasks of the connection do not wait.
    pub(super) fn detach(&mut self, connection: H, received: SerialNumber, now: Time) -> bool {
        let may_wait = !self.is_ending;
        let protocol = self.connection_mut(connection).filter(|_| may_wait);
        let waits = protocol.is_some_and(|mut protocol| protocol.log_out_for_recovery(received, now));
        if waits {
            self.free_cid(connection);
            // Its socket is closed before it may be let go of.
            self.events.push_back((connection, Event::Detached));
            self.touch(connection);
        }
        waits
    }

    /// The initiator logs out of a connection of its session, this one or another one.
    pub(super) fn log_out(&mut self, by: H, cid: Cid) -> Option<Event<H>> {
        let Some(connection) = self.find(cid) else {
            self.answer_logout(by, LogoutResponseCode::CID_NOT_FOUND);
            return None;
        };
        Some(Event::Logout { ticket: LogoutTicket(()), connection })
    }

    /// Logs a connection out so that its tasks go on over another one.
    pub(super) fn log_out_for_recovery(
        &mut self,
        by: H,
        cid: Cid,
        received: SerialNumber,
        now: Time,
    ) -> Option<Event<H>> {
        let Some(connection) = self.find(cid) else {
            self.answer_logout(by, LogoutResponseCode::CID_NOT_FOUND);
            return None;
        };
        let waits = if connection == by {
            !self.is_ending && self.info.recovery_time().is_some()
        } else {
            self.detach(connection, received, now)
        };
        if !waits {
            return Some(Event::Logout { ticket: LogoutTicket(()), connection });
        }
        self.answer_logout(by, LogoutResponseCode::CLOSED);
        self.let_go_of_empty();
        None
    }

    /// A connection that a logout names has ended, and no store works for its tasks any more: the initiator may send
    /// them again on another one.
    pub fn logged_out(&mut self, connection: H, LogoutTicket(()): LogoutTicket) {
        self.answer_logout(connection, LogoutResponseCode::CLOSED);
    }

    fn answer_logout(&mut self, connection: H, response: LogoutResponseCode) {
        if let Some(mut protocol) = self.connection_mut(connection) {
            protocol.logout_done(response);
        }
        self.touch(connection);
    }

    /// A connection without tasks to take over is not waited for while others keep the session.
    pub(super) fn let_go_of_empty(&mut self) {
        let is_empty = |connection: &H| {
            self.is_detached(*connection) && self.connection(*connection).is_some_and(Connection::keeps_nothing)
        };
        let mut left = self.members().count();
        let empty: Vec<H> = self.suspended().filter(is_empty).collect();
        for connection in empty {
            if left > 1 {
                left -= 1;
                self.give_up(connection);
            }
        }
    }

    /// Looks for a task on the other connections of the session. TASK REASSIGN names no logical unit; to others a task
    /// is one of that unit only (RFC 7143 section 11.5.3, SAM-5 7.2 and 7.10).
    pub(super) fn find_elsewhere(&self, by: H, request: &TaskManagement) -> Whereabouts<H> {
        let itt = request.referenced_itt;
        let is_meant = |task: &KnownTask| request.function == Function::TASK_REASSIGN || task.lun == request.lun;
        let mut found: Option<(H, KnownTask)> = None;
        let mut is_request = false;
        for other in self.members().filter(|other| *other != by) {
            let Some(protocol) = self.connection(other) else { continue };
            is_request |= protocol.is_request(itt);
            let Some(task) = protocol.known_task(itt).filter(is_meant) else { continue };
            if found.is_none_or(|(_, known)| task.supersedes(&known)) {
                found = Some((other, task));
            }
        }
        let Some((connection, task)) = found else {
            return if is_request { Whereabouts::Request } else { Whereabouts::Nowhere };
        };
        if self.suspended().any(|lost| lost == connection) {
            Whereabouts::Suspended { connection, task, detached: self.is_detached(connection) }
        } else {
            Whereabouts::Served
        }
    }

    /// A connection takes over a task of one that was lost.
    pub(super) fn move_task(&mut self, from: H, to: H, itt: InitiatorTaskTag, exp_data_sn: u32) {
        if self.connection(to).is_none() {
            return;
        }
        let Some(mut old) = self.connection_mut(from) else { return };
        let known = old.known_task(itt).and_then(|known| known.tag);
        let Some(moved) = old.release_task(itt) else { return };
        let name = moved.name();
        let adopted = self.connection_mut(to).and_then(|mut new| new.adopt_task(moved, exp_data_sn));
        if let (Some(tag), Some(new)) = (name, adopted) {
            self.move_fenced((from, tag), (to, new));
        }
        if let (Some(tag), Some(new)) = (known, adopted) {
            self.events.push_back((to, Event::Moved { from, old: tag, new }));
        }
        self.wait_for_adopted(to);
        // The task's new connection hears of it while the old one is still there.
        self.touch(to);
        self.touch(from);
    }
}
