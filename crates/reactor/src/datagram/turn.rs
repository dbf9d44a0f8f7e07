//! The work of a turn of the loop for its datagram sockets.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

use super::calls::{self, RECEIVED_MESSAGES, SLOT_BYTES};
use super::list::DatagramList;
use super::{DatagramFailure, DatagramSocketId, Datagrams};
use crate::backend::Poll;
use crate::handler::Handler;
use crate::slab::Key;
use crate::{Context, Reactor};

/// Receives per socket and batch.
const MAX_RECEIVES: usize = 16;
/// Bytes received per socket and batch, after which the others have their turn; exceeded by one receive at most. They
/// stay in the nearer caches until the handler has dealt with them.
const MAX_RECEIVED_BYTES: usize = 256 << 10;
/// Bytes sent per socket and batch, after which the others have their turn; exceeded by one list at most.
const MAX_SENT_BYTES: usize = 4 << 20;
/// Lists per socket and batch: datagrams that fail have no bytes, and the handler may offer them again.
const MAX_LISTS: usize = 32;

/// The memory for the datagrams of all sockets. Loops without such sockets have none.
#[derive(Default)]
pub(crate) struct DatagramMemory {
    buffer: Box<[u8]>,
    list: DatagramList<'static>,
    failures: Vec<DatagramFailure>,
    /// Sockets whose sends are done, and of which the system is told before the next wait.
    flushed: Vec<Key>,
}

/// The result of a wait for a datagram socket.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Which poll of a ring ended with that.
    pub(crate) ended: Option<Poll>,
}

impl Reactor {
    pub(crate) fn datagrams_ready(&mut self, key: Key, ready: &Ready, handler: &mut impl Handler) {
        let Some(socket) = self.sockets.datagrams.get_mut(key) else { return };
        if let Some(poll) = ready.ended {
            socket.armed.poll_ended(poll);
        }
        if ready.writable {
            socket.blocked = false;
        }
        if ready.writable || ready.ended.is_some() {
            self.sockets.datagrams.touch(key);
        }
        if ready.readable {
            self.receive_datagrams(key, handler);
        }
    }

