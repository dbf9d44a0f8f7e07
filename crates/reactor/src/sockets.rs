//! All sockets of one reactor, and what is known about each.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustls::pki_types::CertificateDer;

use crate::backend::{Armed, Backend, Event, Receiving};
use crate::counters::Counters;
use crate::datagram::DatagramSockets;
use crate::protected::Protected;
use crate::slab::{Key, Slab};
use crate::stream::{Stream, TlsSource};
use crate::sys;
use crate::tcp::TcpInfo;
use crate::virtual_connections::VirtualConnections;

/// How long a connection lives after [`Context::close_after_send`](crate::Context::close_after_send): the time that a
/// peer has to take what is left and to close its side.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a reactor that ran out of descriptors waits before it accepts again, if no connection closes earlier.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Receives without a place named by the handler, after which a ring receives by itself again.
const DIRECT_PATIENCE: u8 = 8;

/// Names one connection of one reactor, for ever: it is not given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) Key);

/// Set in the index of virtual connections.
const VIRTUAL: u32 = 1 << 31;

impl ConnectionId {
    pub(crate) fn of_virtual(key: Key) -> Self {
        Self(Key { index: key.index | VIRTUAL, ..key })
    }

    pub(crate) fn virtual_key(self) -> Key {
        Key { index: self.0.index & !VIRTUAL, ..self.0 }
    }

    /// Whether the reactor does not carry it: see [`Context::open_virtual`](crate::Context::open_virtual).
    #[inline]
    pub fn is_virtual(self) -> bool {
        self.0.index & VIRTUAL != 0
    }

    /// A small number that no other living connection of the reactor has: an index for the handler's own table. It is
    /// used again after the connection is gone, so the table should keep the id too.
    pub fn index(self) -> usize {
        // Those that the reactor carries have even numbers, and virtual ones have odd numbers.
        self.0.index.rotate_left(1) as usize
    }
}

/// Names one listener of one reactor, for ever: it is not given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) Key);

/// How far the end of a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The two directions are open.
    Open,
    /// Sends what is left; drops what comes in.
    Draining,
    /// Everything was sent and the handler has let go. Closing now, with bytes of the peer unread, would make the
    /// system send a reset that can overtake our last bytes; so what comes in is dropped until the peer closes.
    Lingering,
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// TLS around the handler's bytes.
    pub(crate) protected: Option<Box<Protected>>,
    pub(crate) phase: Phase,
    pub(crate) paused: bool,
    /// Large data segments come in, one after the other.
    pub(crate) bulk: bool,
    /// The handler may have something to send.
    pub(crate) wants_send: bool,
    /// The socket was full at the last send.
    pub(crate) blocked: bool,
    /// The peer closed its side while we drained.
    pub(crate) peer_closed: bool,
    /// To be released; paused for good.
    pub(crate) leaving: bool,
    /// Bytes that the system waits for before it tells of them.
    low_water: u32,
    /// Has its place in the list of connections to look at after the batch.
    touched: bool,
    /// The events for which epoll watches.
    pub(crate) interest: EventFlags,
    /// The requests that a ring has of the socket.
    pub(crate) armed: Armed,
    /// Receives to go until a ring may receive by itself again; see [`is_direct`](Self::is_direct).
    direct_left: u8,
    /// The bytes that a ring received after the handler had paused the connection. A ring is asked to stop at the end
    /// of a batch, so this is at most what one batch brought. With TLS also what cannot be opened yet.
    pub(crate) stash: Vec<u8>,
}

impl Connection {
    fn new(Stream { socket, protected, received }: Stream) -> Self {
        Self {
            // The handshake may have something to say.
            wants_send: protected.is_some(),
            stream: socket,
            protected,
            phase: Phase::Open,
            paused: false,
            bulk: false,
            blocked: false,
            peer_closed: false,
            leaving: false,
            low_water: 1,
            touched: false,
            interest: EventFlags::empty(),
            armed: Armed::default(),
            direct_left: 0,
            stash: received,
        }
    }

