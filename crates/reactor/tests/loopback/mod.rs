//! The reactor over real sockets. Peers are plain blocking sockets on threads of their own.
//!
//! The same tests run once for each backend.

mod bytes;
mod closing;
mod datagrams;
mod files;
mod idle;
mod listening;
mod low_water;
mod pausing;
mod release;
mod short_sends;
mod signals;
mod tls;
mod wakes;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lunette_reactor::{
    Closed, ConnectionId, Context, FileRequest, Gather, Handler, IoBackend, ListenerId, Reactor, Stream, TlsSource,
    Waker,
};

/// The calls to the handler under test.
enum Event<'a> {
    Accepted(ConnectionId),
    Received(ConnectionId, &'a [u8]),
    Direct(ConnectionId),
    Sent(ConnectionId),
    Closed(ConnectionId, Closed),
    Released(ConnectionId, Stream),
    FileDone(u64, FileRequest, io::Result<usize>),
    Woken,
    Timeout,
}

/// The state of the handler under test.
#[derive(Default)]
struct State {
    out: HashMap<ConnectionId, Vec<u8>>,
    direct: HashMap<ConnectionId, Vec<u8>>,
    direct_filled: usize,
    timeout: Option<Instant>,
    /// The most bytes that it takes of what is received; `None`: all.
    takes: Option<usize>,
    batch_ends: usize,
}

impl State {
    fn send(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) {
        self.out.entry(id).or_default().extend_from_slice(bytes);
        cx.send(id);
    }
}

type Behaviour<'a> = dyn FnMut(&mut State, &mut Context<'_>, Event<'_>) + 'a;

/// A handler whose behaviour is one closure. It stands behind a pointer, because each type of a handler has a reactor
/// compiled for it.
struct Toy<'a> {
    state: State,
    on: Box<Behaviour<'a>>,
}

impl Handler for Toy<'_> {
    fn accepted(&mut self, cx: &mut Context<'_>, _: ListenerId, id: ConnectionId, peer: SocketAddr, local: SocketAddr) {
        assert!(peer.ip().is_loopback() && local.ip().is_loopback() && peer != local);
        (self.on)(&mut self.state, cx, Event::Accepted(id));
    }

    fn direct(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.state.direct.get_mut(&id).map(|into| &mut into[self.state.direct_filled..])
    }

    fn direct_received(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        self.state.direct_filled += len;
        (self.on)(&mut self.state, cx, Event::Direct(id));
    }

    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.state.takes.unwrap_or(usize::MAX))];
        (self.on)(&mut self.state, cx, Event::Received(id, bytes));
        bytes.len()
    }

    fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        // Pieces of uneven length, so that sends end inside of slices.
        for piece in self.state.out.get(&id).into_iter().flat_map(|out| out.chunks(4097)) {
            if !list.push(piece) {
                break;
            }
        }
    }

    fn sent(&mut self, cx: &mut Context<'_>, id: ConnectionId, len: usize) {
        self.state.out.entry(id).or_default().drain(..len);
        (self.on)(&mut self.state, cx, Event::Sent(id));
    }

    fn closed(&mut self, cx: &mut Context<'_>, id: ConnectionId, why: Closed) {
        (self.on)(&mut self.state, cx, Event::Closed(id, why));
    }

    fn released(&mut self, cx: &mut Context<'_>, id: ConnectionId, stream: Stream) {
        (self.on)(&mut self.state, cx, Event::Released(id, stream));
    }

    fn file_done(&mut self, cx: &mut Context<'_>, tag: u64, request: FileRequest, result: io::Result<usize>) {
        (self.on)(&mut self.state, cx, Event::FileDone(tag, request, result));
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        (self.on)(&mut self.state, cx, Event::Woken);
    }

    fn next_timeout(&mut self, _: Instant) -> Option<Instant> {
        self.state.timeout
    }

    fn timeout(&mut self, cx: &mut Context<'_>) {
        (self.on)(&mut self.state, cx, Event::Timeout);
    }

    fn batch_end(&mut self, _: &mut Context<'_>) {
        self.state.batch_ends += 1;
    }
}

/// A reactor on the backend under test. Where the system forbids it the tests say so and run on the other.
fn reactor() -> Reactor {
    Reactor::with(crate::IO).unwrap_or_else(|error| {
        eprintln!("no {}: {error}", crate::IO);
        Reactor::with(IoBackend::Epoll).unwrap()
    })
}

/// Runs a listening reactor with the behaviour `on` here, and `peer` on another thread, until both have ended.
fn run<T: Send>(
    on: impl FnMut(&mut State, &mut Context<'_>, Event<'_>),
    peer: impl FnOnce(SocketAddr, Waker) -> T + Send,
) -> T {
    run_with(None, on, peer)
}

/// Runs it as [`run`] does, with connections that speak TLS.
fn run_with<T: Send>(
    tls: Option<TlsSource>,
    on: impl FnMut(&mut State, &mut Context<'_>, Event<'_>),
    peer: impl FnOnce(SocketAddr, Waker) -> T + Send,
) -> T {
    let mut reactor = reactor();
    let (listener, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    reactor.context().set_listener_tls(listener, tls);
    let waker = reactor.waker();
    thread::scope(|scope| {
        let peer = scope.spawn(move || peer(address, waker));
        reactor.run(&mut Toy { state: State::default(), on: Box::new(on) }).unwrap();
        // Lingering sockets are reset now, so a test that reads to the end stops the reactor afterwards.
        drop(reactor);
        peer.join().unwrap()
    })
}

/// A socket that gives up rather than hang a broken test for ever.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.set_write_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

fn pattern(len: usize) -> Vec<u8> {
    (0_usize..).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).take(len).collect()
}
