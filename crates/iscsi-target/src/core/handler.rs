//! The calls of the reactor to a core.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use lunette_ecl::protection::Binding;
use lunette_ecl_endpoint::{SocketChange, Upper};
use lunette_pdu::BHS_LEN;
use lunette_reactor::{
    Closed, ConnectionId, Context, DatagramSocketId, FileRequest, Gather, Handler, ListenerId, Stream,
};
use lunette_session::iscsi_target::Placement;
use lunette_session::{OutgoingPdu, ProvenSecrets, Secret, Unacknowledged, folded_name};
use lunette_tls::{Peer, Source};

use super::Core;
use super::connections::Conn;
use super::mesh::Came;
use crate::control::Adopted;

impl Handler for Core {
    fn accepted(
        &mut self,
        cx: &mut Context<'_>,
        listener: ListenerId,
        id: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
    ) {
        let portals = self.lifecycle.portals();
        let group = portals.group_of(listener);
        if portals.speaks_tls(listener) && !self.handshakes.begin(Source::of(peer), self.time(cx).since_epoch()) {
            tracing::warn!(%peer, "connection refused: its address begins too many handshakes of TLS");
            return cx.close(id);
        }
        self.accept(cx, group, id, peer, local);
    }

    fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.connections.direct(id)
    }

    fn direct_received(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        self.connections.direct_received(id, len, self.time(cx));
    }

    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
        self.introduce(cx, id);
        bytes.len() - self.pump(cx, id, bytes).left
    }

    fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        self.connections.gather(id, list);
    }

    fn sent(&mut self, _: &mut Context<'_>, id: ConnectionId, len: usize) {
        self.connections.sent(id, len, self.buffers.has_waiting());
    }

    fn closed(&mut self, cx: &mut Context<'_>, id: ConnectionId, why: Closed) {
        if let Some(conn) = self.connections.get_mut(id) {
            conn.log_closed(&why);
            self.connection_lost(cx, id);
            // It may have ended in the sends, which come after the batch's end.
            self.unsettled = true;
        }
    }

    fn file_done(&mut self, _: &mut Context<'_>, tag: u64, request: FileRequest, result: io::Result<usize>) {
        self.tasks.file_done(tag, request, result);
    }

    fn released(&mut self, _: &mut Context<'_>, id: ConnectionId, stream: Stream) {
        self.departed(id, stream);
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        self.take_messages(cx);
        self.begin_stop_if_asked(cx);
        self.apply_updates(cx);
    }

    fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        // Sends come after the batch's end; what they made possible is due now. Background work takes a step in each
        // batch.
        if self.unsettled
            || self.connections.are_touched()
            || (self.resting.is_none() && self.tasks.background_is_due())
            || self.tasks.has_queued_files()
        {
            return Some(self.epoch);
        }
        let connections = self.connections.next_timeout().map(|time| self.epoch + time.since_epoch());
        let lifecycle = &self.lifecycle;
        let others = [
            lifecycle.stop_deadline(),
            lifecycle.next_look(),
            self.tasks.next_timeout().filter(|_| self.resting.is_none()),
            self.buffers.next_timeout(now),
            self.next_rest_look(now),
        ];
        others.into_iter().flatten().chain(connections).min()
    }

    fn timeout(&mut self, cx: &mut Context<'_>) {
        self.connections.time_has_come(self.time(cx));
        self.buffers.time_has_come(cx.now());
        self.lifecycle.look_at_interfaces(cx);
        self.end_overdue_stop(cx);
    }

    fn batch_end(&mut self, cx: &mut Context<'_>) {
        self.connections.begin_batch();
        self.settle(cx);
    }
}

impl Upper for Core {
    type Place = Placement;

    fn accepted_datagrams(
        &mut self,
        cx: &mut Context<'_>,
        socket: DatagramSocketId,
        id: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
    ) {
        let group = self.lifecycle.portals().group_of_datagrams(socket);
        self.accept(cx, group, id, peer, local);
    }

    fn datagrams_failed(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, error: &io::Error) {
        self.lifecycle.datagrams_failed(socket, error, cx.now());
    }

