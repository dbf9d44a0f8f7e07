//! The loop.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lunette_tls::Sealed;

use crate::backend::{Backend, Buffers, Event};
use crate::counters::{Counters, CountsView};
use crate::datagram::{Carried, DatagramMemory};
use crate::handler::{Closed, Handler};
use crate::lists::Lists;
use crate::slab::Key;
use crate::sockets::{ConnectionId, ListenerId, Phase, Sockets};
use crate::sys::{self, Accepted};
use crate::{Context, IoBackend, Stream, Waker};

/// Length of the one buffer that all connections of a reactor receive into.
pub const RECEIVE_BUFFER_BYTES: usize = 256 << 10;

/// Connections accepted per listener and batch.
const MAX_ACCEPTS: usize = 64;

/// One event loop, which owns its listeners and connections. See the [crate] for its contract.
pub struct Reactor {
    pub(crate) sockets: Sockets,
    waker: Waker,
    events: Vec<Event>,
    pub(crate) receive_buffer: Box<[u8]>,
    /// Where a ring receives; `None` for epoll.
    pub(crate) buffers: Option<Buffers>,
    /// Connections whose sends are done, and of which the system is told before the next wait.
    pub(crate) flushed: Vec<Key>,
    pub(crate) lists: Lists,
    /// Memory for records of connections with TLS.
    pub(crate) spare_sealed: Vec<Sealed>,
    pub(crate) datagram_memory: DatagramMemory,
    /// Datagrams that the caller carries; `None`: the system does.
    pub(crate) carried: Option<Box<Carried>>,
    busy_poll: Duration,
    /// The last batch in which there was anything to do.
    last_active: Instant,
}

/// The result of a [`Reactor::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Whether the step had work.
    pub active: bool,
    /// Whether work is left at the same moment: step again.
    pub again: bool,
    /// The next moment at which there is something to do, unless bytes or a [`Waker`] come before.
    pub next: Option<Instant>,
    /// The handler has called [`Context::stop`].
    pub stopped: bool,
}

/// How an event loop runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoopConfig {
    /// The backend of the reactor.
    pub io: IoBackend,
    /// How long it looks for more, again and again, before it sleeps. Zero: not at all. It saves the time of a wake-up,
    /// and takes all of a core meanwhile.
    pub busy_poll: Duration,
}

impl From<IoBackend> for LoopConfig {
    fn from(io: IoBackend) -> Self {
        Self { io, ..Self::default() }
    }
}

impl Reactor {
    /// A reactor without sockets, on the default backend.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left for it.
    pub fn new() -> io::Result<Self> {
        Self::with(IoBackend::default())
    }

    /// A reactor without sockets.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left for it. With [`IoBackend::Uring`], also when it does not have or allow
    /// what that needs.
    pub fn with(config: impl Into<LoopConfig>) -> io::Result<Self> {
        let config = config.into();
        Self::over(|waker, counters| Backend::open(&config, waker, counters), config.busy_poll)
    }

    /// A reactor over what `open` opens.
    fn over(
        open: impl FnOnce(&Waker, &Arc<Counters>) -> io::Result<(Backend, Option<Buffers>)>,
        busy_poll: Duration,
    ) -> io::Result<Self> {
        let waker = Waker::new()?;
        let counters = Arc::new(Counters::default());
        let (backend, buffers) = open(&waker, &counters)?;
        Ok(Self {
            sockets: Sockets::new(backend, counters),
            waker,
            events: Vec::new(),
            receive_buffer: vec![0; RECEIVE_BUFFER_BYTES].into_boxed_slice(),
            buffers,
            flushed: Vec::new(),
            lists: Lists::new(),
            spare_sealed: Vec::new(),
            datagram_memory: DatagramMemory::default(),
            carried: None,
            busy_poll,
            last_active: Instant::now(),
        })
    }

    /// The backend of the reactor: never [`IoBackend::Auto`].
    pub fn backend(&mut self) -> IoBackend {
        self.sockets.backend().kind()
    }

    /// The counts of the reactor so far, for other threads.
    pub fn counts(&self) -> CountsView {
        CountsView(Arc::clone(&self.sockets.counters))
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
    /// The errors of [`Context::listen`].
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        self.sockets.listen(address)
    }

