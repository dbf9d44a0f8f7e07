//! Datagrams in the hands of the reactor's caller: for a network that the caller makes, as a simulation does.
//!
//! Sockets are opened as always, but nothing passes them. What a handler sends is taken by the caller, and what the
//! caller brings is received in the next batch.

use std::collections::VecDeque;

use super::calls::Ends;
use super::list::DatagramList;
use super::socket::Outcome;
use super::{DatagramFailure, DatagramPath, DatagramSocketId, Datagrams, Ecn};
use crate::datagram::received::MessageInfo;
use crate::handler::Handler;
use crate::{Context, Reactor};

/// A datagram that a handler has sent, for the caller to carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedDatagram {
    /// The socket that it left by.
    pub socket: DatagramSocketId,
    /// From where to where.
    pub path: DatagramPath,
    /// The bytes of the message.
    pub bytes: Vec<u8>,
}

/// The bytes that the caller has brought, and those that it has still to take.
#[derive(Default)]
pub(crate) struct Carried {
    sent: Vec<CarriedDatagram>,
    arrived: VecDeque<Arrival>,
}

enum Arrival {
    Datagram(DatagramSocketId, MessageInfo, Vec<u8>),
    Failure(DatagramSocketId, DatagramFailure),
}

impl Carried {
    /// Takes all of a list that leaves by `socket`.
    pub(super) fn send(&mut self, socket: DatagramSocketId, list: &DatagramList<'_>) -> Outcome {
        let mut bytes = 0;
        for (path, len, slices) in list.iter() {
            bytes += len;
            let whole = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            self.sent.push(CarriedDatagram { socket, path: *path, bytes: whole });
        }
        Outcome { done: list.len(), bytes }
    }
}

/// A connected socket hears its peer alone.
fn hears(ends: Ends, path: &DatagramPath) -> bool {
    ends.peer.is_none_or(|peer| peer == path.peer)
}

impl Reactor {
    /// Leaves all datagrams to the caller from now on: none leaves or comes by a socket. For a reactor that is
    /// [stepped](Self::step).
    pub fn carry_datagrams(&mut self) {
        self.carried.get_or_insert_default();
    }

    /// The datagrams that were sent since the last call, in order.
    pub fn take_carried(&mut self) -> Vec<CarriedDatagram> {
        self.carried.as_mut().map(|carried| std::mem::take(&mut carried.sent)).unwrap_or_default()
    }

    /// A datagram has come to `socket`: it is received in the next batch. As the system does, a connected socket drops
    /// what its peer has not sent.
    pub fn arrive(&mut self, socket: DatagramSocketId, path: DatagramPath, ecn: Ecn, bytes: Vec<u8>) {
        let len = bytes.len();
        let info = MessageInfo { path, ecn, len, segment_len: len };
        if let Some(carried) = &mut self.carried {
            carried.arrived.push_back(Arrival::Datagram(socket, info, bytes));
        }
    }

    /// The network has a word about what `socket` has sent: it is told in the next batch.
    pub fn fail_datagram(&mut self, socket: DatagramSocketId, failure: DatagramFailure) {
        if let Some(carried) = &mut self.carried {
            carried.arrived.push_back(Arrival::Failure(socket, failure));
        }
    }

    /// Hands on what the caller has brought. Says whether there was anything.
    pub(crate) fn receive_carried(&mut self, handler: &mut impl Handler) -> bool {
        let Some(carried) = &mut self.carried else { return false };
        let arrived = std::mem::take(&mut carried.arrived);
        let any = !arrived.is_empty();
        for arrival in arrived {
            let (Arrival::Datagram(id, ..) | Arrival::Failure(id, _)) = &arrival;
            let id = *id;
            // The handler may have closed it meanwhile.
            let Some(ends) = self.sockets.datagrams.get(id.0).map(super::DatagramSocket::ends) else { continue };
            let cx = &mut Context::new(&mut self.sockets);
            match arrival {
                Arrival::Datagram(_, info, mut bytes) if hears(ends, &info.path) => {
                    let len = bytes.len().max(1);
                    handler.datagrams(cx, id, Datagrams::new(&[Some(info)], padded(&mut bytes), len));
                }
                Arrival::Datagram(..) => {}
                Arrival::Failure(_, failure) => handler.datagram_failed(cx, id, failure),
            }
        }
        any
    }
}

