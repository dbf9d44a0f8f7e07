//! Bytes out: what a batch left to send, in as few calls as the backend can do.

use std::io;
use std::os::fd::AsFd;

use crate::Reactor;
use crate::backend::{MAX_SENDS, NO_RESULTS, Outgoing, SendResults};
use crate::handler::{Closed, Handler};
use crate::slab::Key;
use crate::sockets::{ConnectionId, Phase};
use crate::sys::Moved;

/// Bytes sent per connection and batch, after which the others have their turn.
const MAX_SENT_BYTES: usize = 4 << 20;

impl Reactor {
    /// Sends on all connections that were marked.
    pub(crate) fn flush(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        let mut touched = std::mem::take(&mut self.flushed);
        let told = touched.len();
        self.sockets.take_touched(&mut touched);
        for keys in touched[told..].chunks(MAX_SENDS) {
            self.send(keys, handler)?;
        }
        self.flushed = touched;
        Ok(())
    }

    /// Sends on `keys`, at most [`MAX_SENDS`], until each has nothing left, is full or had its turn.
    fn send(&mut self, keys: &[Key], handler: &mut impl Handler) -> io::Result<()> {
        let mut sent_bytes = [0; MAX_SENDS];
        loop {
            self.seal(keys, handler);
            let (asked, results) = self.send_once(keys, &sent_bytes, handler)?;
            if asked == [0; MAX_SENDS] {
                return Ok(());
            }
            for (index, (&key, result)) in keys.iter().zip(results).enumerate() {
                let Some(moved) = result else { continue };
                sent_bytes[index] += self.sent(key, asked[index], moved, handler);
                if sent_bytes[index] >= MAX_SENT_BYTES {
                    self.sockets.touch(key);
                }
            }
        }
    }

    /// Gathers and sends once on each of `keys` that is not full and had not its turn. For each: how many bytes there
    /// were, and what came of them.
    fn send_once(
        &mut self,
        keys: &[Key],
        sent_bytes: &[usize; MAX_SENDS],
        handler: &mut impl Handler,
    ) -> io::Result<([usize; MAX_SENDS], SendResults)> {
        let mut sends: [Option<Outgoing<'_>>; MAX_SENDS] = [const { None }; MAX_SENDS];
        let mut asked = [0; MAX_SENDS];
        let mut done = [false; MAX_SENDS];
        let lists = self.lists.begin(keys.len());
        let (backend, connections) = self.sockets.split();
        for ((index, key), list) in keys.iter().enumerate().zip(lists) {
            let Some(connection) = connections.get(*key).filter(|connection| connection.sends()) else { continue };
            if sent_bytes[index] >= MAX_SENT_BYTES {
                continue;
            }
            match &connection.protected {
                Some(protected) => drop(list.push(protected.sealed.unsent())),
                None => handler.gather(ConnectionId(*key), list),
            }
            asked[index] = list.len_bytes();
            done[index] = list.is_empty();
            if !done[index] {
                sends[index] = Some(Outgoing { socket: connection.stream.as_fd(), list });
            }
        }
        let results = if asked == [0; MAX_SENDS] { NO_RESULTS } else { backend.send(&sends)? };
        self.lists.end();
        for (key, _) in keys.iter().zip(done).filter(|(_, done)| *done) {
            self.nothing_left(*key, handler);
        }
        Ok((asked, results))
    }

    /// Accounts for what came of one send of `asked` bytes; gives the bytes that left.
    fn sent(&mut self, key: Key, asked: usize, moved: Moved, handler: &mut impl Handler) -> usize {
        let Some(connection) = self.sockets.connection(key) else { return 0 };
        match moved {
            Moved::Bytes(len) => {
                connection.blocked = len < asked;
                let is_protected = connection.protected.is_some();
                self.sockets.counters.sent_bytes.add(len as u64);
                if is_protected {
                    self.protected_sent(key, len, handler);
                    return len;
                }
                handler.sent(&mut self.context(), ConnectionId(key), len);
                return len;
            }
            Moved::WouldBlock => connection.blocked = true,
            Moved::Failed(error) => self.end(key, Closed::Error(error), handler),
        }
        0
    }

    fn nothing_left(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.sockets.connection(key) else { return };
        let is_draining = connection.phase == Phase::Draining;
        if is_draining && self.ends_protected(key) {
            return self.sockets.touch(key);
        }
        let Some(connection) = self.sockets.connection(key) else { return };
        connection.wants_send = false;
        if is_draining {
            self.sockets.linger(key);
            handler.closed(&mut self.context(), ConnectionId(key), Closed::AllSent);
        }
    }
}
