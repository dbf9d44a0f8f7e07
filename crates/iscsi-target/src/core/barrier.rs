//! Answers that wait until stores are done with what was aborted.
//!
//! A write that a store has begun cannot be called back. Whoever is told that it is gone (by a task management response, or
//! by a new login of the same initiator) may write the same blocks again at once; the old write must not land after that.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use lunette_device::{NexusId, TargetDevice};
use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::{LogoutTicket, Place, TaskManagementTicket};

use super::Core;
use super::news::Affected;
use super::orders::{Order, Ticket};
use super::running::TaskKey;
use crate::control::UpdateError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BarrierKey(u64);

/// What happens when the last store is done.
pub(super) enum Behind {
    /// Connections are told that their tasks were ended by a function that another one has asked for, which may be on
    /// another core.
    News { issuing: Option<ConnectionId>, affected: Vec<Affected> },
    /// A task management function is answered.
    TaskManagement { connection: ConnectionId, device: Arc<TargetDevice>, ticket: TaskManagementTicket<ConnectionId> },
    /// A task that aborted others goes on. The nexuses `lost` tasks.
    Task { key: TaskKey, lost: Vec<NexusId> },
    /// A logout is answered: the connection that it names is closed.
    Logout { connection: ConnectionId, ticket: LogoutTicket },
    /// A login is answered.
    Login { connection: ConnectionId, place: Place<ConnectionId> },
    /// Another core learns that what it wanted aborted here is gone. The nexuses `lost` tasks.
    Order { ticket: Ticket, lost: Vec<NexusId> },
    /// An update is answered: the sessions of all cores know of it.
    Update { answer: Sender<Result<Vec<SocketAddr>, UpdateError>>, portals: Vec<SocketAddr> },
}

#[derive(Default)]
pub(super) struct Barriers {
    waiting: HashMap<BarrierKey, (usize, Behind)>,
    passed: Vec<Behind>,
    last: u64,
}

impl Barriers {
    /// A barrier that nothing holds up yet. [`Barriers::close`] it once everything is counted.
    pub(super) fn open(&mut self, behind: Behind) -> BarrierKey {
        self.last += 1;
        let key = BarrierKey(self.last);
        self.waiting.insert(key, (1, behind));
        key
    }

    /// Everything that holds it up has been counted.
    pub(super) fn close(&mut self, key: BarrierKey) {
        self.one_less(key);
    }

    pub(super) fn one_more(&mut self, key: BarrierKey) {
        if let Some((count, _)) = self.waiting.get_mut(&key) {
            *count += 1;
        }
    }

    /// Another core has ended tasks of these nexuses.
    pub(super) fn add_lost(&mut self, key: BarrierKey, more: Vec<NexusId>) {
        if let Some((_, Behind::Task { lost, .. })) = self.waiting.get_mut(&key) {
            lost.extend(more);
        }
    }

    pub(super) fn one_less(&mut self, key: BarrierKey) {
        let Some((count, _)) = self.waiting.get_mut(&key) else { return };
        *count -= 1;
        if *count == 0
            && let Some((_, behind)) = self.waiting.remove(&key)
        {
            self.passed.push(behind);
        }
    }
}

impl Core {
    pub(super) fn pass_barriers(&mut self, cx: &mut Context<'_>) {
        let now = self.time(cx);
        for behind in std::mem::take(&mut self.barriers.passed) {
            match behind {
                Behind::News { issuing, affected } => self.tell_of_aborts(issuing, &affected),
                Behind::TaskManagement { connection, device, ticket } => self.aborted(now, connection, device, ticket),
                Behind::Logout { connection, ticket } => {
                    self.in_session(connection, |session| session.logged_out(connection, ticket));
                }
                Behind::Task { key, lost } => self.aborts_done(key, lost),
                Behind::Login { connection, place } => self.finish_login(cx, connection, place),
                Behind::Order { ticket, lost } => {
                    self.post.send(ticket.core, Order::Aborted { ticket: ticket.barrier, lost });
                }
                // Who asked may have gone.
                Behind::Update { answer, portals } => drop(answer.send(Ok(portals))),
            }
        }
    }
}
