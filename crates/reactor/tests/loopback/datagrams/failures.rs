//! Datagrams that do not leave or do not arrive, and sockets that go on.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use lunette_reactor::{DatagramConfig, DatagramFailure, Offloads};

use super::super::reactor;
use super::{Event, numbered, run, to};

const OFFLOADS: [Offloads; 2] = [Offloads::On, Offloads::Off];

#[test]
fn a_port_without_a_socket_refuses_and_can_be_bound_later() {
    for offloads in OFFLOADS {
        let mut reactor = reactor();
        let config = DatagramConfig { offloads, ..DatagramConfig::default() };
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (sender, _) = reactor.context().connect_udp(address, &config).unwrap();
        let mut refused = 0;
        let mut receiver = None;
        run(
            &mut reactor,
            |state, cx| {
                // Different lengths: several messages, of which all but the first meet the refusal of another.
                (0..10).for_each(|number| state.offer(cx, sender, to(address), numbered(number, 100 + number)));
            },
            |state, cx, event| match event {
                Event::Failed(id, DatagramFailure::Network(error)) => {
                    assert_eq!((id, error.kind()), (sender, io::ErrorKind::ConnectionRefused));
                    refused += 1;
                    if receiver.is_none() {
                        receiver = Some(cx.bind_udp(address, &config).unwrap().0);
                    }
                    // Those before were lost.
                    state.offer(cx, sender, to(address), b"again".to_vec());
                }
                Event::Failed(_, failure) => panic!("{failure:?}"),
                Event::Sent(..) => {}
                Event::Datagrams(id, got) => {
                    assert_eq!(Some(id), receiver);
                    if got.iter().any(|datagram| datagram.bytes == b"again") {
                        cx.stop();
                    }
                }
            },
        );
        assert!(refused > 0);
    }
}

#[test]
fn what_cannot_be_sent_is_told_and_its_neighbours_leave() {
    for offloads in OFFLOADS {
        let mut reactor = reactor();
        let config = DatagramConfig { offloads, ..DatagramConfig::default() };
        let mut cx = reactor.context();
        let (receiver, address) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &config).unwrap();
        let (sender, _) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &config).unwrap();
        // No datagram goes to port 0, and none is longer than this.
        let nowhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let too_long = 65_508;
        let mut failed = Vec::new();
        let mut received = Vec::new();
        let mut sent = 0;
        run(
            &mut reactor,
            |state, cx| {
                let ways = [
                    (address, 300),
                    (nowhere, 300),
                    (nowhere, 300),
                    (address, 300),
                    (address, too_long),
                    (address, 300),
                ];
                for (number, (way, len)) in ways.into_iter().enumerate() {
                    state.offer(cx, sender, to(way), numbered(number, len));
                }
            },
            |_, cx, event| {
                match event {
                    Event::Failed(_, DatagramFailure::TooLong { path, len }) => failed.push((path, len)),
                    Event::Failed(_, DatagramFailure::NotSent { path, .. }) => failed.push((path, 0)),
                    Event::Failed(_, failure) => panic!("{failure:?}"),
                    Event::Sent(_, count) => sent += count,
                    Event::Datagrams(id, got) => {
                        assert_eq!(id, receiver);
                        received.extend(got.into_iter().map(|datagram| datagram.bytes[3]));
                    }
                }
                // What is sent may be received before the sender is told of it.
                if received.len() == 3 && sent == 6 && failed.len() == 3 {
                    cx.stop();
                }
            },
        );
        assert_eq!(failed, [(to(nowhere), 0), (to(nowhere), 0), (to(address), too_long)]);
        assert_eq!((sent, &received[..]), (6, &[0, 3, 5][..]));
    }
}
