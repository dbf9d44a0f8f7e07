//! Bytes in: by a call when a socket is ready, and as a ring brings them.

use std::io;

use rustix::io::Errno;

use crate::backend::Chunk;
use crate::handler::{Closed, Handler};
use crate::reactor::RECEIVE_BUFFER_BYTES;
use crate::slab::Key;
use crate::sockets::{ConnectionId, Phase};
use crate::sys::{self, Moved};
use crate::{Context, Reactor};

/// As much of the receive buffer is used behind a large data segment, on the chance that another follows: enough for headers
/// and digests, little to copy when it is data.
const BULK_BUFFER_BYTES: usize = 4096;
/// Receives per connection and batch.
const MAX_RECEIVES: usize = 16;
/// Bytes received per connection and batch, after which the others have their turn.
const MAX_RECEIVED_BYTES: usize = 1 << 20;

impl Reactor {
    /// Receives what lies ready on a connection that is read from.
    pub(crate) fn readable(&mut self, key: Key, handler: &mut impl Handler) {
        // An earlier event of this batch may have closed or paused it.
        let Some(connection) = self.sockets.connection(key) else { return };
        if !connection.receives() || !connection.is_quiet() {
            return;
        }
        match connection.phase {
            Phase::Open => self.receive(key, handler),
            Phase::Draining | Phase::Lingering => self.discard(key, handler),
        }
    }

    fn receive(&mut self, key: Key, handler: &mut impl Handler) {
        self.hand_on_stash(key, handler);
        let id = ConnectionId(key);
        let mut received_bytes = 0;
        for round in 0..MAX_RECEIVES {
            // The handler may have closed or paused the connection meanwhile.
            let Some(connection) = self.sockets.connection(key) else { return };
            if connection.paused || connection.phase != Phase::Open || received_bytes >= MAX_RECEIVED_BYTES {
                return;
            }
            let direct = handler.direct(id).filter(|into| !into.is_empty());
            let is_direct = direct.is_some();
            if !is_direct && round > 0 {
                connection.bulk = false;
                return;
            }
            connection.bulk |= is_direct;
            connection.was_asked(is_direct);
            // What follows a large data segment is looked at before much of it is taken: it may be the next one.
            let buffer_len = if connection.bulk { BULK_BUFFER_BYTES } else { RECEIVE_BUFFER_BYTES };
            let buffer = &mut self.receive_buffer[..buffer_len];
            let direct = direct.unwrap_or_default();
            let (direct_len, asked) = (direct.len(), direct.len() + buffer_len);
            let moved = sys::receive(&connection.stream, direct, buffer);
            self.sockets.counters.system_calls.add(1);
            let len = match moved {
                Moved::Bytes(0) => return self.end(key, Closed::PeerClosed, handler),
                Moved::Bytes(len) => len,
                Moved::WouldBlock => return,
                Moved::Failed(error) => return self.end(key, Closed::Error(error), handler),
            };
            self.sockets.counters.received_bytes.add(len as u64);
            if is_direct {
                self.sockets.counters.direct_bytes.add(len.min(direct_len) as u64);
                handler.direct_received(&mut Context::new(&mut self.sockets), id, len.min(direct_len));
            }
            let behind = len.saturating_sub(direct_len);
            if behind > 0 && self.sockets.is_handled(id) {
                handler.received(&mut Context::new(&mut self.sockets), id, &self.receive_buffer[..behind]);
            }
            if len < asked {
                return;
            }
            received_bytes += len;
        }
    }

    /// Drops what a peer sends on a connection that we are closing.
    fn discard(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.sockets.connection(key) else { return };
        match sys::receive(&connection.stream, &mut [], &mut self.receive_buffer) {
            Moved::Bytes(0) => self.peer_closed(key, handler),
            Moved::Bytes(_) | Moved::WouldBlock => {}
            Moved::Failed(error) => self.end(key, Closed::Error(error), handler),
        }
    }

    /// The peer closed its side, and all that it sent was received.
    fn peer_closed(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.sockets.connection(key) else { return };
        match connection.phase {
            // Noticed again when it is resumed.
            Phase::Open if connection.paused => {}
            Phase::Open => self.end(key, Closed::PeerClosed, handler),
            Phase::Draining => {
                connection.peer_closed = true;
                self.sockets.touch(key);
            }
            Phase::Lingering => drop(self.sockets.remove(key)),
        }
    }

    // What a ring brings.

    pub(crate) fn received(
        &mut self,
        key: Key,
        result: io::Result<Option<Chunk>>,
        ends: bool,
        handler: &mut impl Handler,
    ) {
        if ends && let Some(connection) = self.sockets.connection(key) {
            connection.armed.receiving = crate::backend::Receiving::No;
            self.sockets.touch(key);
        }
        match result {
            Ok(Some(chunk)) => self.chunk_received(key, chunk, handler),
            Ok(None) => {
                self.hand_on_stash(key, handler);
                self.peer_closed(key, handler);
            }
            Err(error) => match Errno::from_io_error(&error) {
                // Asked to end, or out of buffers. A call takes what lies ready, so who is out of luck with buffers in each
                // batch has its turn in each batch.
                Some(Errno::CANCELED | Errno::NOBUFS | Errno::INTR | Errno::AGAIN) => self.readable(key, handler),
                _ => self.end(key, Closed::Error(error), handler),
            },
        }
    }

    fn chunk_received(&mut self, key: Key, chunk: Chunk, handler: &mut impl Handler) {
        // There are no chunks without them.
        let Some(buffers) = &mut self.buffers else { return };
        self.sockets.counters.received_bytes.add(buffers.bytes(&chunk).len() as u64);
        if let Some(connection) = self.sockets.connection(key).filter(|connection| connection.phase == Phase::Open) {
            if connection.paused || !connection.stash.is_empty() {
                connection.stash.extend_from_slice(buffers.bytes(&chunk));
            } else {
                let id = ConnectionId(key);
                handler.received(&mut Context::new(&mut self.sockets), id, buffers.bytes(&chunk));
                if handler.direct(id).is_some_and(|into| !into.is_empty())
                    && let Some(connection) = self.sockets.connection(key)
                {
                    connection.was_asked(true);
                    self.sockets.touch(key);
                }
            }
        }
        buffers.give_back(chunk);
        self.hand_on_stash(key, handler);
    }

    /// Hands on what came of a connection that is to be handed over.
    pub(crate) fn hand_on_all(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.sockets.connection(key).filter(|connection| connection.leaving) else { return };
        let stash = std::mem::take(&mut connection.stash);
        if !stash.is_empty() {
            handler.received(&mut Context::new(&mut self.sockets), ConnectionId(key), &stash);
        }
    }

    /// Hands on what came while the connection was paused, if it is so no longer.
    pub(crate) fn hand_on_stash(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.sockets.connection(key) else { return };
        if connection.phase == Phase::Open && !connection.paused && !connection.stash.is_empty() {
            let stash = std::mem::take(&mut connection.stash);
            handler.received(&mut Context::new(&mut self.sockets), ConnectionId(key), &stash);
        }
    }
}
