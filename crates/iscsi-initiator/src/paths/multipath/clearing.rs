//! The end of the tasks of a lost path.

use std::sync::{Arc, Weak};

use super::Multipath;
use crate::paths::check::{self, Checked};
use crate::paths::machine::action::Clearing;
use crate::{Error, Listener, Options, Portal, Session, SessionEvent};

impl Multipath {
    pub(super) async fn clear(&self, path: usize, way: Clearing) -> Result<(), Error> {
        let lost = &self.routes[path].portal;
        match way {
            Clearing::Reinstate { portal_of } => {
                let portal = &self.routes[portal_of].portal;
                tracing::info!(portal = %lost, by = %portal, "reinstating the nexus of a lost path to end its tasks");
                let session =
                    Session::connect(&self.initiator, portal, &self.target, self.reinstating_options(path)).await?;
                let checked = check::check(&session, self.lun).await?;
                session.close().await?;
                self.check_nexus(path, portal, &checked)
            }
            Clearing::Reset { over } => {
                let portal = &self.routes[over].portal;
                tracing::warn!(portal = %lost, by = %portal, "resetting the logical unit to end the tasks of a lost path");
                let session = self.lock().sessions[over].clone().ok_or(Error::Closed)?;
                session.reset_logical_unit(self.lun).await
            }
            Clearing::Abort => {
                let session = self.lock().sessions[path].clone().ok_or(Error::Closed)?;
                session.abort_task_set(self.lun).await
            }
        }
    }

    /// The options of a login that only reinstates the nexus of a path. A power-on that it hears of is not told to that
    /// nexus again.
    fn reinstating_options(&self, path: usize) -> Options {
        let (me, lun) = (Weak::clone(&self.me), self.lun);
        let listen: Listener = Arc::new(move |event: &SessionEvent| {
            if let (SessionEvent::UnitAttention { lun: of, sense }, Some(me)) = (event, me.upgrade())
                && *of == lun
            {
                let mut state = me.lock();
                Self::attention(path, sense, &mut state);
                me.act(state);
            }
        });
        Options { listener: Some(listen), ..self.path_options(path, 0) }
    }

    /// Checks that a login through `portal` has reinstated the nexus of a path: it is the same target port, and the
    /// same disk behind it. A redirection may have led elsewhere, and portal groups of different gateways may have the
    /// same tag.
    fn check_nexus(&self, path: usize, portal: &Portal, reinstated: &Checked) -> Result<(), Error> {
        let state = self.lock();
        let (lost, found) = (state.machine.facts(path), reinstated.facts);
        if lost.portal_group != found.portal_group {
            return Err(Error::NotAgreed { what: "the target portal group" });
        }
        if lost.port_group != found.port_group {
            return Err(Error::NotAgreed { what: "the target port group" });
        }
        match &state.identities[path] {
            Some(identity) if *identity != reinstated.identity => Err(Error::OtherDisk {
                portal: portal.to_string(),
                found: reinstated.identity.to_string(),
                other_portal: self.routes[path].portal.to_string(),
                expected: identity.to_string(),
            }),
            _ => Ok(()),
        }
    }
}
