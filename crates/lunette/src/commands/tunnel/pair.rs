//! One connection of an initiator with its connection to a portal.

use std::net::SocketAddr;

use lunette_reactor::ConnectionId;
use lunette_tunnel::{Broken, Follower, Ways};

use super::limits::{IDLE_BUFFER_BYTES, MAX_WAITING_BYTES};

/// An end of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Initiator,
    Portal,
}

/// Two connections, and what is on its way between them.
pub(super) struct Pair {
    pub(super) peer: SocketAddr,
    /// The address by which the initiator has reached the tunnel.
    pub(super) local: SocketAddr,
    /// The place of the portal among all.
    pub(super) portal: usize,
    pub(super) initiator: End,
    pub(super) target: End,
    follower: Follower,
    /// The portal has said something within TLS.
    pub(super) was_heard: bool,
}

/// One of the two connections.
#[derive(Default)]
pub(super) struct End {
    /// `None` before it is made, and after it has ended.
    pub(super) id: Option<ConnectionId>,
    /// The bytes for it.
    pub(super) outbox: Outbox,
    /// Whether the other one takes nothing, so that this one is not read from.
    pub(super) is_paused: bool,
}

/// Bytes that wait for a connection.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// Bytes at the front that have left.
    sent: usize,
}

impl Pair {
    pub(super) fn new(initiator: ConnectionId, peer: SocketAddr, local: SocketAddr, portal: usize) -> Self {
        Self {
            peer,
            local,
            portal,
            initiator: End { id: Some(initiator), ..End::default() },
            target: End::default(),
            follower: Follower::new(),
            was_heard: false,
        }
    }

    /// The end of a side, and the other one.
    pub(super) fn ends(&mut self, side: Side) -> (&mut End, &mut End) {
        match side {
            Side::Initiator => (&mut self.initiator, &mut self.target),
            Side::Portal => (&mut self.target, &mut self.initiator),
        }
    }

    pub(super) fn end(&self, side: Side) -> &End {
        match side {
            Side::Initiator => &self.initiator,
            Side::Portal => &self.target,
        }
    }

    /// Takes bytes that have come at one end for the other one.
    pub(super) fn carry(&mut self, from: Side, bytes: &[u8], ways: &mut Ways<'_>) -> Result<(), Broken> {
        match from {
            Side::Initiator => {
                self.follower.request(bytes)?;
                self.target.outbox.reserve().extend_from_slice(bytes);
                Ok(())
            }
            Side::Portal => {
                self.was_heard = true;
                self.follower.response(bytes, self.initiator.outbox.reserve(), ways)
            }
        }
    }

    /// The addresses that were left out of answers since the last call.
    pub(super) fn take_left_out(&mut self) -> u64 {
        self.follower.take_left_out()
    }
}

impl Outbox {
    /// The bytes that have not left.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// `len` bytes have left.
    pub(super) fn sent(&mut self, len: usize) {
        self.sent += len;
        if self.sent < self.bytes.len() {
            return;
        }
        self.bytes.clear();
        self.sent = 0;
        if self.bytes.capacity() > IDLE_BUFFER_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Whether more should not come now.
    pub(super) fn is_full(&self) -> bool {
        self.unsent().len() >= MAX_WAITING_BYTES
    }

    /// Whether more may come again.
    pub(super) fn has_room(&self) -> bool {
        self.unsent().len() <= MAX_WAITING_BYTES / 2
    }

    /// The buffer, to append to it.
    fn reserve(&mut self) -> &mut Vec<u8> {
        // No byte is moved more than once for each that has left.
        if self.sent > 0 && self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_keeps_the_order_and_no_memory_when_it_is_empty() {
        let mut outbox = Outbox::default();
        let (mut said, mut left) = (Vec::new(), Vec::new());
        for round in 0..200_usize {
            let more = vec![round as u8; 3000 + round];
            outbox.reserve().extend_from_slice(&more);
            said.extend(more);
            let len = outbox.unsent().len() * (round % 5) / 5;
            left.extend_from_slice(&outbox.unsent()[..len]);
            outbox.sent(len);
        }
        left.extend_from_slice(outbox.unsent());
        assert!(left == said);
        outbox.sent(outbox.unsent().len());
        assert!(outbox.bytes.capacity() <= IDLE_BUFFER_BYTES);
    }

    #[test]
    fn a_full_outbox_stops_its_sender_until_half_of_it_has_left() {
        let mut outbox = Outbox::default();
        outbox.reserve().resize(MAX_WAITING_BYTES, 0);
        assert!(outbox.is_full() && !outbox.has_room());
        outbox.sent(1);
        assert!(!outbox.is_full() && !outbox.has_room());
        outbox.sent(MAX_WAITING_BYTES / 2);
        assert!(outbox.has_room());
    }
}