    /// See [`Context::adopt`].
    ///
    /// # Errors
    ///
    /// The errors of [`Context::adopt`].
    pub fn adopt(&mut self, stream: impl Into<Stream>) -> io::Result<ConnectionId> {
        self.sockets.adopt(stream.into())
    }

    /// Runs until the handler calls [`Context::stop`]. Sockets stay open, and it may be run again, on the same thread:
    /// a ring belongs to the thread that first ran it.
    ///
    /// # Errors
    ///
    /// When the system refuses to wait for events or to watch a socket. Failures of single connections go to the
    /// handler.
    pub fn run(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        while !self.sockets.take_stopped() {
            self.turn(handler)?;
        }
        Ok(())
    }

    /// One batch.
    fn turn(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        self.sockets.counters.batches.add(1);
        self.arm()?;
        self.wait(handler.next_timeout(self.sockets.now()))?;
        self.batch(handler, Instant::now())?;
        Ok(())
    }

    /// One batch at `now`, without a wait. Says whether there was anything to do.
    fn batch(&mut self, handler: &mut impl Handler, now: Instant) -> io::Result<bool> {
        self.sockets.set_now(now);
        let mut called = self.waker.was_called();
        let mut active = called || !self.events.is_empty();
        if active {
            self.last_active = now;
        }
        while let Some(key) = self.sockets.pop_resumed() {
            self.hand_on_stash(key, handler)?;
        }
        self.release(handler)?;
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.dispatch(event, handler)?;
        }
        self.events = events;
        active |= self.receive_carried(handler);
        // Asked again, for what the events led to at once (a store in memory) can leave in this batch.
        called |= self.waker.was_called();
        if called {
            handler.woken(&mut self.context());
        }
        active |= called | self.handle_time(handler);
        handler.batch_end(&mut self.context());
        self.flush(handler)?;
        self.flush_datagrams(handler);
        Ok(active)
    }

    /// One batch that does not wait, at a moment of the caller's choice: for a clock that the caller moves, as a
    /// simulation does. The clock must never go back, and begins no earlier than the reactor was made.
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Self::run).
    pub fn step(&mut self, handler: &mut impl Handler, now: Instant) -> io::Result<Step> {
        self.arm()?;
        // Events are asked for below; wake-ups need no system call, as for a reactor that is awake.
        self.sockets.wait(Some(Duration::ZERO), &mut self.events)?;
        let active = self.batch(handler, now)?;
        let next = [handler.next_timeout(now), self.sockets.next_timeout()].into_iter().flatten().min();
        let again = self.sockets.has_touched() || next.is_some_and(|next| next <= now);
        Ok(Step { active, again, next, stopped: self.sockets.take_stopped() })
    }

    /// Takes on a connection as if `listener` had accepted it. `false`: the system refuses to watch it.
    pub fn accept_from(
        &mut self,
        listener: ListenerId,
        stream: TcpStream,
        [peer, local]: [SocketAddr; 2],
        handler: &mut impl Handler,
    ) -> bool {
        self.accepted(listener.0, Accepted::Connection { stream, peer, local }, handler)
    }

    /// Tells the system what each connection and listener waits for now.
    fn arm(&mut self) -> io::Result<()> {
        for key in self.flushed.drain(..) {
            self.sockets.update_interest(key)?;
        }
        self.arm_datagrams()?;
        self.sockets.arm_listeners()
    }

    fn wait(&mut self, handler_timeout: Option<Instant>) -> io::Result<()> {
        let busy = self.sockets.has_touched() || self.sockets.backend().is_busy() || self.looks_again();
        let timeout = if !busy && self.waker.fall_asleep() {
            let next = [handler_timeout, self.sockets.next_timeout()].into_iter().flatten().min();
            next.map(|deadline| deadline.saturating_duration_since(Instant::now()))
        } else {
            Some(Duration::ZERO)
        };
        self.sockets.wait(timeout, &mut self.events)
    }

    /// Whether it would sleep too early.
    fn looks_again(&self) -> bool {
        !self.busy_poll.is_zero() && self.last_active.elapsed() < self.busy_poll
    }

    fn dispatch(&mut self, event: Event, handler: &mut impl Handler) -> io::Result<()> {
        match event {
            Event::Acceptable(key) => self.accept(key, handler),
            Event::Accepted { listener, result, ends, backlog_empty } => {
                if ends {
                    self.sockets.listener_ended(listener);
                }
                self.accepted(listener, sys::accepted(result), handler);
                if backlog_empty {
                    self.sockets.backlog_is_empty();
                }
            }
            Event::Ready { connection: key, readable, writable, failed, ended } => {
                if let Some(connection) = self.sockets.connection(key)
                    && let Some(poll) = ended
                {
                    connection.armed.poll_ended(poll);
                    self.sockets.touch(key);
                }
                if writable {
                    self.writable(key);
                }
                if failed {
                    self.failed(key, handler)?;
                } else if readable {
                    self.readable(key, handler)?;
                }
            }
            Event::Received { connection, result, ends } => self.received(connection, result, ends, handler)?,
            Event::Datagrams { socket, ready } => self.datagrams_ready(socket, &ready, handler),
            Event::FileDone { tag, request, result } => handler.file_done(&mut self.context(), tag, request, result),
        }
        Ok(())
    }

    fn accept(&mut self, key: Key, handler: &mut impl Handler) {
        for _ in 0..MAX_ACCEPTS {
            let Some(listener) = self.sockets.listener(key) else { return };
            let accepted = sys::accept(listener);
            if !self.accepted(key, accepted, handler) {
                return;
            }
        }
    }

    /// Takes on a connection; `false` when there is no use in accepting another one now.
    fn accepted(&mut self, key: Key, accepted: Accepted, handler: &mut impl Handler) -> bool {
        // The ring may have accepted before it learned that the listener is closed.
        if self.sockets.listener(key).is_none() {
            return false;
        }
        match accepted {
            Accepted::Connection { stream, peer, local } => match self.adopt_accepted(key, stream) {
                Ok(id) => handler.accepted(&mut self.context(), ListenerId(key), id, peer, local),
                Err(error) => tracing::warn!(%peer, %error, "cannot take on a connection"),
            },
            Accepted::Lost => {}
            Accepted::None => {
                self.sockets.backlog_is_empty();
                return false;
            }
            Accepted::Exhausted(error) => {
                self.sockets.pause_accepting(&error);
                return false;
            }
        }
        true
    }

    fn adopt_accepted(&mut self, listener: Key, stream: TcpStream) -> io::Result<ConnectionId> {
        let stream = self.sockets.accepted(listener, stream)?;
        self.sockets.adopt(stream)
    }

    fn writable(&mut self, key: Key) {
        if let Some(connection) = self.sockets.connection(key) {
            connection.blocked = false;
            self.sockets.touch(key);
        }
    }

    fn failed(&mut self, key: Key, handler: &mut impl Handler) -> io::Result<()> {
        let Some(connection) = self.sockets.connection(key) else { return Ok(()) };
        if connection.receives() {
            return self.readable(key, handler);
        }
        // The failure would not be read, and epoll would report it again and again.
        let error = sys::pending_error(&connection.stream);
        self.end(key, Closed::Error(error), handler);
        Ok(())
    }

    /// Releases the connections of which nothing is under way any more.
    fn release(&mut self, handler: &mut impl Handler) -> io::Result<()> {
        while let Some(key) = self.sockets.pop_leaving() {
            self.hand_on_stash(key, handler)?;
            if let Some(stream) = self.sockets.take_out(key) {
                handler.released(&mut self.context(), ConnectionId(key), stream);
            }
        }
        Ok(())
    }

    /// Says whether anything was due.
    fn handle_time(&mut self, handler: &mut impl Handler) -> bool {
        let mut due = false;
        while let Some(key) = self.sockets.pop_overdue() {
            due = true;
            self.end(key, Closed::Error(io::ErrorKind::TimedOut.into()), handler);
        }
        self.sockets.resume_accepting_if_due();
        let now = self.sockets.now();
        if handler.next_timeout(now).is_some_and(|at| at <= now) {
            due = true;
            handler.timeout(&mut self.context());
        }
        due
    }

    /// Forgets a connection, and tells the handler if it has not let go of it before.
    pub(crate) fn end(&mut self, key: Key, why: Closed, handler: &mut impl Handler) {
        if let Some(connection) = self.sockets.remove(key)
            && connection.phase != Phase::Lingering
        {
            drop(connection);
            handler.closed(&mut self.context(), ConnectionId(key), why);
        }
    }
}

