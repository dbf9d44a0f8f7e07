//! An event loop that its caller runs step by step: the engine as it ships, under a clock and over streams of the
//! caller's. The simulator drives the initiator this way.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lunette_buffer::{Pool, Trimmer};
use lunette_ecl_endpoint::{Config as DatagramConfig, Endpoint};
use lunette_reactor::{Address, CarriedDatagram, DatagramFailure, DatagramPath, DatagramSocketId, Ecn, Reactor, Step};
use lunette_session::SharedTraffic;

use crate::engine::Engine;
use crate::engine::host::{Dialer, Host, RandomBytes, Report, Wire};
use crate::engine::queue::Queue;
use crate::session::Running;
use crate::tls::ClientTls;
use crate::{Error, Initiator, Options, Portal};

/// An event loop that runs when it is told to. Its sessions are opened and used by an [`Initiator`], whose futures must
/// not be waited for by a thread that is to call [`step`](Self::step).
pub struct SteppedLoop {
    reactor: Reactor,
    endpoint: Endpoint<Engine>,
}

/// An attempt to connect, which its owner ends one way or the other.
pub struct Dial {
    /// The portal to dial.
    pub portal: Portal,
    tls: Option<ClientTls>,
    report: Report,
}

impl Dial {
    /// Ends the attempt. The stream need not be TCP: one end of a socket pair will do.
    pub fn end(self, result: io::Result<TcpStream>) {
        let tls = self.tls.clone();
        let stream = result.and_then(|socket| match tls {
            Some(tls) => tls.around(socket, &self.portal),
            None => Ok(socket.into()),
        });
        (self.report)(stream.map(Wire::Tcp));
    }

    /// Ends the attempt of a session over the Effective Cross Layer: an association is to be begun with `address`.
    pub fn end_with_association(self, address: SocketAddr) {
        (self.report)(Ok(Wire::Ecl(Address::Udp(address))));
    }
}

/// Hands attempts to a caller.
struct CallDialer<F>(F);

impl<F: Fn(Dial) + Send + Sync> Dialer for CallDialer<F> {
    fn dial(&self, portal: Portal, options: &Options, report: Report) {
        (self.0)(Dial { portal, tls: options.tls.clone(), report });
    }
}

impl SteppedLoop {
    /// An event loop with `buffer_bytes` for data in flight. `now` is the earliest moment that there will be, `dial` is
    /// told of each connection that is to be made, and all random numbers come from `entropy`. Associations are as
    /// `datagrams` says, and their datagrams are the caller's to carry.
    ///
    /// # Errors
    ///
    /// [`Error::Reactor`].
    pub fn new(
        buffer_bytes: usize,
        now: Instant,
        entropy: RandomBytes,
        datagrams: DatagramConfig,
        dial: impl Fn(Dial) + Send + Sync + 'static,
    ) -> Result<(Self, Initiator), Error> {
        let mut reactor = Reactor::new().map_err(|error| Error::Reactor(Arc::new(error)))?;
        reactor.carry_datagrams();
        let (queue, traffic) = (Queue::new(reactor.waker()), Arc::new(SharedTraffic::default()));
        let pool = Pool::trimmed(buffer_bytes);
        let host = Host { dialer: Arc::new(CallDialer(dial)), entropy };
        let trimmer = Trimmer::new(pool.clone());
        let engine = Engine::new(Arc::clone(&queue), Arc::clone(&traffic), trimmer, now, host);
        let running = Running { queue, pool, counts: reactor.counts(), traffic, thread: Mutex::new(None) };
        Ok((Self { reactor, endpoint: engine.on_endpoint(datagrams) }, Initiator::of(running)))
    }

    /// A datagram has come to one of its sockets. It is received in the next step.
    pub fn arrive(&mut self, socket: DatagramSocketId, path: DatagramPath, ecn: Ecn, bytes: Vec<u8>) {
        self.reactor.arrive(socket, path, ecn, bytes);
    }

    /// The network has a word about a datagram that has left by one of its sockets.
    pub fn fail_datagram(&mut self, socket: DatagramSocketId, failure: DatagramFailure) {
        self.reactor.fail_datagram(socket, failure);
    }

    /// The datagrams that left since the last call, in order.
    pub fn take_datagrams(&mut self) -> Vec<CarriedDatagram> {
        self.reactor.take_carried()
    }

    /// How many associations there are, and handshakes of them.
    pub fn associations(&self) -> usize {
        self.endpoint.associations()
    }

    /// Lets the event loop do what it can do at `now`, which is no earlier than in any step before.
    ///
    /// # Errors
    ///
    /// When the system refuses to watch a socket.
    pub fn step(&mut self, now: Instant) -> io::Result<Step> {
        self.reactor.step(&mut self.endpoint, now)
    }
}

impl Drop for SteppedLoop {
    fn drop(&mut self) {
        self.endpoint.upper_mut().end();
    }
}
