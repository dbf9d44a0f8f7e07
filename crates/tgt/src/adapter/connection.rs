//! Sessions and their connections.

use super::{Adapter, Ended};
use crate::show;
use crate::wire::{Fault, Request};

impl Adapter {
    pub(super) fn show_connections(&mut self, request: &Request) -> Result<String, Fault> {
        let (name, _) = self.target(request)?;
        Ok(self.sessions_of(&name)?.iter().map(show::session).collect())
    }

    /// Asks the initiator of a connection to log out, from all connections of its session.
    pub(super) fn delete_connection(&mut self, request: &Request) -> Result<(), Fault> {
        let (name, _) = self.target(request)?;
        let sessions = self.sessions_of(&name)?;
        let session = sessions.iter().find(|session| u64::from(session.id) == request.session);
        let Some(session) = session else {
            let was_there = |gone: &Ended| gone.target == name && u64::from(gone.id) == request.session;
            return if self.unbound.iter().any(was_there) { Ok(()) } else { Err(Fault::NoSession) };
        };
        let connection = usize::try_from(request.connection).unwrap_or(usize::MAX);
        if connection >= session.peers.len() {
            return Err(Fault::NoConnection);
        }
        let ended = self.server.end_session(session.id, &self.caller);
        if !ended.map_err(|problem| super::refused("a session", &problem))? {
            return Err(Fault::NoSession);
        }
        self.ended.insert(Ended::new(&name, session));
        Ok(())
    }
}
