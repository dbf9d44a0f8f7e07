//! The loop.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::io::Errno;

use crate::handler::{Closed, Handler};
use crate::slab::Key;
use crate::sockets::{ConnectionId, ListenerId, Phase, Sockets, Token};
use crate::sys::{self, Accepted, Moved};
use crate::{Context, Gather, Waker};

/// Length of the one buffer that all connections of a reactor receive into.
pub const RECEIVE_BUFFER_BYTES: usize = 256 << 10;

/// As much of it is used behind a large data segment, on the chance that another follows: enough for headers and digests,
/// little to copy when it is data.
const BULK_BUFFER_BYTES: usize = 4096;

/// Events taken from the system at once.
const MAX_EVENTS: usize = 256;
/// Connections accepted per listener and batch.
const MAX_ACCEPTS: usize = 64;
/// Receives per connection and batch.
const MAX_RECEIVES: usize = 16;
/// Bytes received per connection and batch, after which the others have their turn.
const MAX_RECEIVED_BYTES: usize = 1 << 20;
/// Bytes sent per connection and batch, after which the others have their turn.
const MAX_SENT_BYTES: usize = 4 << 20;

/// One event loop, which owns its listeners and connections. See the [crate] for its contract.
pub struct Reactor {
    sockets: Sockets,
    waker: Waker,
    events: Vec<Event>,
    receive_buffer: Box<[u8]>,
    /// Kept for its memory.
    touched: Vec<Key>,
}

impl Reactor {
    /// A reactor without sockets.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left for it.
    pub fn new() -> io::Result<Self> {
        let waker = Waker::new()?;
        Ok(Self {
            sockets: Sockets::new(&waker)?,
            waker,
            events: Vec::with_capacity(MAX_EVENTS),
            receive_buffer: vec![0; RECEIVE_BUFFER_BYTES].into_boxed_slice(),
            touched: Vec::new(),
        })
    }

