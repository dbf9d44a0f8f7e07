//! The state that the connections of a session share.

use lunette_pdu::{Cid, SerialNumber};

use super::agreed::Agreed;
use super::config::SessionConfig;
use super::error::SessionError;
use super::event::{Command, TaskTag};
use super::late_answers::{Repeated, Withdrawn};
use super::loads::Loads;
use super::lost::LostConnections;
use super::recoveries::Recoveries;
use super::request::Underway;
use super::table::Table;
use super::task::Task;
use super::unacknowledged::Unacknowledged;
use super::window::Window;
use crate::limits::{MAX_COMMANDS, MAX_DRIVER_REQUESTS, MAX_REQUESTS};

/// Tags of requests lie above those of commands.
const FIRST_REQUEST_SLOT: u16 = 0x8000;

const _: () = assert!(MAX_COMMANDS <= FIRST_REQUEST_SLOT as usize, "tags of commands and requests do not meet");

pub(crate) struct Shared {
    pub(crate) config: SessionConfig,
    pub(super) agreed: Agreed,
    pub(crate) window: Window,
    pub(crate) tasks: Table<Task>,
    pub(crate) requests: Table<Underway>,
    last_order: u64,
    loads: Loads,
    /// The end of the session was asked for: no request follows, on any connection (RFC 7143 section 11.14).
    pub(crate) logging_out: bool,
    /// Why the session has ended.
    pub(crate) over: Option<SessionError>,
    pub(crate) lost: LostConnections,
    pub(crate) recoveries: Recoveries,
    /// The PDU for which the target waits, from recovery level 1 on.
    pub(super) unacknowledged: Option<Unacknowledged>,
    pub(super) withdrawn: Withdrawn,
    repeated: Repeated,
}

impl Shared {
    pub(crate) fn new(config: SessionConfig) -> Self {
        Self {
            config,
            agreed: Agreed::default(),
            window: Window::new(SerialNumber(0)),
            tasks: Table::new(0, MAX_COMMANDS),
            requests: Table::new(FIRST_REQUEST_SLOT, MAX_REQUESTS),
            last_order: 0,
            loads: Loads::default(),
            logging_out: false,
            over: None,
            lost: LostConnections::default(),
            recoveries: Recoveries::default(),
            unacknowledged: None,
            withdrawn: Withdrawn::default(),
            repeated: Repeated::default(),
        }
    }

    /// A connection begins.
    pub(crate) fn add_connection(&mut self, cid: Cid) {
        self.loads.add_connection(cid);
    }

    /// Commands under way on a connection.
    pub(crate) fn load(&self, cid: Cid) -> u32 {
        self.loads.get(cid)
    }

    /// Numbers a command that will go over a connection, and takes it. Leaves it when the table is full.
    #[inline]
    pub(crate) fn add_command(&mut self, command: &mut Command, cid: Cid) -> Option<(TaskTag, &mut Task)> {
        let (tag, place) = self.tasks.place()?;
        self.last_order += 1;
        self.loads.command_began(cid);
        let task = place.insert(Task::new(command.take(), cid, self.window.take(), self.last_order));
        Some((tag, task))
    }

    /// A command has ended. Its memory is `taken` where it is.
    #[inline]
    pub(crate) fn end_task<R>(&mut self, tag: TaskTag, taken: impl FnOnce(&mut Command) -> R) -> Option<R> {
        let Self { tasks, loads, .. } = self;
        tasks.end(tag, |task| {
            loads.command_ended(task.cid);
            taken(&mut task.command)
        })
    }

    /// A command has ended.
    pub(crate) fn remove_task(&mut self, tag: TaskTag) -> Option<Task> {
        let task = self.tasks.remove(tag)?;
        self.loads.command_ended(task.cid);
        Some(task)
    }

    /// A command goes on over another connection.
    pub(crate) fn move_task(&mut self, tag: TaskTag, to: Cid) {
        let Some(task) = self.tasks.get_mut(tag) else { return };
        // What held its data back was a request on the connection that it leaves.
        task.set_muted(false);
        let from = std::mem::replace(&mut task.cid, to);
        self.loads.command_ended(from);
        self.loads.command_began(to);
    }

    /// A command has ended by a request on another connection than its own.
    pub(crate) fn withdraw(&mut self, cid: Cid, tag: TaskTag) {
        self.withdrawn.add(cid, tag);
    }