    /// Bytes of the peer are taken from the socket, by the handler or to be dropped.
    pub(crate) fn receives(&self) -> bool {
        match self.phase {
            Phase::Open => !self.paused,
            Phase::Draining | Phase::Lingering => !self.peer_closed,
        }
    }

    /// The handler may have something to send, and the socket has room for it.
    pub(crate) fn sends(&self) -> bool {
        self.wants_send && !self.blocked && self.phase != Phase::Lingering
    }

    /// Whether the front of a record has come, and its end has not.
    pub(crate) fn cuts_a_record(&self) -> bool {
        self.protected.is_some() && !self.stash.is_empty()
    }

    /// No bytes are under way to us, so a call may receive without changing their order.
    pub(crate) fn is_quiet(&self) -> bool {
        self.armed.receiving == Receiving::No
    }

    /// Ends what a ring still has of the socket; else it would stay open beyond our descriptor.
    fn let_go(&self) {
        if self.armed.any() {
            // It fails for a connection that the peer reset, and ends the requests all the same.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    /// The handler lately named places for its bytes, so they are not received before it was asked.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct_left > 0
    }

    /// The handler was asked for a place, and had one or not.
    pub(crate) fn was_asked(&mut self, direct: bool) {
        self.direct_left = if direct { DIRECT_PATIENCE } else { self.direct_left.saturating_sub(1) };
    }
}

struct Listener {
    socket: TcpListener,
    /// The TLS that its connections speak.
    tls: Option<TlsSource>,
    /// Others hold the socket, too.
    shared: bool,
    /// A ring accepts on it.
    armed: bool,
}

impl Listener {
    /// Refuses connections from now on, though a ring may hold the socket open. It would end a socket that is shared
    /// for the others, too.
    fn close(&self) {
        if self.armed {
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }
}

/// The listeners and connections of a reactor.
pub(crate) struct Sockets {
    pub(crate) counters: Arc<Counters>,
    backend: Backend,
    listeners: Slab<Listener>,
    /// Listeners of a ring may have to be armed.
    listeners_changed: bool,
    connections: Slab<Connection>,
    pub(crate) datagrams: DatagramSockets,
    pub(crate) virtuals: VirtualConnections,
    touched: Vec<Key>,
    /// Connections with a stash that were resumed.
    resumed: Vec<Key>,
    /// Connections to be released of which the system has no request any more.
    leaving: Vec<Key>,
    /// When draining and lingering connections must be gone: in order, for all get the same time.
    deadlines: VecDeque<(Instant, Key)>,
    accept_again: Option<Instant>,
    /// The handler wants no connections for now.
    holds_accepting: bool,
    exhaustion_logged: bool,
    now: Instant,
    stopped: bool,
}

impl Sockets {
    pub(crate) fn new(backend: Backend, counters: Arc<Counters>) -> Self {
        Self {
            counters,
            backend,
            listeners: Slab::default(),
            listeners_changed: false,
            connections: Slab::default(),
            datagrams: DatagramSockets::default(),
            virtuals: VirtualConnections::default(),
            touched: Vec::new(),
            resumed: Vec::new(),
            leaving: Vec::new(),
            deadlines: VecDeque::new(),
            accept_again: None,
            holds_accepting: false,
            exhaustion_logged: false,
            now: Instant::now(),
            stopped: false,
        }
    }

    pub(crate) fn backend(&mut self) -> &mut Backend {
        &mut self.backend
    }

    /// Waits for events; without end if `timeout` is `None`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.backend.wait(timeout, events)
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// The next batch begins.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(crate) fn take_stopped(&mut self) -> bool {
        std::mem::take(&mut self.stopped)
    }

    // Listeners.

    pub(crate) fn listen(&mut self, address: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        let (socket, actual) = sys::open_listener(address)?;
        Ok((self.add_listener(socket, false)?, actual))
    }

    pub(crate) fn adopt_listener(&mut self, socket: TcpListener) -> io::Result<(ListenerId, SocketAddr)> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok((self.add_listener(socket, true)?, address))
    }

