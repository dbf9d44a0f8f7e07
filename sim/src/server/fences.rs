//! Answers to task management functions that wait for other connections, and for data of the tasks that they have ended.

use std::time::Duration;

use lunette_pdu::{LunField, SerialNumber, TaskManagementFunction as Function, Tsih};
use lunette_session::Time;
use lunette_session::iscsi_target::{Connection, TaskManagement};

use super::Server;
use super::management::is_fast;
use crate::env::Env;
use crate::wire::{Network, WireId};

/// Initiators that keep to the rules send what they owe at once.
const DATA_GRACE: Duration = Duration::from_secs(1);

/// An answer that waits until the initiator has acknowledged what other connections of its session sent before: the response
/// fence of RFC 7143 section 4.2.2.3.
pub(super) struct Fence {
    /// Unless the connection is gone.
    session: Option<Tsih>,
    wire: WireId,
    request: TaskManagement,
    behind: Vec<(WireId, SerialNumber)>,
    /// Until then it waits for data of a logical unit, or of all (section 4.2.3.3).
    data: Option<(Option<LunField>, Time)>,
}

impl Server {
    pub(super) fn answer_behind_fence(&mut self, wire: WireId, request: TaskManagement, env: &Env) {
        let session = self.session_of(wire);
        let mut behind = Vec::new();
        for other in self.siblings(wire) {
            let Some(conn) = self.connections.get_mut(&other) else { continue };
            if let Some(stat_sn) = conn.protocol.ask_acknowledgement() {
                behind.push((other, stat_sn));
                conn.touched = true;
            }
        }
        let of = match request.function {
            Function::ABORT_TASK | Function::TARGET_COLD_RESET => None,
            Function::TARGET_WARM_RESET => Some(None),
            _ => Some(Some(request.lun)),
        };
        let is_standard = session.as_ref().is_some_and(|session| !is_fast(session));
        let data = of.filter(|_| is_standard).map(|of| (of, env.now + DATA_GRACE));
        self.fences.push(Fence { session: session.map(|session| session.tsih), wire, request, behind, data });
    }

    /// An answer that has moved may be one that was sent before: it has to be acknowledged where it is now.
    pub(super) fn wait_for_adopted(&mut self, adopter: WireId) {
        let Some(session) = self.session_of(adopter) else { return };
        let is_concerned = |fence: &&mut Fence| fence.session == Some(session.tsih) && fence.wire != adopter;
        let mut concerned = self.fences.iter_mut().filter(is_concerned).peekable();
        let (Some(conn), true) = (self.connections.get_mut(&adopter), concerned.peek().is_some()) else { return };
        let Some(stat_sn) = conn.protocol.ask_acknowledgement() else { return };
        for fence in concerned {
            fence.behind.retain(|(id, _)| *id != adopter);
            fence.behind.push((adopter, stat_sn));
        }
    }

    /// When an answer stops to wait for data.
    pub(super) fn next_fence_timeout(&self) -> Option<Time> {
        self.fences.iter().filter_map(|fence| fence.data.map(|(_, until)| until)).min()
    }

    /// Gives the answers that nothing holds up any more. A connection that is gone holds up nothing.
    pub(crate) fn pass_fences(&mut self, net: &mut Network, env: &mut Env) -> bool {
        let mut waiting = Vec::new();
        let mut any = false;
        for mut fence in std::mem::take(&mut self.fences) {
            fence.behind.retain(|(id, stat_sn)| {
                self.connections.get(id).is_some_and(|conn| !conn.protocol.has_acknowledged(*stat_sn))
            });
            self.wait_for_data(&mut fence, env);
            if !fence.behind.is_empty() || fence.data.is_some() {
                waiting.push(fence);
                continue;
            }
            any = true;
            let Fence { wire, request, .. } = fence;
            // What was sent on a connection that was lost meanwhile is not acknowledged, and could be taken over.
            self.silence_siblings(wire, &request, Connection::is_suspended);
            self.let_go_of_empty(wire, net, env);
            self.answer(wire, &request, request.done());
            if request.function == Function::TARGET_COLD_RESET {
                self.drop_all(wire, net, env);
            }
        }
        waiting.append(&mut self.fences);
        self.fences = waiting;
        any
    }

    /// Forgets the data that a fence waits for when all of it has come, and when it has been waited for long enough.
    fn wait_for_data(&mut self, fence: &mut Fence, env: &Env) {
        let Some((of, until)) = fence.data else { return };
        let Some(session) = fence.session else { return };
        let served: Vec<WireId> = self.sessions.connections(session).iter().map(|(_, id)| *id).collect();
        let owes = |id: &WireId| self.connections.get(id).is_some_and(|conn| conn.protocol.owes_data(of));
        if until > env.now && served.iter().any(owes) {
            return;
        }
        fence.data = None;
        for id in served {
            if let Some(conn) = self.connections.get_mut(&id) {
                conn.protocol.forget_data(of);
            }
        }
    }
}
