//! The continuation when stores are done with aborted tasks.

use std::sync::Arc;

use lunette_device::{Input, NexusId, TargetDevice};
use lunette_reactor::{ConnectionId, Context, Key};
use lunette_session::iscsi_target::{LoginTicket, LogoutTicket, TaskManagementTicket};

use super::Core;
use super::affected::Affected;
use super::mesh::{CoreMessage, RemoteBarrier};
use super::tasks::TaskKey;
use crate::control::{FreezeAnswer, Listening, UpdateAnswer};

/// The work that a barrier holds back.
pub(super) enum OnQuiesced {
    /// Connections are told that their tasks were ended by a function that another one has asked for, which may be on
    /// another core.
    TellAffected { issuing: Option<ConnectionId>, affected: Vec<Affected> },
    /// A task management function is answered.
    TaskManagement { connection: ConnectionId, device: Arc<TargetDevice>, ticket: TaskManagementTicket<ConnectionId> },
    /// A task that aborted others goes on. The nexuses `lost` tasks.
    Resume { key: TaskKey, lost: Vec<NexusId> },
    /// Background work that aborted tasks goes on. The nexuses `lost` tasks.
    ResumeBackground { key: Key, lost: Vec<NexusId> },
    /// A logout is answered: the connection that it names is closed.
    Logout { connection: ConnectionId, ticket: LogoutTicket },
    /// A login is answered.
    Login { connection: ConnectionId, ticket: LoginTicket<ConnectionId> },
    /// Another core learns that what it wanted aborted here is gone. The nexuses `lost` tasks.
    TellCore { answer_to: RemoteBarrier, lost: Vec<NexusId> },
    /// The caller of a freeze learns that the store of a unit is quiet.
    Freeze(FreezeAnswer),
    /// Another core learns that what it has asked for is so here.
    AnswerCore(RemoteBarrier),
    /// An update is answered: the sessions of all cores know of it.
    Update { answer: UpdateAnswer, listening: Listening },
}

impl Core {
    /// Does what waited for barriers that have passed.
    pub(super) fn pass_barriers(&mut self, cx: &mut Context<'_>) {
        let now = self.time(cx);
        for barrier in self.tasks.take_ended_requests() {
            self.barriers.one_less(barrier);
        }
        for then in self.barriers.take_passed() {
            match then {
                OnQuiesced::TellAffected { issuing, affected } => self.announce_aborts(issuing, &affected),
                OnQuiesced::TaskManagement { connection, device, ticket } => {
                    self.aborted(now, connection, device, ticket);
                }
                OnQuiesced::Logout { connection, ticket } => {
                    self.connections.in_session(connection, |session| session.logged_out(connection, ticket));
                }
                OnQuiesced::Resume { key, lost } => self.drive(key, Input::Aborted { lost }),
                OnQuiesced::ResumeBackground { key, lost } => {
                    self.tasks.background_aborted(key, lost, &self.buffers);
                }
                OnQuiesced::Login { connection, ticket } => self.finish_login(cx, connection, ticket),
                OnQuiesced::TellCore { answer_to: RemoteBarrier { core, barrier }, lost } => {
                    self.mesh.send(core, CoreMessage::Aborted { barrier, lost });
                }
                OnQuiesced::Freeze(answer) => answer.tell(),
                OnQuiesced::AnswerCore(RemoteBarrier { core, barrier }) => {
                    self.mesh.send(core, CoreMessage::Answered { barrier });
                }
                // The caller of `Control::begin` may have dropped its end.
                OnQuiesced::Update { answer, listening } => drop(answer.send(Ok(listening))),
            }
        }
    }
}
