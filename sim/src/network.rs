//! The carrier of the sessions: streams, or datagrams.

use std::net::TcpStream;

use lunette_session::Time;

use crate::Transport;
use crate::datagrams::Datagrams;
use crate::env::Env;
use crate::fault::Fault;
use crate::wire::{Side, WireId, Wires};

/// The network between the sides. The scenario says which half of it is in use.
pub(crate) struct Network {
    over: Transport,
    wires: Wires,
    pub(crate) datagrams: Datagrams,
}

impl Network {
    pub(crate) fn new(over: Transport) -> Self {
        Self { over, wires: Wires::default(), datagrams: Datagrams::default() }
    }

    /// Whether nothing moves any more.
    pub(crate) fn is_still(&self) -> bool {
        self.wires.is_still() && self.datagrams.is_still()
    }

    /// A fault waits from now on.
    pub(crate) fn arm(&mut self, fault: Fault) {
        match self.over {
            Transport::Tcp | Transport::Tls => self.wires.arm(fault),
            Transport::Ecl => self.datagrams.arm(fault),
        }
    }

    /// Whether this side may ever have read a byte that was changed. A datagram that was changed is dropped, and a
    /// record ends its connection.
    pub(crate) fn has_damaged(&self, to: Side) -> bool {
        self.over == Transport::Tcp && self.wires.has_damaged(to)
    }

    // Streams.

    /// An attempt to connect: the streams of a new connection by side, or nothing when it is refused.
    pub(crate) fn connect(&mut self, env: &mut Env) -> Option<[TcpStream; 2]> {
        self.wires.connect(env)
    }

    pub(crate) fn arrive(&mut self, id: WireId, to: Side, now: Time) {
        self.wires.arrive(id, to, now);
    }

    /// Gives the sides what has arrived. `false` when there was nothing.
    pub(crate) fn give(&mut self, env: &mut Env) -> bool {
        self.wires.give(env)
    }

    /// Takes what the sides have sent, which is under way from now on.
    pub(crate) fn take(&mut self, env: &mut Env) {
        if !self.over.is_of_datagrams() {
            self.wires.take(env);
        }
    }
}
