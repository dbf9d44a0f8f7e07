//! An endpoint with a small handler above it, and a peer that speaks to its socket.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use lunette_ecl::association::{Association, Config as AssociationConfig};
use lunette_ecl::handshake::{Client, Established, Received};
use lunette_ecl::path::Address;
use lunette_ecl::protection::Binding;
use lunette_pdu::BHS_LEN;
use lunette_reactor::{
    Closed, ConnectionId, Context, DatagramPath, DatagramSocketId, Gather, Handler, ListenerId, Reactor,
};
use lunette_session::{OutgoingPdu, Time, Unacknowledged};

use crate::{Config, Endpoint, Upper};

/// A login of one PDU, whose answer is its bytes.
#[derive(Default)]
pub(crate) struct Login {
    received: Vec<u8>,
    answered: bool,
    /// Where the last association has begun.
    socket: Option<DatagramSocketId>,
    /// The last news.
    unacknowledged: Unacknowledged,
}

impl Login {
    fn has_passed(&self) -> bool {
        self.received.len() >= BHS_LEN
    }
}

impl Handler for Login {
    fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}
    fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
        self.received.extend_from_slice(bytes);
        bytes.len()
    }
    fn gather<'a>(&'a self, _: ConnectionId, _: &mut Gather<'a>) {}
    fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, _: usize) {}
    fn closed(&mut self, _: &mut Context<'_>, _: ConnectionId, _: Closed) {}
}

impl Upper for Login {
    type Place = ();

    fn accepted_datagrams(
        &mut self,
        _: &mut Context<'_>,
        socket: DatagramSocketId,
        _: ConnectionId,
        _: SocketAddr,
        _: SocketAddr,
    ) {
        self.socket = Some(socket);
    }
    fn takes(&self, _: ConnectionId) -> bool {
        true
    }
    fn place_early(&mut self, _: ConnectionId, _: &[u8; BHS_LEN], _: u32, _: usize) -> Option<((), &mut [u8])> {
        None
    }
    fn placed(&mut self, _: &mut Context<'_>, _: ConnectionId, (): (), _: usize, _: usize) -> bool {
        false
    }
    fn take_pdu(&mut self, _: ConnectionId) -> Option<OutgoingPdu> {
        let is_due = self.has_passed() && !std::mem::replace(&mut self.answered, true);
        is_due.then(|| pdu(2))
    }
    fn set_unacknowledged(&mut self, _: ConnectionId, unacknowledged: Unacknowledged) {
        self.unacknowledged = unacknowledged;
    }
    fn binding(&mut self, _: ConnectionId) -> Option<Binding> {
        self.has_passed().then(|| Binding::new("initiator", "target", None, None))
    }
}

/// A PDU without data.
fn pdu(byte: u8) -> OutgoingPdu {
    let mut bhs = [byte; BHS_LEN];
    // TotalAHSLength and DataSegmentLength.
    bhs[4..8].fill(0);
    OutgoingPdu { bhs, ahs: Box::default(), data: lunette_buffer::Payload::Empty, more: Vec::new(), block_len: 0 }
}

/// A handshake with the endpoint at `address`.
fn shake_hands(reactor: &mut Reactor, endpoint: &mut Endpoint<Login>, socket: &UdpSocket, number: u32) -> Established {
    let mut client = Client::new(Time::default(), number, &mut |bytes: &mut [u8]| bytes.fill(6 + number as u8));
    socket.send(&client.transmit(Time::default()).unwrap().unwrap()).unwrap();
    reactor.step(endpoint, Instant::now()).unwrap();
    let mut answer = [0; 2048];
    let len = socket.recv(&mut answer).unwrap();
    match client.receive(Time::default(), &answer[..len]) {
        Received::Established(established) => established,
        _ => panic!("no Accept"),
    }
}