    fn add_listener(&mut self, socket: TcpListener, shared: bool) -> io::Result<ListenerId> {
        let key = self.listeners.next_key();
        self.backend.add_listener(key, &socket, self.accepts())?;
        self.listeners.insert(Listener { socket, tls: None, shared, armed: false });
        self.listeners_changed = true;
        Ok(ListenerId(key))
    }

    /// Connections that come from now on speak TLS, or do not.
    pub(crate) fn set_listener_tls(&mut self, id: ListenerId, tls: Option<TlsSource>) {
        if let Some(listener) = self.listeners.get_mut(id.0) {
            listener.tls = tls;
        }
    }

    /// The stream of a connection that has come in.
    pub(crate) fn accepted(&mut self, key: Key, socket: TcpStream) -> io::Result<Stream> {
        match self.listeners.get_mut(key).and_then(|listener| listener.tls.as_ref()) {
            Some(tls) => Stream::server(socket, &tls()),
            None => Ok(socket.into()),
        }
    }

    pub(crate) fn listener(&mut self, key: Key) -> Option<&TcpListener> {
        self.listeners.get_mut(key).map(|listener| &listener.socket)
    }

    pub(crate) fn close_listener(&mut self, id: ListenerId) {
        match self.listeners.remove(id.0) {
            Some(listener) if listener.shared => self.backend.remove_listener(id.0, &listener.socket),
            Some(listener) => listener.close(),
            None => {}
        }
    }

