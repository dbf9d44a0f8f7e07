//! The owner's end: a connection like any other, without a socket.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;

use super::{Block, Carrier, Carrying, Letter, MAX_UNDERWAY_BYTES, Parcel};
use crate::handler::{Closed, Handler};
use crate::slab::Key;
use crate::sockets::{ConnectionId, Phase};
use crate::{Context, Gather, Reactor};

/// What stands in the place of the socket.
pub(crate) struct Carried {
    carrier: Carrier,
    /// The carrier's name for it, from when that is known until the connection has ended there.
    line: Option<ConnectionId>,
    /// Received, and not yet seen by the handler.
    blocks: VecDeque<Block>,
    /// Nothing comes behind these.
    peer_closed: bool,
    /// Given to the carrier and not known to have left: the first that the handler gathers.
    underway_bytes: usize,
    /// The carrier was asked to close it after the last byte.
    is_closing: bool,
}

impl Carried {
    /// Gives a socket to its carrier.
    pub(crate) fn new(stream: TcpStream, carrier: &Carrier, (owner, owned): (Carrier, ConnectionId)) -> Self {
        carrier.send(Letter::Carry { stream, owner, owned });
        Self {
            carrier: carrier.clone(),
            line: None,
            blocks: VecDeque::new(),
            peer_closed: false,
            underway_bytes: 0,
            is_closing: false,
        }
    }

    fn send(&mut self, line: ConnectionId, parcel: Parcel) {
        self.underway_bytes += parcel.len();
        self.carrier.send(Letter::Send { line, parcel });
    }

    fn give_back(&self, block: Block) {
        let Some(line) = self.line else { return };
        let (is_awaited, letter) = (block.is_awaited, Letter::Read { line, block });
        if is_awaited { self.carrier.send(letter) } else { self.carrier.post(letter) }
    }

    /// Closes the socket, unless its carrier has done so.
    pub(crate) fn close(&self) {
        if let Some(line) = self.line {
            self.carrier.send(Letter::Close { line });
        }
    }

    /// Closes the socket when all has left. [`Closed`] comes from the carrier.
    pub(crate) fn close_after_send(&mut self) {
        if let Some(line) = self.line.filter(|_| !self.is_closing) {
            self.is_closing = true;
            self.carrier.send(Letter::CloseAfterSend { line });
        }
    }

    /// Has the carrier send what it has and close the socket then, as a system does. Nobody is told.
    pub(crate) fn leave(&mut self) {
        self.close_after_send();
        self.line = None;
    }

    /// What came while the connection was paused is to be looked at when it is no longer.
    pub(crate) fn has_input(&self) -> bool {
        !self.blocks.is_empty() || self.peer_closed
    }
}

/// Takes in what the handler has to send behind the bytes that are under way.
fn fill(parcel: &mut Parcel, underway_bytes: usize, key: Key, handler: &impl Handler) {
    let mut list = Gather::behind(underway_bytes);
    handler.gather(ConnectionId(key), &mut list);
    parcel.fill(&list);
}

impl Reactor {
    /// Does what other reactors have written.
    pub(crate) fn read_letters(&mut self, handler: &mut Carrying<'_, impl Handler>) -> io::Result<()> {
        let Some(mut letters) = self.inbox.take() else { return Ok(()) };
        self.last_active = self.sockets.now();
        for letter in letters.drain(..) {
            let cx = &mut Context::new(&mut self.sockets);
            match letter {
                Letter::Carry { stream, owner, owned } => {
                    handler.lines.carry(cx, stream, (owner, owned), self.inbox.carrier());
                }
                Letter::Send { line, parcel } => handler.lines.send(cx, line, parcel),
                Letter::Read { line, block } => handler.lines.read(cx, line, block),
                Letter::CloseAfterSend { line } => cx.close_after_send(line),
                Letter::Close { line } => handler.lines.close(cx, line),

                Letter::Adopted { owned, line, carrier } => self.adopted_elsewhere(owned.0, line, &carrier),
                Letter::Received { owned, block } => self.received_elsewhere(owned.0, Some(block), handler)?,
                Letter::PeerClosed { owned } => self.received_elsewhere(owned.0, None, handler)?,
                Letter::Sent { owned, parcel } => self.sent_elsewhere(owned.0, parcel, handler),
                Letter::Ended { owned, why } => self.ended_elsewhere(owned.0, why, handler),
            }
        }
        self.inbox.keep(letters);
        Ok(())
    }

    pub(crate) fn carried(&mut self, key: Key) -> Option<&mut Carried> {
        self.sockets.connection(key)?.socket.carried()
    }

    /// The carrier has it: now it can send.
    fn adopted_elsewhere(&mut self, key: Key, line: ConnectionId, carrier: &Carrier) {
        match self.carried(key) {
            Some(carried) => {
                carried.line = Some(line);
                self.sockets.unblock(key);
            }
            // Closed meanwhile.
            None => carrier.send(Letter::Close { line }),
        }
    }

    /// Bytes have come, or none any more.
    fn received_elsewhere(&mut self, key: Key, block: Option<Block>, handler: &mut impl Handler) -> io::Result<()> {
        let Some(carried) = self.carried(key) else { return Ok(()) };
        carried.peer_closed |= block.is_none();
        carried.blocks.extend(block);
        self.hand_on_blocks(key, handler)
    }

    /// Hands on what has come, as long as the handler wants it.
    pub(crate) fn hand_on_blocks(&mut self, key: Key, handler: &mut impl Handler) -> io::Result<()> {
        while let Some(connection) = self.sockets.connection(key) {
            let (paused, phase) = (connection.paused, connection.phase);
            let Some(carried) = connection.socket.carried().filter(|_| phase != Phase::Open || !paused) else { break };
            let Some(block) = carried.blocks.pop_front() else {
                if carried.peer_closed && phase == Phase::Open {
                    self.end_of_input(key, handler)?;
                }
                break;
            };
            if phase == Phase::Open {
                self.hand_on(ConnectionId(key), block.bytes(), handler)?;
            }
            if let Some(carried) = self.carried(key) {
                carried.give_back(block);
            }
        }
        Ok(())
    }

    fn sent_elsewhere(&mut self, key: Key, parcel: Parcel, handler: &mut impl Handler) {
        let len = parcel.len();
        self.parcels.keep(parcel);
        if let Some(carried) = self.carried(key) {
            carried.underway_bytes -= len;
            self.sockets.unblock(key);
            handler.sent(&mut self.context(), ConnectionId(key), len);
        }
    }

    fn ended_elsewhere(&mut self, key: Key, why: Closed, handler: &mut impl Handler) {
        if let Some(carried) = self.carried(key) {
            carried.line = None;
            self.end(key, why, handler);
        }
    }

    /// Gives what there is to send to the carrier, as much as may be under way.
    pub(crate) fn send_by_carrier(&mut self, key: Key, handler: &mut impl Handler) {
        while let Some(connection) = self.sockets.connection(key).filter(|connection| connection.sends()) {
            let Some(carried) = connection.socket.carried().filter(|carried| !carried.is_closing) else { return };
            let Some(line) = carried.line.filter(|_| carried.underway_bytes < MAX_UNDERWAY_BYTES) else {
                connection.blocked = true;
                return;
            };
            let mut parcel = self.parcels.take();
            fill(&mut parcel, carried.underway_bytes, key, handler);
            let len = parcel.len();
            if len == 0 {
                self.parcels.keep(parcel);
                return self.nothing_left(key, handler);
            }
            carried.send(line, parcel);
        }
    }
}