    /// Whether a PDU on this connection comes too late for its command: data, a request for data, or an answer. Targets
    /// fence answers (RFC 7143 section 4.2.2.3.4), but one that has lost a connection waits for no acknowledgement
    /// there, and what it had sent may still arrive; and RFC 3720 knew no fences. A tag that names a command again,
    /// after 2^16 others in its slot, is that command's.
    pub(crate) fn is_withdrawn(&self, cid: Cid, tag: TaskTag) -> bool {
        self.tasks.get(tag).is_none() && self.withdrawn.has(cid, tag)
    }

    /// A request is sent again, though the target may have it.
    pub(crate) fn repeat(&mut self, tag: TaskTag) {
        self.repeated.add(tag);
    }

    /// Whether a request may be answered a second time.
    pub(crate) fn is_repeated(&self, tag: TaskTag) -> bool {
        self.repeated.has(tag)
    }

    /// How many commands may be sent now: what the target's window and our own bound leave.
    #[inline]
    pub(super) fn room(&self) -> usize {
        if self.is_discovery() || self.logging_out { 0 } else { self.window.room().min(self.tasks.room()) }
    }

    /// In a discovery session there is nothing that could take a command.
    pub(crate) fn is_discovery(&self) -> bool {
        self.config.target_name.is_none()
    }

    /// The place of a request among all of the session.
    pub(crate) fn next_order(&mut self) -> u64 {
        self.last_order += 1;
        self.last_order
    }

    /// Whether the driver may have one more request under way.
    pub(crate) fn takes_requests(&self) -> bool {
        self.requests.len() < MAX_DRIVER_REQUESTS
    }

    /// The tasks that a condition holds for, in the order of their submission.
    pub(crate) fn tasks_where(&self, concerned: impl Fn(&Task) -> bool) -> Vec<TaskTag> {
        let mut found: Vec<(u64, TaskTag)> =
            self.tasks.iter().filter(|(_, task)| concerned(task)).map(|(tag, task)| (task.order, tag)).collect();
        found.sort_unstable_by_key(|(order, _)| *order);
        found.into_iter().map(|(_, tag)| tag).collect()
    }

    /// The tasks among those that a condition holds for that have ended with it: by a reset, or by another initiator's
    /// request. A task that is being reassigned may have ended before, with a status that was lost with its connection.
    /// The answer to that request tells: the status follows it, or the target does not know the task (RFC 7143 section
    /// 11.6.1).
    pub(crate) fn tasks_ended_by_others(&self, concerned: impl Fn(&Task) -> bool) -> Vec<TaskTag> {
        let mut ended = self.tasks_where(concerned);
        ended.retain(|tag| !self.requests.iter().any(|(_, underway)| underway.request.reassigned_task() == Some(*tag)));
        ended
    }
}

#[cfg(test)]
mod tests {
    use lunette_pdu::{Isid, LunField, TaskAttribute};

    use super::*;
    use crate::Timers;
    use crate::keys::Offer;

    const CID: Cid = Cid(1);

    fn shared() -> Shared {
        Shared::new(SessionConfig {
            initiator_name: "iqn.2026-01.example:i".into(),
            initiator_alias: None,
            target_name: Some("iqn.2026-01.example:t".into()),
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            chap: None,
            offer: Offer::default(),
            timers: Timers::default(),
        })
    }

    fn add(shared: &mut Shared) -> TaskTag {
        let mut command = Command {
            user: 1,
            lun: LunField::default(),
            cdb: [0; 16],
            cdb_rest: Box::default(),
            attribute: TaskAttribute::SIMPLE,
            priority: 0,
            data_out: None,
            data_in: None,
            block_len: 0,
        };
        shared.add_command(&mut command, CID).unwrap().0
    }

    #[test]
    fn a_tag_that_names_a_command_again_is_not_withdrawn() {
        let mut shared = shared();
        let tag = add(&mut shared);
        shared.remove_task(tag);
        shared.withdraw(CID, tag);
        assert!(shared.is_withdrawn(CID, tag) && !shared.is_withdrawn(Cid(0), tag));
        // One command at a time uses one slot, and comes round to the same tag.
        let mut again = add(&mut shared);
        while again != tag {
            shared.remove_task(again);
            again = add(&mut shared);
        }
        assert!(!shared.is_withdrawn(CID, tag));
    }
}
