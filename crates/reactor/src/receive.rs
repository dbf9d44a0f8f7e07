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

/// The bytes of the receive buffer that are used behind a large data segment, on the chance that another follows:
/// enough for headers and digests, little to copy when it is data.
const BULK_BUFFER_BYTES: usize = 4096;
/// Receives per connection and batch.
const MAX_RECEIVES: usize = 16;
/// Bytes received per connection and batch, after which the others have their turn.
const MAX_RECEIVED_BYTES: usize = 1 << 20;

impl Reactor {
    /// Receives what lies ready on a connection that is read from.
    pub(crate) fn readable(&mut self, key: Key, handler: &mut impl Handler) -> io::Result<()> {
        // An earlier event of this batch may have closed or paused it.
        let Some(connection) = self.sockets.connection(key) else { return Ok(()) };
        if !connection.receives() || !connection.is_quiet() {
            return Ok(());
        }
        match connection.phase {
            Phase::Open if connection.protected.is_some() => self.receive_protected(key, handler),
            Phase::Open => {
                self.hand_on_stash(key, handler)?;
                // Not ours meanwhile: sends in between need all of the reactor.
                let mut buffer = std::mem::take(&mut self.receive_buffer);
                let result = self.receive(key, &mut buffer, handler);
                self.receive_buffer = buffer;
                result
            }
            Phase::Draining | Phase::Lingering => self.discard(key, handler),
        }
    }

    fn receive(&mut self, key: Key, buffer: &mut [u8], handler: &mut impl Handler) -> io::Result<()> {
        let id = ConnectionId(key);
        let mut received_bytes = 0;
        for round in 0..MAX_RECEIVES {
            // The handler may have closed or paused the connection meanwhile.
            let Some(connection) = self.sockets.connection(key) else { return Ok(()) };
            if connection.paused || connection.phase != Phase::Open || received_bytes >= MAX_RECEIVED_BYTES {
                return Ok(());
            }
            let direct = handler.direct(id).filter(|into| !into.is_empty());
            let is_direct = direct.is_some();
            if !is_direct && round > 0 {
                connection.bulk = false;
                return Ok(());
            }
            connection.bulk |= is_direct;
            connection.was_asked(is_direct);
            // What follows a large data segment is looked at before much of it is taken: it may be the next one.
            let buffer_len = if connection.bulk { BULK_BUFFER_BYTES } else { RECEIVE_BUFFER_BYTES };
            let buffer = &mut buffer[..buffer_len];
            let direct = direct.unwrap_or_default();
            let (direct_len, asked) = (direct.len(), direct.len() + buffer_len);
            let moved = sys::receive(&connection.stream, direct, buffer);
            self.sockets.counters.system_calls.add(1);
            let len = match moved {
                Moved::Bytes(0) => return self.peer_closed(key, handler),
                Moved::Bytes(len) => len,
                Moved::WouldBlock => return Ok(()),
                Moved::Failed(error) => {
                    self.end(key, Closed::Error(error), handler);
                    return Ok(());
                }
            };
            self.sockets.counters.received_bytes.add(len as u64);
            if is_direct {
                self.sockets.counters.direct_bytes.add(len.min(direct_len) as u64);
                handler.direct_received(&mut Context::new(&mut self.sockets), id, len.min(direct_len));
            }
            let behind = len.saturating_sub(direct_len);
            self.hand_on(id, &buffer[..behind], handler)?;
            if len < asked {
                return Ok(());
            }
            received_bytes += len;
        }
        Ok(())
    }

    /// Receives once on a connection with TLS. What could not be opened before comes first.
    fn receive_protected(&mut self, key: Key, handler: &mut impl Handler) -> io::Result<()> {
        let Some(connection) = self.sockets.connection(key) else { return Ok(()) };
        let stash = std::mem::take(&mut connection.stash);
        let mut buffer = std::mem::take(&mut self.receive_buffer);
        let result = self.receive_behind(key, &stash, &mut buffer, handler);
        self.receive_buffer = buffer;
        result
    }

    fn receive_behind(
        &mut self,
        key: Key,
        stash: &[u8],
        buffer: &mut [u8],
        handler: &mut impl Handler,
    ) -> io::Result<()> {
        let Some(connection) = self.sockets.connection(key) else { return Ok(()) };
        let Some((front, room)) = buffer.split_at_mut_checked(stash.len()).filter(|(_, room)| !room.is_empty()) else {
            // What came while the connection was paused is looked at first.
            return self.hand_on_protected(key, &mut stash.to_vec(), handler);
        };
        let moved = sys::receive(&connection.stream, &mut [], room);
        if matches!(moved, Moved::WouldBlock) {
            connection.stash = stash.to_vec();
        }
        self.sockets.counters.system_calls.add(1);
        match moved {
            Moved::Bytes(len @ 1..) => {
                self.sockets.counters.received_bytes.add(len as u64);
                front.copy_from_slice(stash);
                self.hand_on_protected(key, &mut buffer[..stash.len() + len], handler)
            }
            Moved::Bytes(_) => {
                self.hand_on_protected(key, &mut stash.to_vec(), handler)?;
                if self.ends_in_a_record(key) {
                    self.end(key, Closed::Error(io::ErrorKind::UnexpectedEof.into()), handler);
                    return Ok(());
                }
                self.peer_closed(key, handler)
            }
            Moved::WouldBlock => Ok(()),
            Moved::Failed(error) => {
                self.end(key, Closed::Error(error), handler);
                Ok(())
            }
        }
    }

