//! A session on its way to a standstill, and as a value.

use std::sync::Arc;

use lunette_handover as handover;
use lunette_pdu::{Cid, Isid, Tsih};

use super::{Connection, Member, Session, State};
use crate::iscsi_target::directory::Directory;
use crate::iscsi_target::handover::{InheritError, parameters_from, parameters_of};
use crate::iscsi_target::origin::Origin;
use crate::iscsi_target::session_info::SessionInfo;
use crate::iscsi_target::tasks::window::CommandWindow;
use crate::{ChapAlgorithm, ProvenSecrets, Time, Timers};

impl<H: Copy + PartialEq> Session<H> {
    /// From now on, no request is begun. The tasks that have begun end, and then the session is at a standstill.
    pub fn come_to_rest(&mut self) {
        self.comes_to_rest = true;
        self.members.iter_mut().filter_map(|member| member.connection.as_mut()).for_each(Connection::come_to_rest);
    }

    /// Goes on. What has come since [`come_to_rest`](Self::come_to_rest) is dealt with first.
    pub fn go_on(&mut self, now: Time) {
        self.comes_to_rest = false;
        let members: Vec<H> = self.members.iter().map(|member| member.handle).collect();
        for handle in members {
            if let Some(connection) = self.member_mut(handle).and_then(|member| member.connection.as_mut()) {
                connection.go_on(now);
            }
            self.touch(handle);
        }
    }

    /// Whether it is on the way to a standstill.
    pub fn comes_to_rest(&self) -> bool {
        self.comes_to_rest
    }

    /// The reason why it is not at rest, if it is not.
    pub fn restless(&self) -> Option<&'static str> {
        let restless = |member: &Member<H>| match (&member.state, &member.connection) {
            (State::Served(_), Some(connection)) => connection.restless(),
            (State::Served(_), None) => Some("a connection logs in"),
            (State::Suspended(_), _) => Some("a connection is lost and waits to be recovered"),
            (State::Over, _) => Some("a connection is being ended"),
        };
        let own = [
            (!self.comes_to_rest, "the session goes on"),
            (!self.fences.is_empty(), "a task management function has not ended"),
            (!self.events.is_empty(), "the session has events"),
            (self.members.is_empty(), "the session has ended"),
        ];
        let of_members = || self.members.iter().find_map(restless);
        let of_window = || self.window.is_in_use().then_some("a task has not ended");
        own.into_iter().find_map(|(holds, why)| holds.then_some(why)).or_else(of_members).or_else(of_window)
    }

    /// The session as a value, with its connections in this order. Its driver knows their sockets and the nexus. Worth
    /// something only at a standstill.
    pub fn hand_over(&self) -> (handover::Session, Vec<H>) {
        let info = &self.info;
        let served = || self.members.iter().filter_map(|member| Some((member.handle, member.connection.as_ref()?)));
        let value = handover::Session {
            initiator_name: info.initiator_name.clone(),
            chap_user: info.chap_user.clone(),
            chap_algorithm: info.secrets.algorithm.map(|algorithm| algorithm.name().to_owned()),
            isid: info.isid.0,
            tsih: info.tsih.0,
            target: info.target.as_ref().map(|target| target.name.clone()),
            host: info.host.as_deref().map(str::to_owned),
            portal_group: info.portal_group,
            parameters: parameters_of(&info.parameters),
            window: self.window.hand_over(),
            connections: served().map(|(_, connection)| connection.hand_over()).collect(),
            nexus: handover::Nexus::default(),
        };
        (value, served().map(|(handle, _)| handle).collect())
    }

    /// The session of a value, with `handles` for its connections.
    pub(in crate::iscsi_target) fn inherit(
        from: &handover::Session,
        handles: &[H],
        directory: &Arc<Directory>,
        timers: Timers,
        now: Time,
    ) -> Result<Self, InheritError> {
        let target = match &from.target {
            Some(name) => Some(directory.find(name).ok_or(InheritError::NotAdmitted)?),
            None => None,
        };
        let peer = from.connections.first().ok_or(InheritError::Malformed("no connection"))?.peer.ip();
        let origin = Origin::from(peer);
        let host = target.and_then(|target| target.host_of(&from.initiator_name, &origin));
        if host.map(|host| &*host.name) != from.host.as_deref() || target.is_some_and(|target| target.moved.is_some()) {
            return Err(InheritError::NotAdmitted);
        }
        let algorithm =
            ChapAlgorithm::ALL.into_iter().find(|known| Some(known.name()) == from.chap_algorithm.as_deref());
        let info = Arc::new(SessionInfo {
            initiator_name: from.initiator_name.clone(),
            chap_user: from.chap_user.clone(),
            origin,
            secrets: ProvenSecrets { algorithm, ..ProvenSecrets::default() },
            isid: Isid(from.isid),
            tsih: Tsih(from.tsih),
            target: target.cloned(),
            host: host.map(|host| Arc::clone(&host.name)),
            portal_group: from.portal_group,
            parameters: parameters_from(&from.parameters)?,
        });
        let window = CommandWindow::inherit(&from.window, info.parameters.error_recovery_level)?;
        let mut members: Vec<Member<H>> = Vec::new();
        for (value, handle) in from.connections.iter().zip(handles) {
            let state = State::Served(Cid(value.cid));
            if members.iter().any(|member| member.state == state) {
                return Err(InheritError::Malformed("two connections of one number"));
            }
            let connection = Some(Connection::inherit(value, &info, directory, timers, now)?);
            members.push(Member { handle: *handle, state, connection });
        }
        Ok(Self { members, timers, ..Self::without_connections(info, window) })
    }
}
