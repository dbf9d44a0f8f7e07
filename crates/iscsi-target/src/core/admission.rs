//! Logins that have passed: sessions made, joined and replaced.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lunette_device::{Nexus, NexusName, TargetDevice};
use lunette_pdu::{Isid, LoginStatus};
use lunette_reactor::{ConnectionId, Context};
use lunette_session::ChapAlgorithm;
use lunette_session::iscsi_target::{
    AdmitRequest, ConnectionConfig, Entropy, LoginConnection, LoginTicket, SessionInfo,
};

use super::Core;
use super::buffers::Owner;
use super::connections::Departure;
use super::lifecycle::port_name;
use super::quiesced::OnQuiesced;
use super::tasks::AbortScope;
use crate::limits::NEGOTIATION_GRACE;

impl Core {
    /// Lets the core decide where the session lives.
    pub(super) fn admit(&mut self, cx: &mut Context<'_>, id: ConnectionId, request: Box<AdmitRequest>) {
        // What datagrams carry stays on the core of its socket.
        let home = if id.is_virtual() { Ok(None) } else { self.mesh.claim_home(&request) };
        match home {
            Err(status) => self.refuse(id, status),
            Ok(Some(home)) if !self.mesh.is_here(&home) => self.depart(cx, id, Departure { home, request }),
            Ok(home) => {
                if let Some(conn) = self.connections.get_mut(id) {
                    conn.home = home;
                }
                self.admit_here(cx, id, *request);
            }
        }
    }

    /// Ends what the login replaces, then waits until no store works for an initiator port of that name any more. An
    /// initiator of a template waits for its host before.
    pub(super) fn admit_here(&mut self, cx: &mut Context<'_>, id: ConnectionId, mut request: AdmitRequest) {
        let now = self.time(cx);
        if let Err(status) = self.recheck(id, &mut request) {
            return self.refuse(id, status);
        }
        if request.template().is_some() {
            return self.await_host(id, request);
        }
        let admitted = match self.connections.admit(&request, id, now) {
            Ok(admitted) => admitted,
            Err(status) => return self.refuse(id, status),
        };
        let ticket = admitted.ticket;
        let nexus = self.joined_nexus(&request, ticket.session());
        for displaced in admitted.displaced {
            tracing::info!(initiator = request.initiator_name, "session or connection replaced by a new login");
            self.close_now(cx, displaced);
        }
        let device = self.device_of(&admitted.session);
        if let Some(conn) = self.connections.get_mut(id) {
            conn.join(self.buffers.open_account(owner_of(&admitted.session, conn.peer)));
            conn.session = Some(admitted.session);
            conn.key = Some(ticket.session());
            conn.device.clone_from(&device);
            conn.nexus = nexus;
        }
        let barrier = self.barriers.open(OnQuiesced::Login { connection: id, ticket });
        if let Some(device) = device {
            self.abort_lost(barrier, &AbortScope::Orphans { device, initiator: request.initiator_name });
        }
        self.barriers.close(barrier);
        self.touch(id);
    }

    /// The protocol's side of a connection that has come in at this portal group.
    ///
    /// # Errors
    ///
    /// When there are no random numbers.
    pub(super) fn new_login(
        &self,
        cx: &Context<'_>,
        portal_group: u16,
        (peer, local): (SocketAddr, SocketAddr),
    ) -> io::Result<LoginConnection> {
        let mut entropy = [0; Entropy::BYTES];
        (self.entropy)(&mut entropy)?;
        let config = ConnectionConfig {
            directory: Arc::clone(self.lifecycle.directory()),
            local,
            peer: peer.ip(),
            portal_group,
            timers: self.timers,
            entropy: Entropy(entropy),
        };
        Ok(LoginConnection::new(config, self.time(cx)))
    }

    pub(super) fn refuse(&mut self, id: ConnectionId, status: LoginStatus) {
        if let Some(login) = self.connections.get_mut(id).and_then(|conn| conn.login.as_mut()) {
            login.refuse(status);
        }
        self.touch(id);
    }

