//! Associations that this side begins.

use std::io;

use lunette_ecl::Entropy;
use lunette_ecl::handshake::{Client, Received};
use lunette_ecl::header::ASSOCIATION_AT;
use lunette_reactor::{
    Address, Closed, ConnectionId, Context, DatagramConfig, DatagramPath, DatagramSocketId, FrameWord,
};
use lunette_session::Time;

use crate::{Endpoint, Upper};

/// A handshake under way.
pub(crate) struct Dialing {
    pub(crate) id: ConnectionId,
    pub(crate) socket: DatagramSocketId,
    path: DatagramPath,
    client: Client,
}

impl Dialing {
    pub(crate) fn next_timeout(&self) -> Time {
        self.client.next_timeout()
    }
}

impl<H: Upper> Endpoint<H> {
    /// The upper handler asks for a connection.
    pub(crate) fn connect(&mut self, cx: &mut Context<'_>, id: ConnectionId, address: Address) {
        let now = self.time(cx);
        let number = free_number(&mut *self.entropy, |number| self.peers.contains(number));
        let sockets = DatagramConfig {
            offloads: self.upper.datagram_options(id).offloads,
            // No Reset comes over Ethernet, which alone would name another number.
            only: Some(FrameWord { at: ASSOCIATION_AT as u32, word: number }),
            ..self.config.sockets
        };
        let opened = match address {
            Address::Udp(address) => cx.connect_udp(address, &sockets).map(|(socket, _)| socket),
            Address::Ethernet(station) => cx.connect_ethernet(station, &sockets).map(|(socket, _)| socket),
        };
        let socket = match opened {
            Ok(socket) => socket,
            Err(error) => return self.refused(cx, id, error),
        };
        let seal = self.seal_for(Some(id), &address);
        let entropy: &mut Entropy<'_> = &mut *self.entropy;
        let client = Client::new(now, number, entropy).with_seal(seal);
        let path = DatagramPath::to(address);
        self.dialing.push(Dialing { id, socket, path, client });
        self.dial(cx, now);
    }

    /// Sends the packets of handshakes that are due, and gives up those that had no answer.
    pub(crate) fn dial(&mut self, cx: &mut Context<'_>, now: Time) {
        let mut given_up = Vec::new();
        for dialing in &mut self.dialing {
            match dialing.client.transmit(now) {
                Ok(Some(initial)) => {
                    self.outbox.add_loose(dialing.socket, dialing.path, initial.into());
                    cx.send_datagrams(dialing.socket);
                }
                Ok(None) => {}
                Err(error) => given_up.push((dialing.id, error)),
            }
        }
        for (id, error) in given_up {
            self.hang_up(cx, id);
            self.refused(cx, id, io::Error::new(io::ErrorKind::TimedOut, error.to_string()));
        }
    }

    /// A connection does not come about.
    fn refused(&mut self, cx: &mut Context<'_>, id: ConnectionId, error: io::Error) {
        self.upper.closed(cx, id, Closed::Error(error));
        cx.remove_virtual(id);
        self.unsettled = true;
    }

    /// A socket has failed. On a handshake's, the network says that no socket is bound at the address.
    pub(crate) fn socket_failed(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, error: io::Error) {
        if let Some(id) = self.dialing.iter().find(|dialing| dialing.socket == socket).map(|dialing| dialing.id) {
            self.hang_up(cx, id);
            self.refused(cx, id, error);
        } else if self.peers.begun_at(socket).is_none() {
            self.upper.datagrams_failed(cx, socket, &error);
        }
    }

    /// Forgets a handshake.
    pub(crate) fn hang_up(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        for dialing in self.dialing.extract_if(.., |dialing| dialing.id == id) {
            self.outbox.forget(dialing.socket);
            cx.close_datagrams(dialing.socket);
        }
    }

    /// A datagram at the socket of a handshake. False when there is none there.
    pub(crate) fn dialed(
        &mut self,
        cx: &mut Context<'_>,
        socket: DatagramSocketId,
        path: &DatagramPath,
        bytes: &[u8],
        now: Time,
    ) -> bool {
        let Some(at) = self.dialing.iter().position(|dialing| dialing.socket == socket) else { return false };
        // The socket is connected, but for one on an interface, which hears all stations.
        if matches!(path.peer, Address::Ethernet(_)) && path.peer != self.dialing[at].path.peer {
            return true;
        }
        match self.dialing[at].client.receive(now, bytes) {
            Received::Foreign => {}
            Received::Retry => self.dial(cx, now),
            Received::Established(established) => {
                let Dialing { id, socket, path, .. } = self.dialing.swap_remove(at);
                self.begin(established, id, socket, path, now);
            }
        }
        true
    }
}

/// A number for an association that no other has, and not 0.
fn free_number(entropy: &mut Entropy<'_>, is_taken: impl Fn(u32) -> bool) -> u32 {
    loop {
        let mut bytes = [0; 4];
        entropy(&mut bytes);
        let number = u32::from_ne_bytes(bytes);
        if number != 0 && !is_taken(number) {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use lunette_ecl::handshake::{Answer, Listener, ResetSecret, Terms};
    use lunette_ecl::path::Address as PeerAddress;
    use lunette_reactor::{EthernetAddress, Mac, Reactor};

    use super::*;
    use crate::Config;
    use crate::tests::Login;

    #[test]
    fn a_handshake_on_an_interface_hears_its_server_alone() {
        let station =
            |mac| DatagramPath::to(Address::Ethernet(EthernetAddress { interface: u32::MAX, mac: Mac([mac; 6]) }));
        let (mut reactor, now) = (Reactor::new().unwrap(), Time::default());
        let mut endpoint = Endpoint::new(
            Login::default(),
            Config::default(),
            Instant::now(),
            Box::new(|bytes: &mut [u8]| bytes.fill(9)),
        );
        let mut cx = reactor.context();
        // What carries the frames does not matter here.
        let (socket, _) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &endpoint.config.sockets).unwrap();
        let entropy: &mut Entropy<'_> = &mut |bytes: &mut [u8]| bytes.fill(7);
        let mut client = Client::new(now, 1, entropy);
        let initial = client.transmit(now).unwrap().unwrap();
        let mut listener = Listener::new(now, ResetSecret::new([5; 32]), entropy);
        let terms = Terms { trusted: true, ..Terms::default() };
        let answer = listener.answer(now, &PeerAddress::Ethernet([2; 6]), terms, &initial, |_| false, entropy);
        let Answer::Accept(accept) = answer else { panic!("{answer:?}") };
        endpoint.dialing.push(Dialing { id: cx.open_virtual(), socket, path: station(2), client });
        for (mac, left) in [(4, 1), (2, 0)] {
            assert!(endpoint.dialed(&mut cx, socket, &station(mac), &accept, now));
            assert_eq!(endpoint.dialing.len(), left, "from station {mac}");
        }
    }
}
