//! Actions of the machine on one path, beside requests.

use std::sync::MutexGuard;

use lunette_scsi::requests;

use super::{Multipath, State};
use crate::detached::detach;
use crate::paths::check;
use crate::paths::machine::action::{Clearing, PathAction};
use crate::request::Request;
use crate::{Error, Session};

impl Multipath {
    #[cold]
    pub(super) fn act_on_path(&self, path: usize, action: PathAction, mut state: MutexGuard<'_, State>) {
        let Some(me) = self.me.upgrade() else { return };
        match action {
            PathAction::Connect { generation } => {
                drop(state);
                detach(async move {
                    let result = me.connect(path, generation).await;
                    me.connected(path, generation, result);
                });
            }
            PathAction::Close => {
                tracing::warn!(portal = %self.routes[path].portal, "commands do not end; making the path again");
                let session = state.sessions[path].take();
                state.errors[path] = Some(Error::Closed);
                drop(state);
                drop(session);
            }
            PathAction::CheckPowerOn { generation, witness } => {
                let session = state.sessions[witness].clone();
                drop(state);
                detach(async move {
                    let has_answered = me.answers(session).await;
                    let mut state = me.lock();
                    state.machine.power_on_checked(path, generation, witness, has_answered, me.now());
                    me.act(state);
                });
            }
            PathAction::AskStates => {
                let (session, generation) = (state.sessions[path].clone(), state.machine.generation(path));
                drop(state);
                let Some(session) = session else { return };
                detach(async move { me.ask_states(path, generation, &session).await });
            }
            PathAction::Clear(way) => {
                drop(state);
                detach(async move { me.clear_path(path, way).await });
            }
        }
    }

    /// Whether the disk answers a command over a session, whatever it says.
    async fn answers(&self, session: Option<Session>) -> bool {
        let Some(session) = session else { return false };
        session.execute(Request::new(self.lun, requests::test_unit_ready())).await.result.is_ok()
    }

    async fn ask_states(&self, path: usize, generation: u64, session: &Session) {
        let states = check::states(session, self.lun).await;
        let mut state = self.lock();
        match states {
            Ok(groups) => state.machine.states(path, generation, groups.as_deref(), self.now()),
            // A lost session tells so itself; others had no buffer, or no answer in time.
            Err(_) => state.machine.states_unknown(path, generation, self.now()),
        }
        self.act(state);
    }

    async fn clear_path(&self, path: usize, way: Clearing) {
        let result = self.clear(path, way).await;
        if let Err(error) = &result {
            tracing::warn!(portal = %self.routes[path].portal, %error, "the commands of a path are not ended");
        }
        let mut state = self.lock();
        state.machine.cleared(path, result.is_ok(), self.now());
        self.act(state);
    }
}