    /// Checks a login again, because the served targets may have changed during it.
    pub(super) fn recheck(&mut self, id: ConnectionId, request: &mut AdmitRequest) -> Result<(), LoginStatus> {
        let directory = Arc::clone(self.lifecycle.directory());
        let began_with = self.connections.get(id).and_then(|conn| conn.login.as_ref()?.directory());
        match began_with {
            Some(older) if !Arc::ptr_eq(older, &directory) => directory.recheck(older, request),
            _ => Ok(()),
        }
    }

    pub(super) fn finish_login(&mut self, cx: &mut Context<'_>, id: ConnectionId, ticket: LoginTicket<ConnectionId>) {
        let now = self.time(cx);
        // The connection may have ended while the login waited for stores.
        let Some(conn) = self.connections.get_mut(id).filter(|conn| conn.session.is_some()) else { return };
        let (Some(session), Some(login)) = (conn.session.clone(), conn.login.take()) else {
            debug_assert!(false, "a login ends twice");
            return;
        };
        let began = login.began();
        let Some(key) = self.connections.enter(ticket, *login, now) else { return self.close_now(cx, id) };
        if let Some(conn) = self.connections.get_mut(id) {
            self.shared_sessions.add(&session, conn.peer.ip());
            log_login(conn.peer, &session, now - began);
            let target = conn.device.as_ref().map_or("", |device| device.name());
            self.logins.count(target, |logins| logins.accepted += 1);
            if conn.nexus.is_none() {
                conn.nexus = conn.device.as_ref().map(|device| Arc::new(attach(device, &session)));
            }
        }
        self.observe(id, true);
        self.join_rest(key);
        let directory = Arc::clone(self.lifecycle.directory());
        self.connections.change_session(key, |session| session.set_directory(&directory, NEGOTIATION_GRACE));
        self.touch(id);
    }

    pub(super) fn device_of(&self, session: &SessionInfo) -> Option<Arc<TargetDevice>> {
        self.lifecycle.device(&session.target.as_ref()?.name).cloned()
    }
}

/// The owner of the buffers that a connection of a session holds.
pub(super) fn owner_of(session: &SessionInfo, peer: SocketAddr) -> Owner<'_> {
    Owner {
        user: session.chap_user.as_deref(),
        initiator: &session.initiator_name,
        host: peer.ip(),
        target: session.target.as_ref().map_or("", |target| &target.name),
    }
}

/// A login has succeeded: the names, the proof, what was negotiated, and how long it took.
fn log_login(peer: SocketAddr, session: &SessionInfo, took: Duration) {
    let keys = &session.parameters;
    tracing::info!(
        %peer,
        initiator = session.initiator_name,
        target = session.target.as_ref().map_or("(discovery)", |target| &target.name),
        host = session.host.as_deref(),
        chap_user = session.chap_user,
        certificate = session.origin.identity(),
        chap_algorithm = session.secrets.algorithm.map(ChapAlgorithm::name),
        tsih = session.tsih.0,
        header_digest = keys.header_digest.value(),
        data_digest = keys.data_digest.value(),
        error_recovery_level = keys.error_recovery_level,
        max_connections = keys.max_connections,
        recv_segment_bytes = keys.recv_data_segment_len,
        send_segment_bytes = keys.send_data_segment_len,
        first_burst_bytes = keys.first_burst_len,
        max_burst_bytes = keys.max_burst_len,
        initial_r2t = keys.initial_r2t,
        immediate_data = keys.immediate_data,
        took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "logged in"
    );
}

/// The nexus of a new session.
pub(super) fn attach(device: &Arc<TargetDevice>, session: &SessionInfo) -> Nexus {
    let target = session.target.as_ref().map_or("", |target| &target.name);
    let name = nexus_name(&session.initiator_name, session.isid, target, session.portal_group);
    let nexus = device.attach_host(name, session.host.clone());
    if session.parameters.has_sam5_features() {
        nexus.enable_sam5_functions();
    }
    nexus
}

/// The names of the ports of the nexus (RFC 7143 section 4.4.5).
pub(super) fn nexus_name(initiator: &str, isid: Isid, target: &str, portal_group: u16) -> NexusName {
    NexusName {
        initiator: format!("{initiator},i,0x{isid}"),
        target_port: port_name(target, portal_group),
        relative_port: portal_group,
    }
}
