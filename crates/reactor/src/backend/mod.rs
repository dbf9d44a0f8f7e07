//! The two ways to learn from the system what happened on the sockets.

mod buffers;
mod epoll;
mod files;
mod ring;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use buffers::{Buffers, Chunk};
pub(crate) use epoll::Epoll;
pub(crate) use ring::{Armed, QueueLens, Receiving, Ring};

use lunette_buffer::FileSlice;

use crate::counters::Counters;
use crate::datagram::{DatagramSocket, Ready};
use crate::files::FileRequest;
use crate::slab::Key;
use crate::sockets::Connection;
use crate::sys::{self, Moved};
use crate::waker::Waker;
use crate::{Gather, LoopConfig};

/// Connections that are sent on together: by one call, if the backend can.
pub(crate) const MAX_SENDS: usize = 8;

/// How a [`Reactor`](crate::Reactor) talks to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoBackend {
    /// io_uring if the system has and allows it, else epoll.
    Auto,
    /// Readiness by epoll, and one call for each receive and send. For disks in memory io_uring was not measured to
    /// need less CPU time; for disks in files it was, with fewer reads a second from the medium.
    #[default]
    Epoll,
    /// Completions by io_uring: one call for the wait and all receives of a batch, and one for its sends and requests
    /// on files. Needs Linux 6.1, and a system that does not forbid it (containers often do, and
    /// `kernel.io_uring_disabled`).
    Uring,
}

impl fmt::Display for IoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::Uring => "io_uring",
        })
    }
}

/// The result of a wait.
#[derive(Debug)]
pub(crate) enum Event {
    /// Connections wait at a listener.
    Acceptable(Key),
    /// The system accepted a connection, or stopped accepting.
    Accepted { listener: Key, result: io::Result<OwnedFd>, ends: bool, backlog_empty: bool },
    /// A connection can be read from, written to, or has failed; and which poll of a ring ended with that.
    Ready { connection: Key, readable: bool, writable: bool, failed: bool, ended: Option<Poll> },
    /// The system received bytes of a connection, none for its end, or stopped receiving.
    Received { connection: Key, result: io::Result<Option<Chunk>>, ends: bool },
    /// A datagram socket can be read from or written to.
    Datagrams { socket: Key, ready: Ready },
    /// A request on a file has ended, with as many bytes.
    FileDone { tag: u64, request: FileRequest, result: io::Result<usize> },
}

/// The condition on a socket for which the ring waits beside bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poll {
    /// Bytes, which are then received by a call.
    In,
    /// Room for bytes.
    Out,
    /// Failures alone are polled for.
    Failure,
}

/// The bytes that leave on one connection.
pub(crate) struct Outgoing<'a> {
    pub(crate) socket: BorrowedFd<'a>,
    pub(crate) list: &'a Gather<'a>,
}

/// The results of the sends, in their places.
pub(crate) type SendResults = [Option<Moved>; MAX_SENDS];

/// Nothing was sent.
pub(crate) const NO_RESULTS: SendResults = [const { None }; MAX_SENDS];

/// Sends by calls.
fn send_by_calls(Outgoing { socket, list }: &Outgoing<'_>, counters: &Counters) -> Moved {
    let moved = sys::send(*socket, list);
    let file_len = list.file().map_or(0, FileSlice::len);
    counters.system_calls.add(1 + u64::from(file_len > 0));
    if let Moved::Bytes(len) = moved {
        counters.file_bytes.add(len.saturating_sub(list.len_bytes() - file_len) as u64);
    }
    moved
}

pub(crate) enum Backend {
    Epoll(Epoll),
    Ring(Box<Ring>),
}

impl Backend {
    /// Opens what was asked for; the buffers are those of a ring.
    pub(crate) fn open(
        config: &LoopConfig,
        waker: &Waker,
        counters: &Arc<Counters>,
    ) -> io::Result<(Self, Option<Buffers>)> {
        let open_ring = || Self::open_ring(waker, counters, QueueLens::USUAL);
        match config.io {
            IoBackend::Epoll => Self::open_epoll(waker, counters),
            IoBackend::Uring => open_ring(),
            IoBackend::Auto => open_ring().or_else(|error| {
                tracing::debug!("{error}");
                Self::open_epoll(waker, counters)
            }),
        }
    }

    fn open_epoll(waker: &Waker, counters: &Arc<Counters>) -> io::Result<(Self, Option<Buffers>)> {
        Ok((Self::Epoll(Epoll::new(waker, Arc::clone(counters))?), None))
    }