    fn accepts_at(&self, socket: DatagramSocketId) -> bool {
        self.lifecycle.portals().group_of_datagrams(socket).is_some()
    }

    fn datagrams_closed(&mut self, socket: DatagramSocketId) {
        self.lifecycle.datagrams_closed(socket);
    }

    fn next_socket_change(&mut self) -> Option<SocketChange> {
        self.lifecycle.next_socket_change()
    }

    fn takes(&self, id: ConnectionId) -> bool {
        self.connections.takes(id)
    }

    fn place_early(
        &mut self,
        id: ConnectionId,
        bhs: &[u8; BHS_LEN],
        pdu_offset: u32,
        len: usize,
    ) -> Option<(Placement, &mut [u8])> {
        self.connections.place_early(id, bhs, pdu_offset, len)
    }

    fn placed(&mut self, cx: &mut Context<'_>, id: ConnectionId, place: Placement, skipped: usize, len: usize) -> bool {
        self.connections.placed(id, place, skipped, len, self.time(cx))
    }

    fn take_pdu(&mut self, id: ConnectionId) -> Option<OutgoingPdu> {
        self.connections.take_pdu(id, self.buffers.has_waiting())
    }

    fn is_stopping(&self) -> bool {
        self.lifecycle.is_stopping()
    }

    fn set_unacknowledged(&mut self, id: ConnectionId, unacknowledged: Unacknowledged) {
        self.connections.set_unacknowledged(id, unacknowledged, self.buffers.has_waiting());
    }

    fn binding(&mut self, id: ConnectionId) -> Option<Binding> {
        let conn = self.connections.get(id).filter(|conn| conn.login.is_none())?;
        let session = conn.session.as_ref()?;
        let target = session.target.as_ref().map_or("", |target| &target.name);
        let ProvenSecrets { initiator, target: of_target, algorithm: _ } = &session.secrets;
        Some(Binding::new(
            &folded_name(&session.initiator_name),
            &folded_name(target),
            initiator.as_ref().map(Secret::expose),
            of_target.as_ref().map(Secret::expose),
        ))
    }
}

impl Core {
    /// Takes on a connection that was made elsewhere in this process.
    pub(super) fn adopt(&mut self, cx: &mut Context<'_>, Adopted { stream, peer, local, certificate }: Adopted) {
        if certificate.as_ref().is_some_and(Peer::has_ended) {
            return tracing::warn!(%peer, "connection refused: its certificate has ended");
        }
        let id = match cx.adopt(stream) {
            Ok(id) => id,
            Err(error) => return tracing::warn!(%peer, %error, "cannot take on a connection"),
        };
        let group = self.lifecycle.portals().ports().first().map(|portal| portal.group);
        self.accept(cx, group, id, peer, local);
        if let Some(certificate) = certificate {
            self.introduce_as(id, certificate);
        }
    }

    /// A connection has come in at a portal of that group.
    fn accept(
        &mut self,
        cx: &mut Context<'_>,
        group: Option<u16>,
        id: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
    ) {
        let source = Source::of(peer);
        let permit = self.mesh.permit(source);
        let (Some(portal_group), Some(permit), true) = (group, permit, !self.lifecycle.is_stopping()) else {
            tracing::warn!(%peer, "connection refused: too many, or stopping");
            return cx.close(id);
        };
        match self.new_login(cx, portal_group, (peer, local)) {
            Ok(login) => {
                let came = Came { to: local, at: Instant::now() };
                let conn = Conn::new(Box::new(login), peer, came, permit);
                if let Some(evicted) = self.connections.insert_targetless(id, conn, source) {
                    if let Some(conn) = self.connections.get(evicted) {
                        tracing::warn!(peer = %conn.peer, "connection ended: too many others have no target");
                    }
                    self.close_now(cx, evicted);
                }
                self.touch(id);
            }
            Err(error) => {
                tracing::error!(%peer, %error, "connection refused: no random numbers");
                cx.close(id);
            }
        }
    }
}
