//! The questions of an administrator about sessions. Each core answers for its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lunette_reactor::{ConnectionId, Context};
use lunette_session::iscsi_target::SessionInfo;

use super::Core;
use super::connections::Conn;
use super::mesh::CoreMessage;
use crate::sessions::{SessionEvent, SessionQuery, SessionStatus};

impl Core {
    /// Answers for this core and has all others answer for theirs.
    pub(super) fn ask_all(&mut self, cx: &Context<'_>, query: SessionQuery) {
        self.mesh.send_to_others(|| CoreMessage::Sessions(query.clone()));
        self.answer_session_query(cx, query);
    }

    pub(super) fn answer_session_query(&mut self, cx: &Context<'_>, query: SessionQuery) {
        match query {
            // A caller that has stopped waiting misses nothing.
            SessionQuery::List(to) => self.session_list().into_iter().for_each(|session| drop(to.send(session))),
            SessionQuery::End { tsih, found } => {
                let is_of = |session: &SessionInfo| session.tsih.0 == tsih;
                let ids = self.connections.ids_where(|conn| conn.session.as_deref().is_some_and(is_of));
                for id in ids {
                    self.request_logout(cx, id);
                    let _ = found.send(());
                }
            }
        }
    }

    /// Tells the observer of a session that begins with its first connection, or ends with its last.
    pub(super) fn observe(&self, id: ConnectionId, has_begun: bool) {
        let (Some(observer), Some(conn)) = (&self.observer, self.connections.get(id)) else { return };
        let Some(session) = conn.session.as_ref().filter(|_| conn.login.is_none()) else { return };
        let is_sibling = |other: &Conn| other.session.as_ref().is_some_and(|other| Arc::ptr_eq(other, session));
        if self.connections.ids_where(is_sibling).len() == 1 {
            observer(SessionEvent {
                has_begun,
                tsih: session.tsih.0,
                initiator: session.initiator_name.clone(),
                target: session.target.as_ref().map(|target| target.name.clone()),
            });
        }
    }

    fn session_list(&self) -> Vec<SessionStatus> {
        let mut list: BTreeMap<u16, SessionStatus> = BTreeMap::new();
        for id in self.connections.ids_where(|conn| conn.session.is_some()) {
            let Some(conn) = self.connections.get(id) else { continue };
            let Some(session) = &conn.session else { continue };
            let status = list.entry(session.tsih.0).or_insert_with(|| status_of(session));
            status.commands += conn.tasks.len();
            status.age = status.age.max(conn.came.at.elapsed());
            if !self.connections.is_parked(id) {
                status.peers.push(conn.peer);
                status.portals.push(conn.came.to);
            }
        }
        list.into_values().collect()
    }
}

/// A session without its connections.
fn status_of(session: &SessionInfo) -> SessionStatus {
    SessionStatus {
        tsih: session.tsih.0,
        isid: session.isid.to_string(),
        initiator: session.initiator_name.clone(),
        target: session.target.as_ref().map(|target| target.name.clone()),
        host: session.host.as_deref().map(str::to_owned),
        user: session.chap_user.clone(),
        identities: Arc::clone(&session.origin.identities),
        chap_algorithm: session.secrets.algorithm,
        portal_group: session.portal_group,
        peers: Vec::new(),
        portals: Vec::new(),
        age: Duration::ZERO,
        commands: 0,
        parameters: session.parameters.clone(),
    }
}
