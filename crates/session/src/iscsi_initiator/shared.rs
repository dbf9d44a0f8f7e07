//! The state that the connections of a session share.

use std::collections::VecDeque;

use lunette_pdu::{Cid, SerialNumber, Tsih};

use super::config::SessionConfig;
use super::error::SessionError;
use super::event::{Command, TaskTag};
use super::lost::LostConnections;
use super::recoveries::Recoveries;
use super::request::Underway;
use super::table::Table;
use super::task::Task;
use super::unacknowledged::Unacknowledged;
use super::window::Window;
use crate::ProvenSecrets;
use crate::keys::Parameters;
use crate::limits::{MAX_COMMANDS, MAX_DRIVER_REQUESTS, MAX_REQUESTS};

/// Tags of requests lie above those of commands.
const FIRST_REQUEST_SLOT: u16 = 0x8000;

const _: () = assert!(MAX_COMMANDS <= FIRST_REQUEST_SLOT as usize, "tags of commands and requests do not meet");

pub(crate) struct Shared {
    pub(crate) config: SessionConfig,
    pub(crate) tsih: Tsih,
    pub(crate) window: Window,
    pub(crate) tasks: Table<Task>,
    pub(crate) requests: Table<Underway>,
    pub(crate) alias: Option<String>,
    pub(crate) portal_group: Option<u16>,
    last_order: u64,
    /// The secrets that its login has proven.
    pub(crate) secrets: ProvenSecrets,
    /// The parameters that the leading connection negotiated.
    pub(crate) parameters: Parameters,
    /// Commands under way on each connection, by CID.
    loads: Vec<u32>,
    /// The end of the session was asked for: no request follows, on any connection (RFC 7143 section 11.14).
    pub(crate) logging_out: bool,
    /// Why the session has ended.
    pub(crate) over: Option<SessionError>,
    pub(crate) lost: LostConnections,
    pub(crate) recoveries: Recoveries,
    /// The PDU for which the target waits, from recovery level 1 on.
    pub(super) unacknowledged: Option<Unacknowledged>,
    pub(super) withdrawn: Withdrawn,
    /// The last requests that were sent again without being asked for: they may be answered twice.
    repeated: VecDeque<TaskTag>,
}

/// The last commands that a request on another connection ended. What the target sent for them before may still be
/// under way.
#[derive(Default)]
pub(super) struct Withdrawn(VecDeque<(Cid, TaskTag)>);

impl Withdrawn {
    fn add(&mut self, cid: Cid, tag: TaskTag) {
        if self.0.len() == MAX_COMMANDS {
            self.0.pop_front();
        }
        self.0.push_back((cid, tag));
    }

    /// Whether the tag has named such a command. It may name another one by now.
    pub(super) fn has(&self, cid: Cid, tag: TaskTag) -> bool {
        self.0.contains(&(cid, tag))
    }
}

impl Shared {
    pub(crate) fn new(config: SessionConfig) -> Self {
        Self {
            config,
            tsih: Tsih::NEW,
            window: Window::new(SerialNumber(0)),
            tasks: Table::new(0, MAX_COMMANDS),
            requests: Table::new(FIRST_REQUEST_SLOT, MAX_REQUESTS),
            alias: None,
            portal_group: None,
            last_order: 0,
            secrets: ProvenSecrets::default(),
            parameters: Parameters::default(),
            loads: Vec::new(),
            logging_out: false,
            over: None,
            lost: LostConnections::default(),
            recoveries: Recoveries::default(),
            unacknowledged: None,
            withdrawn: Withdrawn::default(),
            repeated: VecDeque::new(),
        }
    }

    /// A connection begins.
    pub(crate) fn add_connection(&mut self, cid: Cid) {
        let len = self.loads.len().max(usize::from(cid.0) + 1);
        self.loads.resize(len, 0);
    }

    /// Commands under way on a connection.
    pub(crate) fn load(&self, cid: Cid) -> u32 {
        self.loads.get(usize::from(cid.0)).copied().unwrap_or_default()
    }

    /// Numbers a command that will go over a connection, and takes it. Leaves it when the table is full.
    #[inline]
    pub(crate) fn add_command(&mut self, command: &mut Command, cid: Cid) -> Option<(TaskTag, &mut Task)> {
        let (tag, place) = self.tasks.place()?;
        self.last_order += 1;
        if let Some(load) = self.loads.get_mut(usize::from(cid.0)) {
            *load += 1;
        }
        let task = place.insert(Task::new(command.take(), cid, self.window.take(), self.last_order));
        Some((tag, task))
    }

    /// A command has ended. Its memory is `taken` where it is.
    #[inline]
    pub(crate) fn end_task<R>(&mut self, tag: TaskTag, taken: impl FnOnce(&mut Command) -> R) -> Option<R> {
        let Self { tasks, loads, .. } = self;
        tasks.end(tag, |task| {
            if let Some(load) = loads.get_mut(usize::from(task.cid.0)) {
                *load -= 1;
            }
            taken(&mut task.command)
        })
    }

    /// A command has ended.
    pub(crate) fn remove_task(&mut self, tag: TaskTag) -> Option<Task> {
        let task = self.tasks.remove(tag)?;
        if let Some(load) = self.loads.get_mut(usize::from(task.cid.0)) {
            *load -= 1;
        }
        Some(task)
    }

    /// A command goes on over another connection.
    pub(crate) fn move_task(&mut self, tag: TaskTag, to: Cid) {
        let Some(task) = self.tasks.get_mut(tag) else { return };
        // What held its data back was a request on the connection that it leaves.
        task.set_muted(false);
        let from = std::mem::replace(&mut task.cid, to);
        for (cid, change) in [(from, -1), (to, 1)] {
            if let Some(load) = self.loads.get_mut(usize::from(cid.0)) {
                *load = load.saturating_add_signed(change);
            }
        }
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
        if self.is_repeated(tag) {
            return;
        }
        if self.repeated.len() == MAX_REQUESTS {
            self.repeated.pop_front();
        }
        self.repeated.push_back(tag);
    }

    /// Whether a request may be answered a second time.
    pub(crate) fn is_repeated(&self, tag: TaskTag) -> bool {
        self.repeated.contains(&tag)
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
