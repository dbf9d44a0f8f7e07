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
pub(crate) struct Lent {
    carrier: Carrier,
    /// The carrier's name for it, from when that is known until the connection has ended there.
    line: Option<ConnectionId>,
    /// Received, and not yet seen by the handler.
    blocks: VecDeque<Block>,
    /// Nothing comes behind these.
    peer_closed: bool,
    /// Given to the carrier and not known to have left.
    underway_bytes: usize,
    /// The carrier was asked to close it after the last byte.
    is_closing: bool,
}

impl Lent {
    /// Gives a socket to its carrier.
    pub(crate) fn new(stream: TcpStream, carrier: &Carrier, (owner, lent): (Carrier, ConnectionId)) -> Self {
        carrier.send(Letter::Carry { stream, owner, lent });
        Self {
            carrier: carrier.clone(),
            line: None,
            blocks: VecDeque::new(),
            peer_closed: false,
            underway_bytes: 0,
            is_closing: false,
        }
    }

    fn send(&mut self, line: ConnectionId, mut parcel: Parcel) {
        self.underway_bytes += parcel.len();
        parcel.is_awaited = self.underway_bytes > MAX_UNDERWAY_BYTES / 2;
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

    /// What came while the connection was paused is to be looked at when it is no longer.
    pub(crate) fn has_input(&self) -> bool {
        !self.blocks.is_empty() || self.peer_closed
    }
}

/// Takes in what the handler has to send.
fn fill(parcel: &mut Parcel, key: Key, handler: &impl Handler) {
    let mut list = Gather::new();
    handler.gather(ConnectionId(key), &mut list);
    parcel.fill(&list);
}

impl Reactor {
    /// Does what other reactors have written.
    pub(crate) fn read_letters(&mut self, handler: &mut Carrying<'_, impl Handler>) -> io::Result<()> {
        let Some(mut letters) = self.inbox.take() else { return Ok(()) };
        for letter in letters.drain(..) {
            let cx = &mut Context::new(&mut self.sockets);
            match letter {
                Letter::Carry { stream, owner, lent } => {
                    handler.lines.carry(cx, stream, (owner, lent), self.inbox.carrier());
                }
                Letter::Send { line, parcel } => handler.lines.send(cx, line, parcel),
                Letter::Read { line, block } => handler.lines.read(cx, line, block),
                Letter::CloseAfterSend { line } => cx.close_after_send(line),
                Letter::Close { line } => handler.lines.close(cx, line),

                Letter::Carried { lent, line, carrier } => self.carried(lent.0, line, &carrier),
                Letter::Received { lent, block } => self.received_elsewhere(lent.0, Some(block), handler)?,
                Letter::PeerClosed { lent } => self.received_elsewhere(lent.0, None, handler)?,
                Letter::Sent { lent, parcel } => self.sent_elsewhere(lent.0, parcel),
                Letter::Ended { lent, why } => self.ended_elsewhere(lent.0, why, handler),
            }
        }
        self.inbox.keep(letters);
        Ok(())
    }

    fn lent(&mut self, key: Key) -> Option<&mut Lent> {
        self.sockets.connection(key)?.socket.lent()
    }

    /// The carrier has it: now it can send.
    fn carried(&mut self, key: Key, line: ConnectionId, carrier: &Carrier) {
        match self.lent(key) {
            Some(lent) => {
                lent.line = Some(line);
                self.sockets.unblock(key);
            }
            // Closed meanwhile.
            None => carrier.send(Letter::Close { line }),
        }
    }

    /// Bytes have come, or none any more.
    fn received_elsewhere(&mut self, key: Key, block: Option<Block>, handler: &mut impl Handler) -> io::Result<()> {
        let Some(lent) = self.lent(key) else { return Ok(()) };
        lent.peer_closed |= block.is_none();
        lent.blocks.extend(block);
        self.hand_on_blocks(key, handler)
    }

    /// Hands on what has come, as long as the handler wants it.
    pub(crate) fn hand_on_blocks(&mut self, key: Key, handler: &mut impl Handler) -> io::Result<()> {
        while let Some(connection) = self.sockets.connection(key) {
            let (paused, phase) = (connection.paused, connection.phase);
            let Some(lent) = connection.socket.lent().filter(|_| phase != Phase::Open || !paused) else { break };
            let Some(block) = lent.blocks.pop_front() else {
                if lent.peer_closed && phase == Phase::Open {
                    self.end(key, Closed::PeerClosed, handler);
                }
                break;
            };
            if phase == Phase::Open {
                self.hand_on(ConnectionId(key), block.bytes(), handler)?;
            }
            if let Some(lent) = self.lent(key) {
                lent.give_back(block);
            }
        }
        Ok(())
    }

    fn sent_elsewhere(&mut self, key: Key, parcel: Parcel) {
        if let Some(lent) = self.lent(key) {
            lent.underway_bytes -= parcel.len();
            self.sockets.unblock(key);
        }
        self.parcels.keep(parcel);
    }

    fn ended_elsewhere(&mut self, key: Key, why: Closed, handler: &mut impl Handler) {
        if let Some(lent) = self.lent(key) {
            lent.line = None;
            self.end(key, why, handler);
        }
    }

    /// Gives what there is to send to the carrier, as much as may be under way.
    pub(crate) fn send_by_carrier(&mut self, key: Key, handler: &mut impl Handler) {
        while let Some(connection) = self.sockets.connection(key).filter(|connection| connection.sends()) {
            let Some(lent) = connection.socket.lent().filter(|lent| !lent.is_closing) else { return };
            let Some(line) = lent.line.filter(|_| lent.underway_bytes < MAX_UNDERWAY_BYTES) else {
                connection.blocked = true;
                return;
            };
            let mut parcel = self.parcels.take();
            fill(&mut parcel, key, handler);
            let len = parcel.len();
            if len == 0 {
                self.parcels.keep(parcel);
                return self.nothing_left(key, handler);
            }
            lent.send(line, parcel);
            handler.sent(&mut self.context(), ConnectionId(key), len);
        }
    }
}