    /// A ring accepts no longer on this listener.
    pub(crate) fn listener_ended(&mut self, key: Key) {
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.armed = false;
            self.listeners_changed = true;
        }
    }

    /// Leaves new connections in the backlog until one closes or [`ACCEPT_PAUSE`] is over.
    pub(crate) fn pause_accepting(&mut self, why: &io::Error) {
        if !std::mem::replace(&mut self.exhaustion_logged, true) {
            tracing::warn!(error = %why, "cannot accept connections; raise the limit of open files (ulimit -n)");
        }
        self.accept_again = Some(self.now + ACCEPT_PAUSE);
        self.watch_listeners(false);
    }

    fn resume_accepting(&mut self) {
        if self.accept_again.take().is_some() && !self.holds_accepting {
            self.watch_listeners(true);
        }
    }

    fn accepts(&self) -> bool {
        self.accept_again.is_none() && !self.holds_accepting
    }

    pub(crate) fn hold_accepting(&mut self, holds: bool) {
        self.holds_accepting = holds;
        self.watch_listeners(self.accepts());
    }

    /// The backlog is empty: the next shortage is a new one.
    pub(crate) fn backlog_is_empty(&mut self) {
        self.exhaustion_logged = false;
    }

    fn watch_listeners(&mut self, accepts: bool) {
        self.listeners_changed = true;
        let Backend::Epoll(epoll) = &self.backend else { return };
        for (key, listener) in self.listeners.iter() {
            if let Err(error) = epoll.update_listener(key, &listener.socket, accepts) {
                tracing::error!(%error, "cannot watch a listener");
            }
        }
    }

    /// Has a ring accept on its listeners. Called right before the wait.
    pub(crate) fn arm_listeners(&mut self) -> io::Result<()> {
        if !self.must_arm_listeners() {
            return Ok(());
        }
        self.listeners_changed = false;
        let Backend::Ring(ring) = &mut self.backend else { return Ok(()) };
        for (key, listener) in self.listeners.iter_mut().filter(|(_, listener)| !listener.armed) {
            ring.arm_listener(key, &listener.socket)?;
            listener.armed = true;
        }
        Ok(())
    }

    fn must_arm_listeners(&self) -> bool {
        self.listeners_changed && self.accepts() && matches!(self.backend, Backend::Ring(_))
    }

    // Connections.

    pub(crate) fn adopt(&mut self, stream: Stream) -> io::Result<ConnectionId> {
        // Each call says itself that it does not wait; a ring would take this for a wish to be told so, too.
        stream.socket.set_nonblocking(matches!(self.backend, Backend::Epoll(_)))?;
        sys::set_no_delay(&stream.socket)?;
        let key = self.connections.next_key();
        let mut connection = Connection::new(stream);
        self.backend.add_connection(key, &mut connection)?;
        self.connections.insert(connection);
        let is_protected = self.connections.get(key).is_some_and(|connection| connection.protected.is_some());
        if is_protected || matches!(self.backend, Backend::Ring(_)) {
            self.touch(key);
        }
        Ok(ConnectionId(key))
    }

    /// The backend, to send by it on connections.
    pub(crate) fn split(&mut self) -> (&mut Backend, &Slab<Connection>) {
        (&mut self.backend, &self.connections)
    }

    pub(crate) fn connection(&mut self, key: Key) -> Option<&mut Connection> {
        self.connections.get_mut(key)
    }

    /// The connection, while its handler still has a say in it.
    fn handled(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.0).filter(|connection| connection.phase != Phase::Lingering)
    }

    pub(crate) fn is_handled(&mut self, id: ConnectionId) -> bool {
        self.handled(id).is_some()
    }

    pub(crate) fn release(&mut self, id: ConnectionId) {
        let Some(connection) = self.handled(id).filter(|connection| connection.phase == Phase::Open) else { return };
        (connection.leaving, connection.paused) = (true, true);
        self.touch(id.0);
    }

    /// A connection to be released of which the system has no request any more.
    pub(crate) fn pop_leaving(&mut self) -> Option<Key> {
        self.leaving.pop()
    }

    /// Takes such a connection out, if it is still to be released.
    pub(crate) fn take_out(&mut self, key: Key) -> Option<Stream> {
        self.connections.get(key).filter(|connection| connection.leaving)?;
        let mut connection = self.remove(key)?;
        if let Backend::Epoll(epoll) = &self.backend {
            epoll.remove_connection(&connection);
        }
        // Hand the stream over anyway: the handler relies on getting it, and its next owner sees the error on first
        // use.
        if let Err(error) = connection.stream.set_nonblocking(true) {
            tracing::warn!(%error, "a socket that is released may block");
        }
        let (protected, received) = (connection.protected.take(), std::mem::take(&mut connection.stash));
        Some(Stream { socket: connection.stream, protected, received })
    }

    pub(crate) fn send(&mut self, id: ConnectionId) {
        let Some(connection) = self.handled(id) else { return };
        connection.wants_send = true;
        if !connection.blocked {
            self.touch(id.0);
        }
    }

    pub(crate) fn set_paused(&mut self, id: ConnectionId, paused: bool) {
        let Some(connection) = self.handled(id).filter(|connection| !connection.leaving) else { return };
        connection.paused = paused;
        if !paused && !connection.stash.is_empty() {
            self.resumed.push(id.0);
        }
        self.touch(id.0);
    }

    pub(crate) fn set_low_water(&mut self, id: ConnectionId, bytes: u32) {
        let Some(connection) = self.handled(id).filter(|connection| connection.low_water != bytes) else { return };
        connection.low_water = bytes;
        if let Err(error) = sys::set_low_water(&connection.stream, bytes) {
            tracing::debug!(%error, "cannot set a low water mark");
        }
        self.counters.system_calls.add(1);
    }

    pub(crate) fn peer_certificate(&self, id: ConnectionId) -> Option<&Arc<CertificateDer<'static>>> {
        self.connections.get(id.0)?.protected.as_ref()?.certificate.as_ref()
    }

    pub(crate) fn tcp_info(&self, id: ConnectionId) -> Option<TcpInfo> {
        TcpInfo::of(&self.connections.get(id.0)?.stream).ok()
    }

    /// The bytes of a plain connection that its handler has not seen.
    pub(crate) fn unseen(&self, id: ConnectionId) -> &[u8] {
        self.connections.get(id.0).filter(|connection| connection.protected.is_none()).map_or(&[], |own| &own.stash)
    }

    pub(crate) fn duplicate(&self, id: ConnectionId) -> io::Result<TcpStream> {
        let connection = self.connections.get(id.0).filter(|connection| connection.protected.is_none());
        connection.ok_or(io::ErrorKind::Unsupported)?.stream.try_clone()
    }

    pub(crate) fn duplicate_listener(&self, id: ListenerId) -> io::Result<TcpListener> {
        self.listeners.get(id.0).ok_or(io::ErrorKind::NotFound)?.socket.try_clone()
    }

    pub(crate) fn close(&mut self, id: ConnectionId) {
        if self.is_handled(id) {
            self.remove(id.0);
        }
    }

    pub(crate) fn close_after_send(&mut self, id: ConnectionId) {
        let deadline = self.now + LINGER_TIMEOUT;
        let Some(connection) = self.handled(id) else { return };
        if connection.phase == Phase::Open {
            connection.phase = Phase::Draining;
            connection.leaving = false;
            self.deadlines.push_back((deadline, id.0));
        }
        self.send(id);
    }

    /// Closes our side of a connection that has nothing left to send, and lets it linger until the peer closes too.
    pub(crate) fn linger(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.phase = Phase::Lingering;
        if connection.peer_closed || connection.stream.shutdown(Shutdown::Write).is_err() {
            self.remove(key);
        } else {
            self.touch(key);
        }
    }

    /// Forgets the connection; the socket closes when the answer is dropped.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Connection> {
        let connection = self.connections.remove(key)?;
        connection.let_go();
        self.resume_accepting();
        Some(connection)
    }

    // Work left for the end of the batch.

    /// Has the connection looked at after the batch.
    pub(crate) fn touch(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.touched
        {
            connection.touched = true;
            self.touched.push(key);
        }
    }

    pub(crate) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
            || !self.resumed.is_empty()
            || !self.leaving.is_empty()
            || self.must_arm_listeners()
            || self.datagrams.has_touched()
    }

    /// A connection whose stash may be handed on.
    pub(crate) fn pop_resumed(&mut self) -> Option<Key> {
        self.resumed.pop()
    }

    /// Moves the list of touched connections to the end of `into`.
    pub(crate) fn take_touched(&mut self, into: &mut Vec<Key>) {
        for key in &self.touched {
            if let Some(connection) = self.connections.get_mut(*key) {
                connection.touched = false;
            }
        }
        into.append(&mut self.touched);
    }

    /// Tells the system what the connection waits for, if that has changed.
    pub(crate) fn update_interest(&mut self, key: Key) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        self.backend.update_connection(key, connection)?;
        if connection.leaving && !connection.armed.any() {
            self.leaving.push(key);
        }
        Ok(())
    }

    // Datagram sockets.

    /// The datagram sockets, and the backend that watches them.
    pub(crate) fn split_datagrams(&mut self) -> (&mut Backend, &mut DatagramSockets) {
        (&mut self.backend, &mut self.datagrams)
    }

    /// Tells the system what the socket waits for, if that has changed.
    pub(crate) fn update_datagram_interest(&mut self, key: Key) -> io::Result<()> {
        let Some(socket) = self.datagrams.get_mut(key) else { return Ok(()) };
        self.backend.update_datagrams(key, socket)
    }

    // Time.

    pub(crate) fn next_timeout(&mut self) -> Option<Instant> {
        while let Some((_, key)) = self.deadlines.front()
            && self.connections.get_mut(*key).is_none()
        {
            self.deadlines.pop_front();
        }
        let deadline = self.deadlines.front().map(|(deadline, _)| *deadline);
        [deadline, self.accept_again].into_iter().flatten().min()
    }

    /// A connection whose time to drain or linger is over.
    pub(crate) fn pop_overdue(&mut self) -> Option<Key> {
        let (deadline, key) = *self.deadlines.front()?;
        if deadline > self.now {
            return None;
        }
        self.deadlines.pop_front();
        Some(key)
    }

    pub(crate) fn resume_accepting_if_due(&mut self) {
        if self.accept_again.is_some_and(|again| again <= self.now) {
            self.resume_accepting();
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for (_, connection) in self.connections.iter() {
            connection.let_go();
        }
        for (_, listener) in self.listeners.iter() {
            listener.close();
        }
    }
}
