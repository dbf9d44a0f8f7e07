//! Where datagrams come from and go to, and what the network writes on them.

use std::net::{SocketAddr, UdpSocket};

use lunette_reactor::{Address, DatagramConfig, DatagramPath, Ecn, interface_mtu};
use rustix::net::sockopt;

use super::super::reactor;
use super::{Event, numbered, run, to};

#[test]
fn an_answer_leaves_from_the_address_that_was_asked() {
    let cases =
        [("0.0.0.0:0", "127.0.0.2"), ("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "::1"), ("127.0.0.3:0", "127.0.0.3")];
    for (bound, asked) in cases {
        let mut reactor = reactor();
        let config = DatagramConfig::default();
        let mut cx = reactor.context();
        let (server, address) = cx.bind_udp(bound.parse().unwrap(), &config).unwrap();
        let asked = SocketAddr::new(asked.parse().unwrap(), address.port());
        // Connected: it hears the address that it asked and no other.
        let (client, own) = cx.connect_udp(asked, &config).unwrap();
        run(
            &mut reactor,
            |state, cx| state.offer(cx, client, to(asked), b"question".to_vec()),
            |state, cx, event| match event {
                Event::Datagrams(id, got) if id == server => {
                    assert_eq!(got[0].path, DatagramPath { local: asked.into(), peer: own.into() });
                    state.offer(cx, server, got[0].path, b"answer".to_vec());
                }
                Event::Datagrams(_, got) => {
                    assert_eq!((got[0].path.peer, &got[0].bytes[..]), (Address::Udp(asked), &b"answer"[..]));
                    cx.stop();
                }
                Event::Sent(..) => {}
                Event::Failed(_, failure) => panic!("{failure:?}"),
            },
        );
    }
}

#[test]
fn one_socket_serves_many_peers() {
    let peers = 20;
    let mut reactor = reactor();
    let config = DatagramConfig::default();
    let mut cx = reactor.context();
    let (server, address) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &config).unwrap();
    let clients: Vec<_> = (0..peers).map(|_| cx.connect_udp(address, &config).unwrap()).collect();
    let mut answered = vec![0; peers];
    run(
        &mut reactor,
        |state, cx| {
            for (number, (client, _)) in clients.iter().enumerate() {
                state.offer(cx, *client, to(address), numbered(number, 500));
            }
        },
        |state, cx, event| match event {
            Event::Datagrams(id, got) if id == server => {
                // All of one length: different paths keep them apart.
                for datagram in got {
                    state.offer(cx, server, datagram.path, datagram.bytes.clone());
                    state.offer(cx, server, datagram.path, datagram.bytes);
                }
            }
            Event::Datagrams(id, got) => {
                let number = clients.iter().position(|(client, _)| *client == id).unwrap();
                assert!(got.iter().all(|datagram| datagram.bytes == numbered(number, 500)));
                answered[number] += got.len();
                if answered.iter().all(|answers| *answers == 2) {
                    cx.stop();
                }
            }
            Event::Sent(..) => {}
            Event::Failed(_, failure) => panic!("{failure:?}"),
        },
    );
}

#[test]
fn the_ecn_field_is_set_and_seen() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let mut reactor = reactor();
        let config = DatagramConfig::default();
        let address: SocketAddr = address.parse().unwrap();
        let mut cx = reactor.context();
        let (receiver, bound) = cx.bind_udp(address, &config).unwrap();
        let (sender, own) = cx.connect_udp(bound, &config).unwrap();
        let others = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce].map(|ecn| {
            let socket = UdpSocket::bind(address).unwrap();
            // A network that marks what passes is not at hand, so the sender does it. The other bits are DSCP's.
            let class = 0xb8 | ecn as u8;
            if address.is_ipv4() {
                sockopt::set_ip_tos(&socket, class).unwrap();
            } else {
                sockopt::set_ipv6_tclass(&socket, class.into()).unwrap();
            }
            (socket, ecn)
        });
        let mut seen = 0;
        run(
            &mut reactor,
            |state, cx| {
                for (socket, _) in &others {
                    socket.send_to(b"x", bound).unwrap();
                }
                // Joined and alone.
                for len in [100, 100, 100, 50, 70] {
                    state.offer(cx, sender, to(bound), numbered(0, len));
                }
            },
            |_, cx, event| {
                let Event::Datagrams(id, got) = event else { return };
                assert_eq!(id, receiver);
                for datagram in got {
                    let from = |other: &&(UdpSocket, Ecn)| datagram.path.peer == other.0.local_addr().unwrap().into();
                    let other = others.iter().find(from);
                    assert!(other.is_some() || datagram.path.peer == Address::Udp(own));
                    let expected = other.map_or(Ecn::Ect0, |(_, ecn)| *ecn);
                    assert_eq!(datagram.ecn, expected);
                    seen += 1;
                }
                if seen == 9 {
                    cx.stop();
                }
            },
        );
    }
}

#[test]
fn the_loopback_interface_has_its_mtu() {
    for peer in ["127.0.0.1:1", "[::1]:1"] {
        assert_eq!(interface_mtu(Address::Udp(peer.parse().unwrap())).unwrap(), 65_536);
    }
}
