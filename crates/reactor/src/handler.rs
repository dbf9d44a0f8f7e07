//! The trait for a user of the reactor.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use crate::{
    ConnectionId, Context, DatagramFailure, DatagramList, DatagramSocketId, Datagrams, FileRequest, Gather, ListenerId,
    Stream,
};

/// Receives the events of a [`Reactor`](crate::Reactor), and says which bytes go where.
///
/// All calls come from the thread that runs the reactor, one at a time. None may block.
pub trait Handler {
    /// `listener` has a new connection from `peer`, which reached us at `local`.
    fn accepted(
        &mut self,
        cx: &mut Context<'_>,
        listener: ListenerId,
        connection: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
    );

    /// Where the next bytes should be put without a detour: the rest of a large data segment. `None` or an empty slice:
    /// into the reactor's buffer, to be seen by [`received`](Self::received).
    ///
    /// What is received there ends in [`direct_received`](Self::direct_received) or the connection ends, before
    /// anything else is called. It is a wish: bytes that the system received before it could be asked come through
    /// [`received`](Self::received).
    fn direct(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        let _ = connection;
        None
    }

    /// The first `len` bytes (at least one) of the slice that [`direct`](Self::direct) gave were received. What the
    /// same receive has brought beyond the slice comes next, in [`received`](Self::received).
    fn direct_received(&mut self, cx: &mut Context<'_>, connection: ConnectionId, len: usize) {
        let _ = (cx, connection, len);
    }

    /// `bytes` were received. Gives how many of them the handler has taken: all, even when it pauses the connection
    /// now, or fewer, when something is to leave first. Then that leaves, behind a [`batch_end`](Self::batch_end), and
    /// the rest comes again. So a peer need not wait for its first answers until there is the last one.
    fn received(&mut self, cx: &mut Context<'_>, connection: ConnectionId, bytes: &[u8]) -> usize;

    /// Appends what is ready to leave on `connection`, in order, from the first byte that was not yet reported by
    /// [`sent`](Self::sent). Bytes offered once must be offered again, unchanged, until they are sent.
    ///
    /// It borrows the handler shared, for the lists of several connections leave by one call.
    ///
    /// An empty list means that nothing is left. It may be asked at any time after [`Context::send`].
    fn gather<'a>(&'a self, connection: ConnectionId, list: &mut Gather<'a>);

    /// The first `len` bytes (at least one) of what was gathered left.
    fn sent(&mut self, cx: &mut Context<'_>, connection: ConnectionId, len: usize);

    /// The connection has ended and its id is dead. Not called after [`Context::close`] or
    /// [`released`](Self::released).
    fn closed(&mut self, cx: &mut Context<'_>, connection: ConnectionId, why: Closed);

    /// The connection that was given up by [`Context::release`] is the reactor's no longer, and its id is dead. What
    /// was gathered and not reported by [`sent`](Self::sent) has not left. The socket does not block.
    fn released(&mut self, cx: &mut Context<'_>, connection: ConnectionId, stream: Stream) {
        let _ = (cx, connection, stream);
    }

    /// Reports the end of a request of [`Context::submit_file`]: the request with its buffer, and the bytes that a read
    /// or write has moved, which may be fewer than asked for.
    fn file_done(&mut self, cx: &mut Context<'_>, tag: u64, request: FileRequest, result: io::Result<usize>) {
        let _ = (cx, tag, request, result);
    }

    /// `datagrams`, at least one, have come at `socket`: all that one call into the system brought. What the handler
    /// does not look at is gone.
    fn datagrams(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, datagrams: Datagrams<'_>) {
        let _ = (cx, socket, datagrams);
    }

    /// Appends datagrams that may leave at `socket`, in order, from the first that was not yet counted by
    /// [`datagrams_sent`](Self::datagrams_sent). What was offered and is not counted there did not leave; the handler
    /// may offer it again, or something else.
    ///
    /// It borrows the handler for itself alone, so packets may be made, numbered and sealed when there is room for
    /// them.
    ///
    /// An empty list means that nothing is left. It may be asked at any time after [`Context::send_datagrams`].
    fn gather_datagrams<'a>(&'a mut self, socket: DatagramSocketId, list: &mut DatagramList<'a>) {
        let _ = (socket, list);
    }

    /// The first `count` datagrams (at least one) of the list left, those excepted for which
    /// [`datagram_failed`](Self::datagram_failed) was called before.
    fn datagrams_sent(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, count: usize) {
        let _ = (cx, socket, count);
    }

    /// A datagram did not leave or did not arrive. The socket goes on.
    fn datagram_failed(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, failure: DatagramFailure) {
        let _ = (cx, socket, failure);
    }

    /// A [`Waker`](crate::Waker) was used, once or more often: time to drain the queues that other threads fill.
    fn woken(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// The next moment at which [`timeout`](Self::timeout) wants to be called. Asked before each wait; `now` is the
    /// moment of the last batch.
    fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let _ = now;
        None
    }

    /// The moment given by [`next_timeout`](Self::next_timeout) has come. The handler must move it on, or the reactor
    /// calls again at once.
    fn timeout(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// All events of this batch, or those before a [part](Self::received), were handed out; their sends follow.
    fn batch_end(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// Why a connection ended by itself.
#[derive(Debug)]
pub enum Closed {
    /// The peer closed it. What was not yet sent is lost.
    PeerClosed,
    /// Everything gathered after [`Context::close_after_send`] left.
    AllSent,
    /// The socket failed, or [`LINGER_TIMEOUT`](crate::LINGER_TIMEOUT) passed before everything was sent
    /// ([`io::ErrorKind::TimedOut`]).
    Error(io::Error),
}