/// An endpoint, and a client that has begun an association with it.
fn associated() -> (Reactor, Endpoint<Login>, UdpSocket, Association<()>) {
    let mut reactor = Reactor::new().unwrap();
    // No longer datagrams are looked for.
    let config = Config { trusts_addresses: true, interface_mtu: Some(1280), ..Config::default() };
    let mut next = 9;
    let entropy = Box::new(move |bytes: &mut [u8]| {
        bytes.fill(next);
        next += 1;
    });
    let sockets = config.sockets;
    let mut endpoint = Endpoint::new(Login::default(), config, Instant::now(), entropy);
    let (_, address) = reactor.context().bind_udp("127.0.0.1:0".parse().unwrap(), &sockets).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    let established = shake_hands(&mut reactor, &mut endpoint, &socket, 1);
    let now = Time::default();
    let client: Association<()> = Association::new(
        established,
        Address::Udp(address),
        AssociationConfig::default(),
        now,
        &mut |bytes: &mut [u8]| bytes.fill(7),
    );
    (reactor, endpoint, socket, client)
}

/// Sends what a client has to send.
fn send(client: &mut Association<()>, socket: &UdpSocket) {
    client.fill(Time::default());
    for index in 0..client.ready_len() {
        socket.send(&client.packet(index).flatten().copied().collect::<Vec<u8>>()).unwrap();
    }
    client.sent(client.ready_len());
}

#[test]
fn the_upper_handler_is_told_what_is_not_acknowledged() {
    let (mut reactor, mut endpoint, socket, mut client) = associated();
    let address = Address::Udp(socket.peer_addr().unwrap());
    client.push(pdu(1));
    send(&mut client, &socket);
    reactor.step(&mut endpoint, Instant::now()).unwrap();
    // The answer has left. Something comes that acknowledges nothing.
    client.push(pdu(1));
    send(&mut client, &socket);
    reactor.step(&mut endpoint, Instant::now()).unwrap();
    assert_eq!(endpoint.upper().unacknowledged, Unacknowledged { bytes: BHS_LEN, data_bytes: 0 });
    // The first packet behind the login acknowledges the answer.
    let mut answer = [0; 2048];
    let len = socket.recv(&mut answer).unwrap();
    client.receive(&mut answer[..len], &address, false, Time::default(), &mut |bytes| bytes.fill(7));
    client.bind(&Binding::new("initiator", "target", None, None));
    send(&mut client, &socket);
    reactor.step(&mut endpoint, Instant::now()).unwrap();
    assert_eq!(endpoint.upper().unacknowledged, Unacknowledged::default());
}

#[test]
fn what_an_interface_does_not_take_is_told_to_all_associations_on_the_path() {
    let (mut reactor, mut endpoint, socket, mut first) = associated();
    let address = Address::Udp(socket.peer_addr().unwrap());
    let other = shake_hands(&mut reactor, &mut endpoint, &socket, 2);
    let mut second = Association::new(other, address, AssociationConfig::default(), Time::default(), &mut |bytes| {
        bytes.fill(7);
    });
    for client in [&mut first, &mut second] {
        client.push(pdu(1));
        send(client, &socket);
    }
    reactor.step(&mut endpoint, Instant::now()).unwrap();
    let path = DatagramPath::to(socket.local_addr().unwrap().into());
    let elsewhere = DatagramPath::to("127.0.0.2:9".parse::<SocketAddr>().unwrap().into());
    let at = endpoint.upper().socket.unwrap();
    assert_eq!(endpoint.peers.on_path(at, &path).count(), 2);
    assert_eq!(endpoint.peers.on_path(at, &elsewhere).count(), 0);
}

#[test]
fn bytes_behind_a_login_are_not_taken_under_its_keys() {
    let (mut reactor, mut endpoint, socket, mut client) = associated();
    // A machine that relays the login knows its keys, and sends a command behind the last request, in the same batch.
    for byte in [1, 3] {
        client.push(pdu(byte));
    }
    send(&mut client, &socket);
    reactor.step(&mut endpoint, Instant::now()).unwrap();
    assert_eq!(endpoint.upper().received, pdu(1).bhs);
}