    /// A way to wake this reactor from other threads.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The calls that a handler has, for use before the loop runs.
    pub fn context(&mut self) -> Context<'_> {
        Context::new(&mut self.sockets)
    }

    /// See [`Context::listen`].
    ///
    /// # Errors
    ///
    /// As [`Context::listen`].
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        self.sockets.listen(address)
    }

    /// See [`Context::adopt`].
    ///
    /// # Errors
    ///
    /// As [`Context::adopt`].
    pub fn adopt(&mut self, stream: TcpStream) -> io::Result<ConnectionId> {
        self.sockets.adopt(stream)
    }

    /// Runs until the handler calls [`Context::stop`]. Sockets stay open, and it may be run again.
    ///
    /// # Errors
    ///
    /// When the system refuses to wait for events or to watch a socket. Failures of single connections go to the handler.
    pub fn run(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        while !self.sockets.take_stopped() {
            self.turn(handler)?;
        }
        Ok(())
    }

    /// One batch.
    fn turn(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        self.wait(handler.next_timeout())?;
        self.sockets.set_now(Instant::now());
        let mut called = self.waker.was_called();
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match Token::unpack(event.data) {
                Token::Waker => self.waker.clear_event(),
                Token::Listener(key) => self.accept(key, handler),
                Token::Connection(key) => self.connection_event(key, event.flags, handler),
            }
        }
        self.events = events;
        // Asked again, for what the events led to at once (a store in memory) can leave in this batch.
        called |= self.waker.was_called();
        if called {
            handler.woken(&mut self.context());
        }
        self.handle_time(handler);
        handler.batch_end(&mut self.context());
        self.flush(handler)
    }

    fn wait(&mut self, handler_timeout: Option<Instant>) -> io::Result<()> {
        let idle = !self.sockets.has_touched() && self.waker.fall_asleep();
        let timeout = if idle {
            [handler_timeout, self.sockets.next_timeout()].into_iter().flatten().min().map(until)
        } else {
            Some(Timespec::default())
        };
        match epoll::wait(self.sockets.epoll(), spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self, key: Key, handler: &mut impl Handler) {
        for _ in 0..MAX_ACCEPTS {
            let Some(listener) = self.sockets.listener(key) else { return };
            match sys::accept(listener) {
                Accepted::Connection { stream, peer, local } => match self.sockets.adopt(stream) {
                    Ok(id) => handler.accepted(&mut self.context(), ListenerId(key), id, peer, local),
                    Err(error) => tracing::warn!(%peer, %error, "cannot take on a connection"),
                },
                Accepted::Lost => {}
                Accepted::None => return self.sockets.backlog_is_empty(),
                Accepted::Exhausted(error) => return self.sockets.pause_accepting(&error),
            }
        }
    }

    fn connection_event(&mut self, key: Key, flags: EventFlags, handler: &mut impl Handler) {
        // An earlier event of this batch may have closed it.
        let Some(connection) = self.sockets.connection(key) else { return };
        let (phase, deaf) = (connection.phase, !connection.receives());
        if flags.contains(EventFlags::OUT) {
            connection.blocked = false;
            self.sockets.touch(key);
        }
        let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        if !failed && !flags.contains(EventFlags::IN) {
            return;
        }
        match phase {
            // Nobody would read the failure, and epoll would report it again and again.
            _ if deaf && failed => self.fail(key, handler),
            _ if deaf => {}
            Phase::Open => self.receive(key, handler),
            Phase::Draining | Phase::Lingering => self.discard(key, handler),
        }
    }

    fn fail(&mut self, key: Key, handler: &mut impl Handler) {
        if let Some(connection) = self.sockets.connection(key) {
            let error = sys::pending_error(&connection.stream);
            self.end(key, Closed::Error(error), handler);
        }
    }

    fn receive(&mut self, key: Key, handler: &mut impl Handler) {
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
            // What follows a large data segment is looked at before much of it is taken: it may be the next one.
            let buffer_len = if connection.bulk { BULK_BUFFER_BYTES } else { RECEIVE_BUFFER_BYTES };
            let buffer = &mut self.receive_buffer[..buffer_len];
            let direct = direct.unwrap_or_default();
            let (direct_len, asked) = (direct.len(), direct.len() + buffer_len);
            let len = match sys::receive(&connection.stream, direct, buffer) {
                Moved::Bytes(0) => return self.end(key, Closed::PeerClosed, handler),
                Moved::Bytes(len) => len,
                Moved::WouldBlock => return,
                Moved::Failed(error) => return self.end(key, Closed::Error(error), handler),
            };
            if is_direct {
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
            Moved::Bytes(0) if connection.phase == Phase::Draining => {
                connection.peer_closed = true;
                self.sockets.touch(key);
            }
            Moved::Bytes(0) => drop(self.sockets.remove(key)),
            Moved::Bytes(_) | Moved::WouldBlock => {}
            Moved::Failed(error) => self.end(key, Closed::Error(error), handler),
        }
    }

    fn handle_time(&mut self, handler: &mut impl Handler) {
        while let Some(key) = self.sockets.pop_overdue() {
            self.end(key, Closed::Error(io::ErrorKind::TimedOut.into()), handler);
        }
        self.sockets.resume_accepting_if_due();
        if handler.next_timeout().is_some_and(|at| at <= self.sockets.now()) {
            handler.timeout(&mut self.context());
        }
    }

    /// Forgets a connection, and tells the handler if it has not let go of it before.
    fn end(&mut self, key: Key, why: Closed, handler: &mut impl Handler) {
        if let Some(connection) = self.sockets.remove(key)
            && connection.phase != Phase::Lingering
        {
            drop(connection);
            handler.closed(&mut self.context(), ConnectionId(key), why);
        }
    }

    /// Sends what the batch left to send, and tells epoll what each connection waits for now.
    fn flush(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        let mut touched = std::mem::take(&mut self.touched);
        self.sockets.take_touched(&mut touched);
        for key in touched.drain(..) {
            self.send(key, handler);
            self.sockets.update_interest(key)?;
        }
        self.touched = touched;
        Ok(())
    }

    fn send(&mut self, key: Key, handler: &mut impl Handler) {
        let id = ConnectionId(key);
        let mut sent_bytes = 0;
        while let Some(connection) = self.sockets.connection(key)
            && connection.phase != Phase::Lingering
            && connection.wants_send
            && !connection.blocked
        {
            if sent_bytes >= MAX_SENT_BYTES {
                return self.sockets.touch(key);
            }
            let mut list = Gather::new();
            handler.gather(id, &mut list);
            if list.is_empty() {
                connection.wants_send = false;
                if connection.phase == Phase::Draining {
                    self.sockets.linger(key);
                    handler.closed(&mut self.context(), id, Closed::AllSent);
                }
                return;
            }
            match sys::send(&connection.stream, &list) {
                Moved::Bytes(len) => {
                    connection.blocked = len < list.len_bytes();
                    sent_bytes += len;
                    handler.sent(&mut self.context(), id, len);
                }
                Moved::WouldBlock => connection.blocked = true,
                Moved::Failed(error) => return self.end(key, Closed::Error(error), handler),
            }
        }
    }
}