/// A slot is never without a byte.
fn padded(bytes: &mut Vec<u8>) -> &mut [u8] {
    if bytes.is_empty() {
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use super::*;
    use crate::{Closed, ConnectionId, Datagram, DatagramConfig, Gather, ListenerId};

    /// Answers each datagram with the same bytes, and counts what came to nothing.
    #[derive(Default)]
    struct Echo {
        waiting: Vec<(DatagramPath, Vec<u8>)>,
        failures: usize,
    }

    impl Handler for Echo {
        fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}
        fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
            bytes.len()
        }
        fn gather<'a>(&'a self, _: ConnectionId, _: &mut Gather<'a>) {}
        fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, _: usize) {}
        fn closed(&mut self, _: &mut Context<'_>, _: ConnectionId, _: Closed) {}
        fn datagrams(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, datagrams: Datagrams<'_>) {
            self.waiting.extend(datagrams.map(|Datagram { path, bytes, .. }| (*path, bytes.to_vec())));
            cx.send_datagrams(socket);
        }
        fn gather_datagrams<'a>(&'a mut self, _: DatagramSocketId, list: &mut DatagramList<'a>) {
            for (path, bytes) in &self.waiting {
                assert!(list.push(path, [&bytes[..]]));
            }
        }
        fn datagrams_sent(&mut self, _: &mut Context<'_>, _: DatagramSocketId, count: usize) {
            self.waiting.drain(..count);
        }
        fn datagram_failed(&mut self, _: &mut Context<'_>, _: DatagramSocketId, _: DatagramFailure) {
            self.failures += 1;
        }
    }

    fn path(port: u16) -> DatagramPath {
        DatagramPath::to(SocketAddr::from(([127, 0, 0, 1], port)).into())
    }

    #[test]
    fn what_the_caller_brings_is_received_and_what_is_sent_is_the_caller_s() {
        let (mut reactor, mut echo) = (Reactor::new().unwrap(), Echo::default());
        reactor.carry_datagrams();
        let config = DatagramConfig::default();
        let (bound, _) = reactor.context().bind_udp("127.0.0.1:0".parse().unwrap(), &config).unwrap();
        let (connected, _) = reactor.context().connect_udp("127.0.0.1:9".parse().unwrap(), &config).unwrap();
        for (socket, port) in [(bound, 7), (connected, 7), (connected, 9)] {
            reactor.arrive(socket, path(port), Ecn::Ce, vec![port as u8; 3]);
        }
        reactor.arrive(bound, path(8), Ecn::NotEct, Vec::new());
        reactor.fail_datagram(bound, DatagramFailure::TooLong { path: path(7), len: 9 });
        assert!(reactor.step(&mut echo, Instant::now()).unwrap().active);
        let taken = reactor.take_carried();
        let mut bytes: Vec<(DatagramPath, Vec<u8>)> =
            taken.iter().map(|sent| (sent.path, sent.bytes.clone())).collect();
        bytes.sort_by_key(|(path, _)| path.peer);
        assert_eq!(bytes, [(path(7), vec![7; 3]), (path(8), vec![]), (path(9), vec![9; 3])]);
        assert_eq!((echo.failures, reactor.take_carried()), (1, vec![]));
        reactor.context().close_datagrams(bound);
        reactor.arrive(bound, path(7), Ecn::NotEct, vec![1]);
        reactor.step(&mut echo, Instant::now()).unwrap();
        assert!(echo.waiting.is_empty(), "the socket is gone");
    }
}
