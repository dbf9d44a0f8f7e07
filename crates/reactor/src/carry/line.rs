//! The carrier's end: a handler that only carries bytes, beside the one that the reactor is run with.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::{BLOCK_BYTES, Block, Carrier, Letter, MAX_BLOCKS, Parcel, Spares};
use crate::{Closed, ConnectionId, Context, FileRequest, Gather, Handler, ListenerId};

/// A connection that is carried for another reactor.
struct Line {
    owner: Carrier,
    owned: ConnectionId,
    /// To be sent, in order.
    parcels: VecDeque<Parcel>,
    /// Bytes of the first of them that have left.
    sent_bytes: usize,
    /// Blocks that the owner has.
    blocks: usize,
    /// The owner has as many as it may have.
    is_paused: bool,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Lines {
    /// By the index of their id.
    table: Vec<Option<(ConnectionId, Line)>>,
    /// The place for the next bytes, whosoever they are.
    blank: Option<Block>,
    spares: Spares<Block>,
}

impl Lines {
    fn get(&self, id: ConnectionId) -> Option<&Line> {
        let (owner, line) = self.table.get(id.index())?.as_ref()?;
        (*owner == id).then_some(line)
    }

    fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Line> {
        let (owner, line) = self.table.get_mut(id.index())?.as_mut()?;
        (*owner == id).then_some(line)
    }

    fn remove(&mut self, id: ConnectionId) -> Option<Line> {
        let entry = self.table.get_mut(id.index())?;
        entry.take_if(|(owner, _)| *owner == id).map(|(_, line)| line)
    }

    // What the owner writes.

    /// Takes on a connection for its owner.
    pub(crate) fn carry(
        &mut self,
        cx: &mut Context<'_>,
        stream: TcpStream,
        (owner, owned): (Carrier, ConnectionId),
        me: &Carrier,
    ) {
        let id = match cx.adopt(stream) {
            Ok(id) => id,
            Err(error) => return owner.send(Letter::Ended { owned, why: Closed::Error(error) }),
        };
        owner.send(Letter::Adopted { owned, line: id, carrier: me.clone() });
        let line = Line { owner, owned, parcels: VecDeque::new(), sent_bytes: 0, blocks: 0, is_paused: false };
        if id.index() >= self.table.len() {
            self.table.resize_with(id.index() + 1, || None);
        }
        self.table[id.index()] = Some((id, line));
    }

    /// More to send.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, id: ConnectionId, parcel: Parcel) {
        if let Some(line) = self.get_mut(id) {
            line.parcels.push_back(parcel);
            cx.send(id);
        }
    }

    /// The owner has dealt with a block.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>, id: ConnectionId, block: Block) {
        if let Some(line) = self.get_mut(id) {
            line.blocks -= 1;
            if line.is_paused && line.blocks <= MAX_BLOCKS / 2 {
                line.is_paused = false;
                cx.resume(id);
            }
        }
        self.spares.keep(block);
    }

    /// The owner wants it no longer.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>, id: ConnectionId) {
        self.remove(id);
        cx.close(id);
    }

    // What the socket does.

    /// Where the next bytes go.
    fn room(&mut self) -> &mut [u8] {
        self.blank.get_or_insert_with(|| self.spares.take()).room()
    }

    /// Hands on what was received into the blank block.
    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        let Some(mut block) = self.blank.take() else { return };
        let Some(line) = self.get_mut(id) else { return };
        block.set_len(len);
        line.blocks += 1;
        block.is_awaited = line.blocks > MAX_BLOCKS / 2;
        line.owner.send(Letter::Received { owned: line.owned, block });
        if line.blocks >= MAX_BLOCKS && !line.is_paused {
            line.is_paused = true;
            cx.pause(id);
        }
    }

    /// The same for bytes that came before the system could be told of a place.
    fn copied(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) {
        for bytes in bytes.chunks(BLOCK_BYTES) {
            self.room()[..bytes.len()].copy_from_slice(bytes);
            self.received(cx, id, bytes.len());
        }
    }
}

impl Line {
    fn gather<'a>(&'a self, list: &mut Gather<'a>) {
        let mut skip = self.sent_bytes;
        for parcel in &self.parcels {
            if !parcel.gather(std::mem::take(&mut skip), list) {
                break;
            }
        }
    }

    fn sent(&mut self, len: usize) {
        self.sent_bytes += len;
        while self.parcels.front().is_some_and(|parcel| parcel.len() <= self.sent_bytes)
            && let Some(mut parcel) = self.parcels.pop_front()
        {
            self.sent_bytes -= parcel.len();
            // Here, so that the last handle on a buffer is the handler's.
            parcel.empty();
            self.owner.send(Letter::Sent { owned: self.owned, parcel });
        }
    }
}

/// The handler that a reactor is run with, and its lines: each connection belongs to one of them.
pub(crate) struct Carrying<'h, H> {
    pub(crate) handler: &'h mut H,
    pub(crate) lines: Lines,
}

impl<H: Handler> Handler for Carrying<'_, H> {
    fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        match self.lines.get(id) {
            Some(_) => Some(self.lines.room()),
            None => self.handler.direct(id),
        }
    }

    fn direct_received(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        match self.lines.get(id) {
            Some(_) => self.lines.received(cx, id, len),
            None => self.handler.direct_received(cx, id, len),
        }
    }

    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
        match self.lines.get(id) {
            Some(_) => self.lines.copied(cx, id, bytes),
            None => return self.handler.received(cx, id, bytes),
        }
        bytes.len()
    }

    fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        match self.lines.get(id) {
            Some(line) => line.gather(list),
            None => self.handler.gather(id, list),
        }
    }

    fn sent(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        match self.lines.get_mut(id) {
            Some(line) => line.sent(len),
            None => self.handler.sent(cx, id, len),
        }
    }

    fn peer_closed(&mut self, cx: &mut Context<'_>, id: ConnectionId) -> bool {
        match self.lines.get(id) {
            // What the owner does about it may lead to something to send.
            Some(line) => line.owner.send(Letter::PeerClosed { owned: line.owned }),
            None => return self.handler.peer_closed(cx, id),
        }
        true
    }

    fn closed(&mut self, cx: &mut Context<'_>, id: ConnectionId, why: Closed) {
        match self.lines.remove(id) {
            Some(line) => line.owner.send(Letter::Ended { owned: line.owned, why }),
            None => self.handler.closed(cx, id, why),
        }
    }

    // Lines have nothing to do with the rest.

    fn accepted(
        &mut self,
        cx: &mut Context<'_>,
        listener: ListenerId,
        id: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
    ) {
        self.handler.accepted(cx, listener, id, peer, local);
    }

    fn released(&mut self, cx: &mut Context<'_>, id: ConnectionId, stream: TcpStream) {
        self.handler.released(cx, id, stream);
    }

    fn file_done(&mut self, cx: &mut Context<'_>, tag: u64, request: FileRequest, result: io::Result<usize>) {
        self.handler.file_done(cx, tag, request, result);
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        self.handler.woken(cx);
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        self.handler.next_timeout()
    }

    fn timeout(&mut self, cx: &mut Context<'_>) {
        self.handler.timeout(cx);
    }

    fn batch_end(&mut self, cx: &mut Context<'_>) {
        self.handler.batch_end(cx);
    }
}