/// The time from now to `deadline`, rounded up to what the system counts in.
fn until(deadline: Instant) -> Timespec {
    let ms = deadline.saturating_duration_since(Instant::now()).as_nanos().div_ceil(1_000_000);
    let ms = i64::try_from(ms).unwrap_or(i64::MAX).min(i64::from(i32::MAX));
    Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::LINGER_TIMEOUT;

    /// Has endless bytes to send, and keeps why connections ended.
    #[derive(Default)]
    struct Talker(Vec<Closed>);

    impl Handler for Talker {
        fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}
        fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, _: &[u8]) {}
        fn gather<'a>(&'a mut self, _: ConnectionId, list: &mut Gather<'a>) {
            list.push(&[0; 16_384]);
        }
        fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, _: usize) {}
        fn closed(&mut self, _: &mut Context<'_>, _: ConnectionId, why: Closed) {
            self.0.push(why);
        }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_peer_that_never_reads_does_not_hold_a_closing_connection() {
        let (near, mut far) = pair();
        let mut reactor = Reactor::new().unwrap();
        let mut talker = Talker::default();
        let id = reactor.adopt(near).unwrap();
        reactor.context().close_after_send(id);
        while !reactor.sockets.connection(id.0).unwrap().blocked {
            reactor.flush(&mut talker).unwrap();
        }
        let begin = reactor.sockets.now();
        reactor.sockets.set_now(begin + LINGER_TIMEOUT / 2);
        reactor.handle_time(&mut talker);
        assert!(talker.0.is_empty());
        reactor.sockets.set_now(begin + LINGER_TIMEOUT);
        reactor.handle_time(&mut talker);
        assert!(matches!(&talker.0[..], [Closed::Error(error)] if error.kind() == io::ErrorKind::TimedOut));
        assert_eq!(reactor.sockets.next_timeout(), None);
        // The socket is closed: the stream comes to an end.
        far.read_to_end(&mut Vec::new()).unwrap();
    }

    #[test]
    fn one_flush_sends_a_bounded_amount() {
        let (near, far) = pair();
        let reader = std::thread::spawn(move || std::io::copy(&mut &far, &mut std::io::sink()));
        let mut reactor = Reactor::new().unwrap();
        let mut talker = Talker::default();
        let id = reactor.adopt(near).unwrap();
        reactor.context().send(id);
        // Would not return if the endless talker had its way.
        reactor.flush(&mut talker).unwrap();
        reactor.context().close(id);
        reader.join().unwrap().unwrap();
    }

    #[test]
    fn accepting_pauses_until_a_connection_closes() {
        let mut reactor = Reactor::new().unwrap();
        let id = reactor.adopt(pair().0).unwrap();
        reactor.sockets.pause_accepting(&Errno::MFILE.into());
        assert!(reactor.sockets.next_timeout().is_some());
        reactor.context().close(id);
        assert_eq!(reactor.sockets.next_timeout(), None);
    }

    #[test]
    fn accepting_pauses_for_a_while_when_no_connection_closes() {
        let mut reactor = Reactor::new().unwrap();
        reactor.sockets.pause_accepting(&Errno::MFILE.into());
        let again = reactor.sockets.next_timeout().unwrap();
        reactor.sockets.set_now(again);
        reactor.handle_time(&mut Talker::default());
        assert_eq!(reactor.sockets.next_timeout(), None);
    }

    #[test]
    fn waits_are_rounded_up() {
        let wait = until(Instant::now() + std::time::Duration::from_micros(10));
        assert_eq!((wait.tv_sec, wait.tv_nsec), (0, 1_000_000));
        let past = until(Instant::now());
        assert_eq!((past.tv_sec, past.tv_nsec), (0, 0));
    }
}