#[cfg(test)]
mod shortage;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::io::Errno;

    use super::*;
    use crate::{Gather, LINGER_TIMEOUT};

    /// Has endless bytes to send, and keeps why connections ended.
    #[derive(Default)]
    struct Talker(Vec<Closed>);

    impl Handler for Talker {
        fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}
        fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
            bytes.len()
        }
        fn gather<'a>(&'a self, _: ConnectionId, list: &mut Gather<'a>) {
            list.push(&[0; 16_384]);
        }
        fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, _: usize) {}
        fn closed(&mut self, _: &mut Context<'_>, _: ConnectionId, why: Closed) {
            self.0.push(why);
        }
    }

    pub(super) fn pair() -> (TcpStream, TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// A reactor of each kind that the system allows.
    fn reactors() -> impl Iterator<Item = Reactor> {
        [IoBackend::Epoll, IoBackend::Uring].into_iter().filter_map(|io| Reactor::with(io).ok())
    }

    #[test]
    fn a_loop_looks_again_for_as_long_as_it_was_told() {
        let busy_poll = Duration::from_hours(1);
        let mut reactor = Reactor::with(LoopConfig { busy_poll, ..LoopConfig::default() }).unwrap();
        assert!(reactor.looks_again());
        // It does not wait, though nothing happens and nothing is due.
        reactor.turn(&mut Talker::default()).unwrap();
        assert!(reactor.looks_again());
        reactor.busy_poll = Duration::ZERO;
        assert!(!reactor.looks_again());
        reactor.busy_poll = Duration::from_nanos(1);
        reactor.last_active -= Duration::from_micros(1);
        assert!(!reactor.looks_again());
    }

    #[test]
    fn a_peer_that_never_reads_does_not_hold_a_closing_connection() {
        for reactor in reactors() {
            close_without_reader(reactor);
        }
    }

    fn close_without_reader(mut reactor: Reactor) {
        let (near, mut far) = pair();
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
        for reactor in reactors() {
            flush_endlessly(reactor);
        }
    }

    fn flush_endlessly(mut reactor: Reactor) {
        let (near, far) = pair();
        let reader = std::thread::spawn(move || std::io::copy(&mut &far, &mut std::io::sink()));
        let mut talker = Talker::default();
        let id = reactor.adopt(near).unwrap();
        reactor.context().send(id);
        // Would not return if the endless talker had its way.
        reactor.flush(&mut talker).unwrap();
        reactor.context().close(id);
        reader.join().unwrap().unwrap();
    }

    #[test]
    fn a_connection_that_is_resumed_with_bytes_held_back_is_looked_at_without_another_event() {
        for mut reactor in reactors() {
            let (near, _far) = pair();
            let id = reactor.adopt(near).unwrap();
            reactor.context().pause(id);
            reactor.sockets.connection(id.0).unwrap().stash = b"early".to_vec();
            let mut talker = Talker::default();
            // As the end of a batch does.
            reactor.context().resume(id);
            reactor.flush(&mut talker).unwrap();
            assert!(reactor.sockets.has_touched(), "it would wait for an event");
            reactor.turn(&mut talker).unwrap();
            assert!(reactor.sockets.connection(id.0).unwrap().stash.is_empty());
        }
    }

    #[test]
    fn accepting_pauses_until_a_connection_closes() {
        for mut reactor in reactors() {
            let id = reactor.adopt(pair().0).unwrap();
            reactor.sockets.pause_accepting(&Errno::MFILE.into());
            assert!(reactor.sockets.next_timeout().is_some());
            reactor.context().close(id);
            assert_eq!(reactor.sockets.next_timeout(), None);
        }
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
}
