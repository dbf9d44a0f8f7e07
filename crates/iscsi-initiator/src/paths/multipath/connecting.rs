//! The making of a path: its login, the check of the disk behind it, and the events of its session.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lunette_scsi::{AdditionalSense, SenseData};

use super::{Multipath, State};
use crate::engine::retry::may_lose_cache;
use crate::paths::check::{self, Checked};
use crate::paths::registration::Registration;
use crate::{Error, Listener, Options, Portal, Session, SessionEvent};

impl Multipath {
    /// The options of a path's session: it does not reconnect, because its requests are to take other paths.
    pub(super) fn path_options(&self, path: usize, generation: u64) -> Options {
        let mut options = self.options.clone();
        options.reconnect_for = Duration::ZERO;
        options.isid = Some(self.routes[path].isid);
        let (me, listener) = (Weak::clone(&self.me), self.options.listener.clone());
        let listen: Listener = Arc::new(move |event: &SessionEvent| {
            if let Some(listener) = &listener {
                listener(event);
            }
            if let Some(me) = me.upgrade() {
                me.heard(path, generation, event);
            }
        });
        options.listener = Some(listen);
        options
    }

    pub(super) async fn connect(
        &self,
        path: usize,
        generation: u64,
    ) -> Result<(Session, Checked, Registration), Error> {
        let (portal, options) = (&self.routes[path].portal, self.path_options(path, generation));
        let session = Session::connect(&self.initiator, portal, &self.target, options).await?;
        let checked = check::check(&session, self.lun).await?;
        let registration = self.lock().registration;
        registration.restore(&session, self.lun).await?;
        Ok((session, checked, registration))
    }

    pub(super) fn connected(
        &self,
        path: usize,
        generation: u64,
        result: Result<(Session, Checked, Registration), Error>,
    ) {
        let (mut state, now) = (self.lock(), self.now());
        let portal = &self.routes[path].portal;
        // A registration that has changed meanwhile is not that of this path.
        let result = result.and_then(|(session, checked, registration)| {
            if registration == state.registration { Ok((session, checked)) } else { Err(Error::Closed) }
        });
        let checked = result.and_then(|(session, checked)| state.identify(portal, session, checked));
        let first_attempt = state.first_attempts[path].take();
        let told = match checked {
            Ok((session, checked)) => {
                if first_attempt.is_none() {
                    tracing::info!(%portal, state = ?checked.facts.access, "a path to the disk is there");
                }
                (state.sessions[path], state.errors[path]) = (Some(session), None);
                state.identities[path] = Some(checked.identity);
                state.management = checked.management;
                state.machine.connected(path, generation, checked.facts, now);
                Ok(())
            }
            Err(error) => {
                tracing::debug!(%portal, %error, "no path to the disk");
                state.errors[path] = Some(error.clone());
                state.machine.not_connected(path, generation, now);
                Err(error)
            }
        };
        self.act(state);
        if let Some(first_attempt) = first_attempt {
            first_attempt.fill(told);
        }
    }

    /// An event of a path's session, on the event loop's thread.
    fn heard(&self, path: usize, generation: u64, event: &SessionEvent) {
        let mut state = self.lock();
        match event {
            SessionEvent::Over(error) => {
                tracing::warn!(portal = %self.routes[path].portal, %error, "a path to the disk is lost");
                state.errors[path] = Some(error.clone());
                state.machine.session_lost(path, generation, self.now());
            }
            SessionEvent::UnitAttention { lun, sense } if *lun == self.lun => Self::attention(path, sense, &mut state),
            _ => return,
        }
        self.act(state);
    }

    pub(super) fn attention(path: usize, sense: &SenseData, state: &mut State) {
        const STATES: [AdditionalSense; 2] =
            [AdditionalSense::ACCESS_STATE_CHANGED, AdditionalSense::IMPLICIT_ACCESS_STATE_TRANSITION_FAILED];
        if may_lose_cache(sense) {
            state.machine.power_on(path);
        }
        if STATES.contains(&sense.code) {
            state.machine.states_changed(path);
        }
    }
}

impl State {
    /// Checks that the disk is the one that other paths lead to.
    fn identify(&mut self, portal: &Portal, session: Session, checked: Checked) -> Result<(Session, Checked), Error> {
        let (identity, of) = self.identity.get_or_insert_with(|| (checked.identity.clone(), portal.clone()));
        if identity.is_same_unit(&checked.identity) {
            return Ok((session, checked));
        }
        Err(Error::OtherDisk {
            portal: portal.to_string(),
            found: checked.identity.to_string(),
            other_portal: of.to_string(),
            expected: identity.to_string(),
        })
    }
}