    fn receive_datagrams(&mut self, key: Key, handler: &mut impl Handler) {
        let id = DatagramSocketId(key);
        let memory = &mut self.datagram_memory;
        if memory.buffer.is_empty() {
            memory.buffer = vec![0; RECEIVED_MESSAGES * SLOT_BYTES].into_boxed_slice();
        }
        let mut received_bytes = 0;
        for _ in 0..MAX_RECEIVES {
            // The handler may have closed it meanwhile.
            let Some(socket) = self.sockets.datagrams.get(key) else { return };
            let counters = &self.sockets.counters;
            counters.system_calls.add(1);
            let wanted = socket.messages_within(MAX_RECEIVED_BYTES - received_bytes);
            let slots = &mut memory.buffer[..wanted * SLOT_BYTES];
            let messages = match calls::receive(socket.as_fd(), socket.ends().local, slots) {
                Ok(messages) => messages,
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    let failure = DatagramFailure::Network(error.into());
                    handler.datagram_failed(&mut Context::new(&mut self.sockets), id, failure);
                    continue;
                }
            };
            let seen = messages.iter().flatten();
            let (bytes, datagrams) = seen
                .clone()
                .fold((0, 0), |(bytes, datagrams), message| (bytes + message.len, datagrams + message.datagrams()));
            counters.received_bytes.add(bytes as u64);
            counters.received_datagrams.add(datagrams as u64);
            counters.received_messages.add(seen.count() as u64);
            if let Some(socket) = self.sockets.datagrams.get_mut(key) {
                socket.note_received(messages.len(), bytes);
            }
            if datagrams > 0 {
                let datagrams = Datagrams::new(&messages, &mut memory.buffer, SLOT_BYTES);
                handler.datagrams(&mut Context::new(&mut self.sockets), id, datagrams);
            }
            received_bytes += bytes;
            if messages.len() < wanted || received_bytes >= MAX_RECEIVED_BYTES {
                return;
            }
        }
    }

    /// Sends on all datagram sockets that were marked.
    pub(crate) fn flush_datagrams(&mut self, handler: &mut impl Handler) {
        if !self.sockets.datagrams.has_touched() {
            return;
        }
        let mut touched = std::mem::take(&mut self.datagram_memory.flushed);
        let told = touched.len();
        self.sockets.datagrams.take_touched(&mut touched);
        for &key in &touched[told..] {
            self.send_datagrams(key, handler);
        }
        self.datagram_memory.flushed = touched;
    }

    /// Sends on a socket until nothing is left, it is full or had its turn.
    fn send_datagrams(&mut self, key: Key, handler: &mut impl Handler) {
        let id = DatagramSocketId(key);
        let mut sent_bytes = 0;
        for _ in 0..MAX_LISTS {
            // The handler may have closed it meanwhile.
            let sockets = &mut self.sockets;
            let Some(socket) = sockets.datagrams.get_mut(key).filter(|socket| socket.sends()) else { return };
            let memory = &mut self.datagram_memory;
            let mut list = std::mem::take(&mut memory.list).emptied();
            handler.gather_datagrams(id, &mut list);
            let is_empty = list.is_empty();
            let outcome = match &mut self.carried {
                Some(carried) => carried.send(id, &list),
                None => socket.send(&list, &sockets.counters, &mut memory.failures),
            };
            socket.wants_send = !is_empty;
            memory.list = list.emptied();
            for failure in memory.failures.drain(..) {
                handler.datagram_failed(&mut Context::new(sockets), id, failure);
            }
            if outcome.done > 0 {
                handler.datagrams_sent(&mut Context::new(sockets), id, outcome.done);
            }
            if is_empty {
                return;
            }
            sent_bytes += outcome.bytes;
            if sent_bytes >= MAX_SENT_BYTES {
                break;
            }
        }
        self.sockets.datagrams.touch(key);
    }

    /// Tells the system what each datagram socket waits for now.
    pub(crate) fn arm_datagrams(&mut self) -> io::Result<()> {
        for key in self.datagram_memory.flushed.drain(..) {
            self.sockets.update_datagram_interest(key)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use super::*;
    use crate::{Closed, ConnectionId, DatagramConfig, DatagramPath, Gather, ListenerId, Offloads};

    const LEN: usize = 8000;

    /// Sends without end, and counts what comes.
    struct Talker {
        to: DatagramPath,
        bytes: Vec<u8>,
        received: usize,
    }

    impl Handler for Talker {
        fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}
        fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
            bytes.len()
        }
        fn gather<'a>(&'a self, _: ConnectionId, _: &mut Gather<'a>) {}
        fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, _: usize) {}
        fn closed(&mut self, _: &mut Context<'_>, _: ConnectionId, _: Closed) {}
        fn datagrams(&mut self, _: &mut Context<'_>, _: DatagramSocketId, datagrams: Datagrams<'_>) {
            self.received += datagrams.count();
        }
        fn gather_datagrams<'a>(&'a mut self, _: DatagramSocketId, list: &mut DatagramList<'a>) {
            while list.push(&self.to, [&self.bytes[..]]) {}
        }
    }

    #[test]
    fn datagrams_that_fail_for_ever_do_not_hold_the_loop() {
        let mut reactor = Reactor::new().unwrap();
        let mut cx = reactor.context();
        let (sender, address) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &DatagramConfig::default()).unwrap();
        cx.send_datagrams(sender);
        let to = DatagramPath::to(SocketAddr::new(address.ip(), 0).into());
        reactor.flush_datagrams(&mut Talker { to, bytes: vec![1; 10], received: 0 });
        assert!(reactor.sockets.datagrams.has_touched());
    }

    #[test]
    fn one_batch_sends_and_receives_a_bounded_amount() {
        for offloads in [Offloads::On, Offloads::Off] {
            let mut reactor = Reactor::new().unwrap();
            let config = DatagramConfig { offloads, receive_buffer_bytes: Some(8 << 20), ..DatagramConfig::default() };
            let mut cx = reactor.context();
            let (receiver, address) = cx.bind_udp("127.0.0.1:0".parse().unwrap(), &config).unwrap();
            let (sender, _) = cx.connect_udp(address, &config).unwrap();
            cx.send_datagrams(sender);
            let mut talker = Talker { to: DatagramPath::to(address.into()), bytes: vec![1; LEN], received: 0 };
            // Would not return if the endless talker had its way.
            reactor.flush_datagrams(&mut talker);
            assert!(reactor.sockets.datagrams.has_touched(), "it would wait for an event");
            reactor.context().close_datagrams(sender);
            // More lies ready than one batch takes, which would be at most what it may and one receive of full slots.
            let mut batches = 0;
            loop {
                let before = talker.received;
                reactor.datagrams_ready(
                    receiver.0,
                    &Ready { readable: true, writable: false, ended: None },
                    &mut talker,
                );
                let bytes = (talker.received - before) * LEN;
                assert!(bytes <= MAX_RECEIVED_BYTES + RECEIVED_MESSAGES * SLOT_BYTES);
                if bytes == 0 {
                    break;
                }
                batches += 1;
            }
            assert!(batches > 1 && talker.received * LEN > 2 * MAX_RECEIVED_BYTES, "{batches} {}", talker.received);
            assert!(!reactor.step(&mut talker, Instant::now()).unwrap().active);
        }
    }
}
