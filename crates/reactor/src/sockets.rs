//! All sockets of one reactor, and what is known about each.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::slab::{Key, Slab};
use crate::sys;

/// How long a connection lives after [`Context::close_after_send`](crate::Context::close_after_send): the time that a peer
/// has to take what is left and to close its side.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a reactor that ran out of descriptors waits before it accepts again, if no connection closes earlier.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Names one connection of one reactor, for ever: it is not given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) Key);

impl ConnectionId {
    /// A small number that no other living connection of the reactor has: an index for the handler's own table. It is
    /// used again after the connection is gone, so the table should keep the id too.
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}

/// Names one listener of one reactor, for ever: it is not given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) Key);

/// What an event belongs to, as it is packed into the 64 bits that epoll keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Waker,
    Listener(Key),
    Connection(Key),
}

impl Token {
    const LISTENER: u64 = 1 << 31;

    fn pack(self) -> EventData {
        let pack = |key: Key| u64::from(key.generation) << 32 | u64::from(key.index);
        EventData::new_u64(match self {
            Self::Waker => u64::MAX,
            Self::Listener(key) => pack(key) | Self::LISTENER,
            Self::Connection(key) => pack(key),
        })
    }

    pub(crate) fn unpack(data: EventData) -> Self {
        let bits = data.u64();
        let key = Key { index: (bits & (Self::LISTENER - 1)) as u32, generation: (bits >> 32) as u32 };
        match bits {
            u64::MAX => Self::Waker,
            _ if bits & Self::LISTENER != 0 => Self::Listener(key),
            _ => Self::Connection(key),
        }
    }
}

/// How far the end of a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Both ways.
    Open,
    /// Sends what is left; drops what comes in.
    Draining,
    /// Everything was sent and the handler has let go. Closing now, with bytes of the peer unread, would make the system
    /// send a reset that can overtake our last bytes; so what comes in is dropped until the peer closes.
    Lingering,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
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
    /// Has its place in the list of connections to look at after the batch.
    touched: bool,
    interest: EventFlags,
}

impl Connection {
    /// Bytes of the peer are taken from the socket, by the handler or to be dropped.
    pub(crate) fn receives(&self) -> bool {
        match self.phase {
            Phase::Open => !self.paused,
            Phase::Draining | Phase::Lingering => !self.peer_closed,
        }
    }

    fn wanted_interest(&self) -> EventFlags {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, self.receives());
        interest.set(EventFlags::OUT, self.blocked);
        interest
    }
}

/// The listeners and connections of a reactor.
pub(crate) struct Sockets {
    epoll: OwnedFd,
    listeners: Slab<TcpListener>,
    connections: Slab<Connection>,
    touched: Vec<Key>,
    /// When draining and lingering connections must be gone: in order, for all get the same time.
    deadlines: VecDeque<(Instant, Key)>,
    accept_again: Option<Instant>,
    exhaustion_logged: bool,
    now: Instant,
    stopped: bool,
}

impl Sockets {
    pub(crate) fn new(waker: impl AsFd) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, waker, Token::Waker.pack(), EventFlags::IN)?;
        Ok(Self {
            epoll,
            listeners: Slab::new(),
            connections: Slab::new(),
            touched: Vec::new(),
            deadlines: VecDeque::new(),
            accept_again: None,
            exhaustion_logged: false,
            now: Instant::now(),
            stopped: false,
        })
    }

    pub(crate) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

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
        let (listener, actual) = sys::open_listener(address)?;
        let key = self.listeners.next_key();
        let interest = if self.accept_again.is_none() { EventFlags::IN } else { EventFlags::empty() };
        epoll::add(&self.epoll, &listener, Token::Listener(key).pack(), interest)?;
        self.listeners.insert(listener);
        Ok((ListenerId(key), actual))
    }

    pub(crate) fn listener(&mut self, key: Key) -> Option<&TcpListener> {
        self.listeners.get_mut(key).map(|listener| &*listener)
    }

    pub(crate) fn close_listener(&mut self, listener: ListenerId) {
        self.listeners.remove(listener.0);
    }

    /// Leaves new connections in the backlog until one closes or [`ACCEPT_PAUSE`] is over.
    pub(crate) fn pause_accepting(&mut self, why: &io::Error) {
        if !std::mem::replace(&mut self.exhaustion_logged, true) {
            tracing::warn!(error = %why, "cannot accept connections; raise the limit of open files (ulimit -n)");
        }
        self.accept_again = Some(self.now + ACCEPT_PAUSE);
        self.watch_listeners(EventFlags::empty());
    }

    fn resume_accepting(&mut self) {
        if self.accept_again.take().is_some() {
            self.watch_listeners(EventFlags::IN);
        }
    }

    /// The backlog is empty: the next shortage is a new one.
    pub(crate) fn backlog_is_empty(&mut self) {
        self.exhaustion_logged = false;
    }

    fn watch_listeners(&self, interest: EventFlags) {
        for (key, listener) in self.listeners.iter() {
            if let Err(error) = epoll::modify(&self.epoll, listener, Token::Listener(key).pack(), interest) {
                tracing::error!(%error, "cannot watch a listener");
            }
        }
    }

    // Connections.

    pub(crate) fn adopt(&mut self, stream: TcpStream) -> io::Result<ConnectionId> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let key = self.connections.next_key();
        let interest = EventFlags::IN;
        epoll::add(&self.epoll, &stream, Token::Connection(key).pack(), interest)?;
        self.connections.insert(Connection {
            stream,
            phase: Phase::Open,
            paused: false,
            bulk: false,
            wants_send: false,
            blocked: false,
            peer_closed: false,
            touched: false,
            interest,
        });
        Ok(ConnectionId(key))
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

    pub(crate) fn release(&mut self, id: ConnectionId) -> Option<TcpStream> {
        self.handled(id)?;
        let stream = self.remove(id.0)?.stream;
        // It was added and is still open, so it is there to be deleted.
        let _ = epoll::delete(&self.epoll, &stream);
        Some(stream)
    }

    pub(crate) fn send(&mut self, id: ConnectionId) {
        let Some(connection) = self.handled(id) else { return };
        connection.wants_send = true;
        if !connection.blocked {
            self.touch(id.0);
        }
    }

    pub(crate) fn set_paused(&mut self, id: ConnectionId, paused: bool) {
        let Some(connection) = self.handled(id) else { return };
        connection.paused = paused;
        self.touch(id.0);
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
    }

    /// Moves the list of touched connections to `into`, which is empty.
    pub(crate) fn take_touched(&mut self, into: &mut Vec<Key>) {
        std::mem::swap(&mut self.touched, into);
        for key in into {
            if let Some(connection) = self.connections.get_mut(*key) {
                connection.touched = false;
            }
        }
    }

    /// Tells epoll what the connection waits for, if that has changed.
    pub(crate) fn update_interest(&mut self, key: Key) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        let wanted = connection.wanted_interest();
        if wanted != connection.interest {
            epoll::modify(&self.epoll, &connection.stream, Token::Connection(key).pack(), wanted)?;
            connection.interest = wanted;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        let key = Key { index: Token::LISTENER as u32 - 2, generation: u32::MAX };
        for token in [Token::Waker, Token::Listener(key), Token::Connection(key)] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
