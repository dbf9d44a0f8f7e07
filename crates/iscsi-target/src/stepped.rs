//! A server that its caller runs step by step: the cores as they ship, on one thread, under a clock and over streams of
//! the caller's. The simulator drives the target this way.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use lunette_device::Entropy;
use lunette_ecl_endpoint::Endpoint;
use lunette_reactor::{CarriedDatagram, DatagramFailure, DatagramPath, Ecn, Reactor};

use crate::config::{BindError, ServerConfig};
use crate::control::UpdatesEnd;
use crate::core::{Core, FIRST};
use crate::server::Server;
use crate::threads::{Farewell, Seat};
use crate::{Control, Monitor, Stopper};

/// A target that runs when it is told to, and no further than that.
///
/// [`accept`](Self::accept) stands for a connection at the first portal, [`arrive`](Self::arrive) for a datagram at the
/// first UDP port, whose answers are there to be [taken](Self::take_datagrams). [`step`](Self::step) lets one core do
/// what it can do at one moment. Nothing waits, and nothing but the caller decides the order in which cores take their
/// turns.
pub struct SteppedServer {
    cores: Vec<SteppedCore>,
    monitor: Monitor,
    stopper: Stopper,
    control: Control,
    _updates_end: UpdatesEnd,
}

struct SteppedCore {
    reactor: Reactor,
    /// `None` once the core has stopped. The farewell has the others stop then.
    running: Option<(Endpoint<Core>, Farewell)>,
}

/// The result of a step of one core.
#[derive(Debug)]
pub enum CoreStep {
    /// The core goes on.
    Runs {
        /// Whether the step had work, perhaps for other cores.
        active: bool,
        /// Whether work is left at the same moment: step again.
        again: bool,
        /// The next moment at which there is something to do, unless bytes or messages come before.
        next: Option<Instant>,
    },
    /// The core has ended with the stop that was asked for.
    Stopped(io::Result<()>),
}

impl SteppedServer {
    /// Opens the portals at `now`, the earliest moment that there will be. All random numbers come from `entropy`.
    ///
    /// # Errors
    ///
    /// The errors of [`Server::bind`].
    pub fn bind(config: ServerConfig, now: Instant, entropy: Entropy) -> Result<Self, BindError> {
        let server = Server::bind_at(config, now, entropy, true)?;
        let (monitor, stopper, control) = (server.monitor(), server.stopper(), server.control());
        let (seats, updates_end) = server.into_seats();
        let core = |Seat { mut reactor, config }| {
            reactor.carry_datagrams();
            let farewell = Farewell(config.mailbox.clone());
            SteppedCore { reactor, running: Some((Core::on_endpoint(config), farewell)) }
        };
        Ok(Self { cores: seats.into_iter().map(core).collect(), monitor, stopper, control, _updates_end: updates_end })
    }

    /// The way to watch this server.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// The way to stop this server. Each core stops in a step of its own.
    pub fn stopper(&self) -> &Stopper {
        &self.stopper
    }

    /// The way to change what this server serves, by [`Control::begin`].
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// A connection from `peer` has come in at the first portal. A server that has stopped drops it.
    pub fn accept(&mut self, stream: TcpStream, [peer, local]: [SocketAddr; 2]) {
        let SteppedCore { reactor, running } = &mut self.cores[FIRST];
        if let Some((core, _)) = running
            && let Some(listener) = core.upper().first_listener()
        {
            reactor.accept_from(listener, stream, [peer, local], core);
        }
    }

    /// A datagram has come to the first UDP port. It is received in the next step of the first core.
    pub fn arrive(&mut self, path: DatagramPath, ecn: Ecn, bytes: Vec<u8>) {
        let SteppedCore { reactor, running } = &mut self.cores[FIRST];
        if let Some(socket) = running.as_ref().and_then(|(core, _)| core.upper().first_datagram_socket()) {
            reactor.arrive(socket, path, ecn, bytes);
        }
    }

    /// The network has a word about a datagram that left the first UDP port.
    pub fn fail_datagram(&mut self, failure: DatagramFailure) {
        let SteppedCore { reactor, running } = &mut self.cores[FIRST];
        if let Some(socket) = running.as_ref().and_then(|(core, _)| core.upper().first_datagram_socket()) {
            reactor.fail_datagram(socket, failure);
        }
    }

    /// The datagrams that left since the last call, in order.
    pub fn take_datagrams(&mut self) -> Vec<CarriedDatagram> {
        self.cores[FIRST].reactor.take_carried()
    }

    /// How many associations there are.
    pub fn associations(&self) -> usize {
        self.cores[FIRST].running.as_ref().map_or(0, |(core, _)| core.associations())
    }

    /// Lets core number `index` do what it can do at `now`, which is no earlier than in any step before.
    ///
    /// # Panics
    ///
    /// When there is no such core.
    pub fn step(&mut self, index: usize, now: Instant) -> CoreStep {
        let SteppedCore { reactor, running } = &mut self.cores[index];
        let Some((core, _)) = running else { return CoreStep::Stopped(Ok(())) };
        match reactor.step(core, now) {
            Ok(step) if !step.stopped => CoreStep::Runs { active: step.active, again: step.again, next: step.next },
            result => {
                let stopped = running.take().map_or(Ok(()), |(core, _)| core.into_upper().into_stop_result());
                CoreStep::Stopped(result.and(stopped))
            }
        }
    }
}
