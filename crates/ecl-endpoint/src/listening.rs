//! Associations that peers begin.

use lunette_ecl::Entropy;
use lunette_ecl::handshake::{Answer, Listener, ResetSecret, Terms};
use lunette_ecl::header::{PacketType, association_of};
use lunette_reactor::{Address, Context, DatagramPath, DatagramSocketId};
use lunette_session::Time;

use crate::addresses::{path_from, path_to, peer_of, socket_address};
use crate::{Endpoint, SocketChange, Upper};

/// The part that answers to unknown addresses and associations. It is made at the first datagram.
#[derive(Default)]
pub(crate) struct Listening {
    listener: Option<Listener>,
}

impl Listening {
    fn listener(&mut self, secret: Option<&ResetSecret>, now: Time, entropy: &mut Entropy<'_>) -> &mut Listener {
        self.listener.get_or_insert_with(|| {
            let drawn = |entropy: &mut Entropy<'_>| {
                let mut secret = [0; 32];
                entropy(&mut secret);
                ResetSecret::new(secret)
            };
            let secret = secret.cloned().unwrap_or_else(|| drawn(entropy));
            Listener::new(now, secret, entropy)
        })
    }
}

impl<H: Upper> Endpoint<H> {
    /// A datagram at a socket of the upper handler that belongs to no association. Gives the number of the one that it
    /// begins.
    pub(crate) fn unknown(
        &mut self,
        cx: &mut Context<'_>,
        socket: DatagramSocketId,
        path: &DatagramPath,
        bytes: &[u8],
        now: Time,
    ) -> Option<u32> {
        if !self.upper.accepts_at(socket) {
            return None;
        }
        let terms = Terms { trusted: self.config.trusts_addresses, seal: self.seal_for(None, &path.peer) };
        let entropy: &mut Entropy<'_> = &mut *self.entropy;
        let listener = self.listening.listener(self.config.reset_secret.as_ref(), now, entropy);
        let is_initial = bytes.first().is_some_and(|first| first & 0x0f == PacketType::Initial as u8);
        if !is_initial {
            if let Some(accepted) = listener.claim(now, bytes) {
                let id = cx.open_virtual();
                // What has proven its address is that of the handshake. A packet from elsewhere moves the association,
                // as later ones do.
                let path = &path_to(path, &accepted.address);
                let (peer, local) = (socket_address(&path.peer), socket_address(&path.local));
                let number = self.begin(accepted.established, id, socket, *path, now);
                self.upper.accepted_datagrams(cx, socket, id, peer, local);
                return Some(number);
            }
            let is_known = association_of(bytes).is_some_and(|number| self.peers.contains(number));
            // A station gets the frames for all processes on it: this one may belong to another.
            let is_ours = matches!(path.peer, Address::Udp(_));
            if is_ours
                && !is_known
                && let Some(reset) = listener.reset(&peer_of(path), bytes)
            {
                self.answer(cx, socket, path, &reset);
            }
            return None;
        }
        let peers = &self.peers;
        match listener.answer(now, &peer_of(path), terms, bytes, |number| peers.contains(number), entropy) {
            Answer::Drop => {}
            Answer::Retry(retry) => self.answer(cx, socket, path, &retry),
            Answer::Accept(accept) => self.answer(cx, socket, path, &accept),
        }
        None
    }

    /// Lets associations follow the sockets of the upper handler.
    pub(crate) fn follow_sockets(&mut self, cx: &mut Context<'_>) {
        while let Some(change) = self.upper.next_socket_change() {
            let (before, socket, own) = match change {
                SocketChange::Retired(socket) => {
                    self.close_unused(cx, socket);
                    continue;
                }
                SocketChange::Replaced { before, socket, own } => (before, socket, own),
            };
            for number in self.peers.at_socket(before) {
                if let Some(peer) = self.peers.get_touched(number) {
                    peer.socket = socket;
                    peer.path = path_from(&peer.path, own);
                }
            }
            self.outbox.forget(before);
            cx.close_datagrams(before);
        }
    }

    /// Closes a socket at which no associations begin any more, when none is left.
    pub(crate) fn close_unused(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId) {
        if !self.upper.accepts_at(socket) && self.peers.at_socket(socket).is_empty() {
            self.outbox.forget(socket);
            cx.close_datagrams(socket);
            self.upper.datagrams_closed(socket);
        }
    }

    fn answer(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, path: &DatagramPath, bytes: &[u8]) {
        self.outbox.add_loose(socket, *path, bytes.into());
        cx.send_datagrams(socket);
    }
}