    /// Hands on what was received. Sends where the handler wants it, and then hands on the rest.
    pub(crate) fn hand_on(&mut self, id: ConnectionId, mut bytes: &[u8], handler: &mut impl Handler) -> io::Result<()> {
        // Closed by what came before, perhaps.
        while !bytes.is_empty() && self.sockets.is_handled(id) {
            let taken = handler.received(&mut self.context(), id, bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
            if !bytes.is_empty() {
                handler.batch_end(&mut self.context());
                self.flush(handler)?;
            }
        }
        Ok(())
    }

    /// Drops what a peer sends on a connection that we are closing.
    fn discard(&mut self, key: Key, handler: &mut impl Handler) -> io::Result<()> {
        let Some(connection) = self.sockets.connection(key) else { return Ok(()) };
        match sys::receive(&connection.stream, &mut [], &mut self.receive_buffer) {
            Moved::Bytes(0) => self.peer_closed(key, handler)?,
            Moved::Bytes(_) | Moved::WouldBlock => {}
            Moved::Failed(error) => self.end(key, Closed::Error(error), handler),
        }
        Ok(())
    }

    /// Whether the peer has sent a part of a record: the stream was cut, or the peer has died.
    fn ends_in_a_record(&mut self, key: Key) -> bool {
        let connection = self.sockets.connection(key);
        connection.is_some_and(|connection| {
            connection.phase == Phase::Open && !connection.paused && connection.cuts_a_record()
        })
    }

    /// The peer closed its side, and all that it sent was received.
    fn peer_closed(&mut self, key: Key, handler: &mut impl Handler) -> io::Result<()> {
        let Some(connection) = self.sockets.connection(key) else { return Ok(()) };
        match connection.phase {
            // Noticed again when it is resumed.
            Phase::Open if connection.paused => {}
            Phase::Open => self.end_of_input(key, handler)?,
            Phase::Draining => {
                connection.peer_closed = true;
                self.sockets.touch(key);
            }
            Phase::Lingering => drop(self.sockets.remove(key)),
        }
        Ok(())
    }

    /// Ends a connection whose peer has closed its side. What its last bytes have led to leaves first, as far as there
    /// is room: it may have closed one side alone, and they may have come together with the end.
    pub(crate) fn end_of_input(&mut self, key: Key, handler: &mut impl Handler) -> io::Result<()> {
        handler.batch_end(&mut self.context());
        self.flush(handler)?;
        if self.ends_protected(key) {
            self.sockets.send(ConnectionId(key));
            self.flush(handler)?;
        }
        self.end(key, Closed::PeerClosed, handler);
        Ok(())
    }

    // What a ring brings.

    pub(crate) fn received(
        &mut self,
        key: Key,
        result: io::Result<Option<Chunk>>,
        ends: bool,
        handler: &mut impl Handler,
    ) -> io::Result<()> {
        if ends && let Some(connection) = self.sockets.connection(key) {
            connection.armed.receiving = crate::backend::Receiving::No;
            self.sockets.touch(key);
        }
        match result {
            Ok(Some(chunk)) => self.chunk_received(key, chunk, handler)?,
            Ok(None) => {
                self.hand_on_stash(key, handler)?;
                if self.ends_in_a_record(key) {
                    self.end(key, Closed::Error(io::ErrorKind::UnexpectedEof.into()), handler);
                    return Ok(());
                }
                self.peer_closed(key, handler)?;
            }
            Err(error) => match Errno::from_io_error(&error) {
                // Asked to end, or out of buffers. Fall back to a plain receive, so that a connection that found no
                // ring buffer still progresses in each batch.
                Some(Errno::CANCELED | Errno::NOBUFS | Errno::INTR | Errno::AGAIN) => self.readable(key, handler)?,
                _ => self.end(key, Closed::Error(error), handler),
            },
        }
        Ok(())
    }

    fn chunk_received(&mut self, key: Key, chunk: Chunk, handler: &mut impl Handler) -> io::Result<()> {
        // Chunks exist only with buffers. They are taken out of the reactor meanwhile: sends in between need all of it.
        let Some(mut buffers) = self.buffers.take() else { return Ok(()) };
        let result = self.bytes_received(key, buffers.bytes(&chunk), handler);
        buffers.give_back(chunk);
        self.buffers = Some(buffers);
        result?;
        self.hand_on_stash(key, handler)
    }

    fn bytes_received(&mut self, key: Key, bytes: &[u8], handler: &mut impl Handler) -> io::Result<()> {
        self.sockets.counters.received_bytes.add(bytes.len() as u64);
        let connection = self.sockets.connection(key).filter(|connection| connection.phase == Phase::Open);
        let Some(connection) = connection else { return Ok(()) };
        if connection.protected.is_some() || connection.paused || !connection.stash.is_empty() {
            connection.stash.extend_from_slice(bytes);
            return Ok(());
        }
        let id = ConnectionId(key);
        self.hand_on(id, bytes, handler)?;
        if handler.direct(id).is_some_and(|into| !into.is_empty())
            && let Some(connection) = self.sockets.connection(key)
        {
            connection.was_asked(true);
            self.sockets.touch(key);
        }
        Ok(())
    }

    /// Hands on what came while the connection was paused, if it is so no longer or is to be released.
    pub(crate) fn hand_on_stash(&mut self, key: Key, handler: &mut impl Handler) -> io::Result<()> {
        let Some(connection) = self.sockets.connection(key) else { return Ok(()) };
        if connection.phase != Phase::Open || (connection.paused && !connection.leaving) {
            return Ok(());
        }
        let is_protected = connection.protected.is_some();
        let mut stash = std::mem::take(&mut connection.stash);
        if is_protected {
            return self.hand_on_protected(key, &mut stash, handler);
        }
        self.hand_on(ConnectionId(key), &stash, handler)
    }
}
