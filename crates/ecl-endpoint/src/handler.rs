//! The endpoint as the reactor's handler: streams are handed on, datagrams are taken apart.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use lunette_ecl::association::Received;
use lunette_ecl::{Entropy, header};
use lunette_reactor::{
    Closed, ConnectionId, Context, Datagram, DatagramFailure, DatagramList, DatagramSocketId, Datagrams, Ecn,
    FileRequest, Gather, Handler, ListenerId, Stream,
};
use lunette_session::Time;

use crate::above::Above;
use crate::addresses::{path_to, peer_of};
use crate::endpoint::take_pdus;
use crate::peers::Peer;
use crate::{Endpoint, Upper};

impl<H: Upper> Handler for Endpoint<H> {
    fn accepted(
        &mut self,
        cx: &mut Context<'_>,
        listener: ListenerId,
        id: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
    ) {
        self.upper.accepted(cx, listener, id, peer, local);
    }

    #[inline]
    fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.upper.direct(id)
    }

    #[inline]
    fn direct_received(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        self.upper.direct_received(cx, id, len);
    }

    #[inline]
    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
        self.upper.received(cx, id, bytes)
    }

    #[inline]
    fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        self.upper.gather(id, list);
    }

    #[inline]
    fn sent(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        self.upper.sent(cx, id, len);
    }

    fn closed(&mut self, cx: &mut Context<'_>, id: ConnectionId, why: Closed) {
        self.upper.closed(cx, id, why);
    }

    fn file_done(&mut self, cx: &mut Context<'_>, tag: u64, request: FileRequest, result: io::Result<usize>) {
        self.upper.file_done(cx, tag, request, result);
    }

    fn released(&mut self, cx: &mut Context<'_>, id: ConnectionId, stream: Stream) {
        self.upper.released(cx, id, stream);
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        self.upper.woken(cx);
    }

    fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        self.upper.next_timeout(now).into_iter().chain(self.next_time()).min()
    }

    fn timeout(&mut self, cx: &mut Context<'_>) {
        self.upper.timeout(cx);
        self.time_has_come(cx);
    }

    fn batch_end(&mut self, cx: &mut Context<'_>) {
        self.deliver_touched(cx);
        self.upper.batch_end(cx);
        self.settle(cx);
    }

    // Datagrams.

    fn datagrams(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, datagrams: Datagrams<'_>) {
        let now = self.time(cx);
        for datagram in datagrams {
            self.datagram(cx, socket, datagram, now);
        }
    }

    fn gather_datagrams<'a>(&'a mut self, socket: DatagramSocketId, list: &mut DatagramList<'a>) {
        self.outbox.gather(socket, &self.peers, list);
    }

    fn datagrams_sent(&mut self, _: &mut Context<'_>, socket: DatagramSocketId, count: usize) {
        self.outbox.sent(socket, count, &mut self.peers);
    }

    fn datagram_failed(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, failure: DatagramFailure) {
        let now = self.time(cx);
        match failure {
            DatagramFailure::TooLong { path, len } => {
                for peer in self.peers.on_path(socket, &path) {
                    peer.association.on_too_long(len, now);
                }
            }
            DatagramFailure::Network(error) => self.socket_failed(cx, socket, error),
            failure => tracing::debug!(?failure, "a datagram was not sent"),
        }
    }
}

impl<H: Upper> Endpoint<H> {
    fn datagram(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, datagram: Datagram<'_>, now: Time) {
        let Datagram { path, ecn, bytes } = datagram;
        let Some(number) = header::association_of(bytes) else { return };
        let known = self.peers.get(number).is_some_and(|peer| peer.socket == socket);
        let number = if known {
            Some(number)
        } else if let Some(number) = self.peers.begun_at(socket) {
            // A Reset names the association by the server's number. At an Ethernet interface, other packets are those
            // of other sockets.
            header::is_reset(bytes).then_some(number)
        } else if self.dialed(cx, socket, path, bytes, now) {
            None
        } else {
            self.unknown(cx, socket, path, bytes, now)
        };
        let Some(number) = number else { return };
        let Self { upper, peers, entropy, .. } = self;
        let Some(peer) = peers.get_touched(number) else { return };
        let Peer { association, id, rest, leaves, is_bound, .. } = &mut *peer;
        let entropy: &mut Entropy<'_> = &mut **entropy;
        if let Received::Stream(packet) = association.receive(bytes, &peer_of(path), ecn == Ecn::Ce, now, entropy) {
            association.take(&packet, &mut Above { upper, cx, id: *id, rest, leaves, is_bound: *is_bound });
            // The packet may have ended the login, and then the next one may not be under its keys.
            if !peer.is_bound {
                take_pdus(upper, peer);
            }
        }
        if peer_of(&peer.path) != *peer.association.peer() {
            peer.path = path_to(path, peer.association.peer());
        }
    }
}