    pub(crate) fn open_ring(
        waker: &Waker,
        counters: &Arc<Counters>,
        queue_lens: QueueLens,
    ) -> io::Result<(Self, Option<Buffers>)> {
        let buffers = Buffers::new();
        let ring = Ring::new(waker.clone(), &buffers, Arc::clone(counters), queue_lens).map_err(|error| {
            let advice =
                "it needs Linux 6.1 and a system that allows it (kernel.io_uring_disabled, seccomp); or choose epoll";
            io::Error::new(error.kind(), format!("no io_uring: {error}; {advice}"))
        })?;
        Ok((Self::Ring(Box::new(ring)), Some(buffers)))
    }

    pub(crate) fn kind(&self) -> IoBackend {
        match self {
            Self::Epoll(_) => IoBackend::Epoll,
            Self::Ring(_) => IoBackend::Uring,
        }
    }

    /// Events of an earlier call lie ready, or something must be handed in.
    pub(crate) fn is_busy(&mut self) -> bool {
        match self {
            Self::Epoll(_) => false,
            Self::Ring(ring) => ring.has_completions(),
        }
    }

    /// Waits for events, `None` without end, and appends them to `events`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        match self {
            Self::Epoll(epoll) => epoll.wait(timeout, events),
            Self::Ring(ring) => ring.wait(timeout, events),
        }
    }

    /// Takes on a listener.
    pub(crate) fn add_listener(&self, key: Key, listener: &TcpListener, accepts: bool) -> io::Result<()> {
        match self {
            Self::Epoll(epoll) => epoll.add_listener(key, listener, accepts),
            // It is armed at the end of the batch.
            Self::Ring(_) => Ok(()),
        }
    }

    /// Forgets a listener whose socket others hold open, so that its close does not end what the system watches.
    pub(crate) fn remove_listener(&mut self, key: Key, listener: &TcpListener) {
        match self {
            Self::Epoll(epoll) => epoll.remove_listener(listener),
            Self::Ring(ring) => ring.remove_listener(key),
        }
    }

    /// Takes on a connection, which wants to be read from.
    pub(crate) fn add_connection(&self, key: Key, connection: &mut Connection) -> io::Result<()> {
        match self {
            Self::Epoll(epoll) => epoll.add_connection(key, connection),
            // It is armed at the end of the batch.
            Self::Ring(_) => Ok(()),
        }
    }

    /// Tells the system what the connection waits for, if that has changed.
    pub(crate) fn update_connection(&mut self, key: Key, connection: &mut Connection) -> io::Result<()> {
        match self {
            Self::Epoll(epoll) => epoll.update_connection(key, connection),
            Self::Ring(ring) => ring.update_connection(key, connection),
        }
    }

    /// Takes on a datagram socket, which wants to be read from.
    pub(crate) fn add_datagrams(&self, key: Key, socket: &mut DatagramSocket) -> io::Result<()> {
        match self {
            Self::Epoll(epoll) => epoll.add_datagrams(key, socket),
            // It is armed at the end of the batch.
            Self::Ring(_) => Ok(()),
        }
    }

    /// Tells the system what the socket waits for, if that has changed.
    pub(crate) fn update_datagrams(&mut self, key: Key, socket: &mut DatagramSocket) -> io::Result<()> {
        match self {
            Self::Epoll(epoll) => epoll.update_datagrams(key, socket),
            Self::Ring(ring) => ring.update_datagrams(key, socket),
        }
    }

    /// Lets go of a datagram socket, which is closed then.
    pub(crate) fn remove_datagrams(&mut self, key: Key, socket: &DatagramSocket) {
        // Epoll forgets a descriptor that is closed.
        if let Self::Ring(ring) = self {
            ring.remove_datagrams(key, socket);
        }
    }

    /// Takes on a request on a file, to be handed in with the next call; gives it back when it cannot.
    pub(crate) fn submit_file(&mut self, tag: u64, request: FileRequest) -> Result<(), FileRequest> {
        match self {
            Self::Epoll(_) => Err(request),
            Self::Ring(ring) => ring.submit_file(tag, request),
        }
    }

    /// Does each of `sends` once.
    pub(crate) fn send(&mut self, sends: &[Option<Outgoing<'_>>; MAX_SENDS]) -> io::Result<SendResults> {
        match self {
            Self::Epoll(epoll) => Ok(sends.each_ref().map(|outgoing| Some(epoll.send(outgoing.as_ref()?)))),
            Self::Ring(ring) => ring.send(sends),
        }
    }
}
