//! The reactor over real sockets. Peers are plain blocking sockets on threads of their own.
//!
//! The same tests run once for each backend, and with another reactor that carries the connections.

mod files;
mod idle;
mod short_sends;
mod signals;

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lunette_reactor::{
    Carrier, Closed, ConnectionId, Context, FileRequest, Gather, Handler, IoBackend, ListenerId, Reactor, Waker,
};

/// What the handler under test was told.
enum Event<'a> {
    Accepted(ConnectionId),
    Received(ConnectionId, &'a [u8]),
    Direct(ConnectionId),
    Sent(ConnectionId),
    Closed(ConnectionId, Closed),
    Released(ConnectionId, TcpStream),
    FileDone(u64, FileRequest, io::Result<usize>),
    Woken,
    Timeout,
}

/// What the handler under test keeps.
#[derive(Default)]
struct State {
    /// Who carries what is accepted.
    carrier: Option<Carrier>,
    out: HashMap<ConnectionId, Vec<u8>>,
    direct: HashMap<ConnectionId, Vec<u8>>,
    direct_filled: usize,
    timeout: Option<Instant>,
    /// At most so many bytes of what is received; `None`: all.
    takes: Option<usize>,
    batch_ends: usize,
}

impl State {
    fn send(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) {
        self.out.entry(id).or_default().extend_from_slice(bytes);
        cx.send(id);
    }
}

/// A handler whose behaviour is one closure.
struct Toy<F> {
    state: State,
    on: F,
}

impl<F: FnMut(&mut State, &mut Context<'_>, Event<'_>)> Handler for Toy<F> {
    fn accepted(&mut self, cx: &mut Context<'_>, _: ListenerId, id: ConnectionId, peer: SocketAddr, local: SocketAddr) {
        assert!(peer.ip().is_loopback() && local.ip().is_loopback() && peer != local);
        let id = match &self.state.carrier {
            Some(carrier) => {
                let stream = cx.release(id).unwrap();
                cx.adopt_carried(stream, carrier)
            }
            None => id,
        };
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

    fn released(&mut self, cx: &mut Context<'_>, id: ConnectionId, stream: TcpStream) {
        (self.on)(&mut self.state, cx, Event::Released(id, stream));
    }

    fn file_done(&mut self, cx: &mut Context<'_>, tag: u64, request: FileRequest, result: io::Result<usize>) {
        (self.on)(&mut self.state, cx, Event::FileDone(tag, request, result));
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        (self.on)(&mut self.state, cx, Event::Woken);
    }

    fn next_timeout(&mut self) -> Option<Instant> {
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
    let mut reactor = reactor();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let waker = reactor.waker();
    let carries = CarrierThread::start();
    let state = State { carrier: crate::CARRIED.then(|| carries.carrier.clone()), ..State::default() };
    thread::scope(|scope| {
        let peer = scope.spawn(move || peer(address, waker));
        reactor.run(&mut Toy { state, on }).unwrap();
        // Lingering sockets are reset now, so a test that reads to the end stops the reactor afterwards.
        drop(reactor);
        drop(carries);
        peer.join().unwrap()
    })
}

/// A reactor that does nothing but carry, on a thread of its own.
struct CarrierThread {
    carrier: Carrier,
    waker: Waker,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for CarrierThread {
    fn drop(&mut self) {
        self.waker.wake();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

impl CarrierThread {
    fn start() -> Self {
        let mut reactor = reactor();
        let (carrier, waker) = (reactor.carrier(), reactor.waker());
        let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
            Event::Woken => cx.stop(),
            _ => panic!("its handler hears of a connection that it carries"),
        };
        let thread = thread::spawn(move || reactor.run(&mut Toy { state: State::default(), on }).unwrap());
        Self { carrier, waker, thread: Some(thread) }
    }
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

#[test]
fn sends_megabytes_to_a_peer_that_reads_late() {
    let len = 24 << 20;
    let echo = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        Event::Closed(_, Closed::PeerClosed) => cx.stop(),
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    let echoed = run(echo, |address, _| {
        let mut stream = connect(address);
        stream.write_all(&pattern(len)).unwrap();
        let mut echoed = vec![0; len];
        stream.read_exact(&mut echoed).unwrap();
        echoed
    });
    assert!(echoed == pattern(len));
}

#[test]
fn bytes_batches_and_calls_are_counted() {
    let mut reactor = reactor();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let counts = reactor.counts();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => state.send(cx, id, &[bytes, bytes].concat()),
        Event::Closed(..) => cx.stop(),
        _ => {}
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = connect(address);
            stream.write_all(&pattern(1000)).unwrap();
            stream.read_exact(&mut [0; 2000]).unwrap();
        });
        reactor.run(&mut Toy { state: State::default(), on }).unwrap();
    });
    let counts = counts.counts();
    assert_eq!((counts.received_bytes, counts.direct_bytes, counts.sent_bytes), (1000, 0, 2000));
    // At least: accepted or received, sent, closed.
    assert!(counts.batches >= 2 && counts.system_calls >= counts.batches, "{counts:?}");
}

#[test]
fn what_a_part_leads_to_leaves_before_the_rest_comes() {
    let mut calls = String::new();
    let mut batch_ends = 0;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(_) => state.takes = Some(100),
        Event::Received(id, bytes) => {
            calls.push('r');
            state.send(cx, id, bytes);
        }
        Event::Sent(_) => calls.push('s'),
        Event::Closed(..) => {
            batch_ends = state.batch_ends;
            cx.stop();
        }
        _ => {}
    };
    let echoed = run(on, |address, _| {
        let mut stream = connect(address);
        stream.write_all(&pattern(450)).unwrap();
        let mut echoed = vec![0; 450];
        stream.read_exact(&mut echoed).unwrap();
        echoed
    });
    assert!(echoed == pattern(450));
    assert!(calls.len() >= 10 && calls == "rs".repeat(calls.len() / 2), "{calls}");
    assert!(batch_ends >= 5, "{batch_ends}");
}

#[test]
fn receives_straight_into_the_place_that_the_handler_names() {
    if crate::CARRIED {
        // Bytes come in blocks.
        return;
    }
    let len = 5 << 20;
    let mut received = 0;
    let mut direct = Vec::new();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            received += bytes.len();
            if received == 4 {
                state.direct.insert(id, vec![0; len]);
                state.send(cx, id, b"go");
            }
        }
        Event::Direct(id) if state.direct_filled == len => {
            direct = state.direct.remove(&id).unwrap();
        }
        Event::Closed(..) => cx.stop(),
        _ => {}
    };
    run(on, |address, _| {
        let mut stream = connect(address);
        stream.write_all(b"head").unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        stream.write_all(&pattern(len)).unwrap();
        stream.write_all(b"tail").unwrap();
    });
    assert!(direct == pattern(len));
    assert_eq!(received, 8, "head and tail, and nothing of the segment");
}

#[test]
fn a_paused_connection_receives_nothing_until_it_is_resumed() {
    let mut paused = None;
    let mut received = 0;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => {
            cx.pause(id);
            paused = Some(id);
            state.send(cx, id, b"!");
        }
        Event::Received(_, bytes) => {
            assert_eq!(paused, None);
            received += bytes.len();
        }
        Event::Woken => {
            assert_eq!(received, 0);
            cx.resume(paused.take().unwrap());
        }
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::PeerClosed), "{why:?}");
            cx.stop();
        }
        _ => {}
    };
    let sent = run(on, |address, waker| {
        let mut stream = connect(address);
        stream.read_exact(&mut [0]).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        let full = loop {
            match stream.write(&[7; 16_384]) {
                Ok(len) => sent += len,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        waker.wake();
        stream.set_nonblocking(false).unwrap();
        stream.write_all(&[7; 1000]).unwrap();
        sent + 1000
    });
    assert_eq!(received, sent);
}

#[test]
fn pausing_in_the_middle_neither_loses_nor_reorders() {
    let len = 16 << 20;
    let mut received = Vec::new();
    let mut paused = None;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            assert_eq!(paused, None);
            received.extend_from_slice(bytes);
            cx.pause(id);
            paused = Some(id);
            // The next batch, in which more may have come.
            state.timeout = Some(cx.now());
        }
        Event::Timeout => {
            state.timeout = None;
            cx.resume(paused.take().unwrap());
        }
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::PeerClosed), "{why:?}");
            cx.stop();
        }
        _ => {}
    };
    run(on, |address, _| connect(address).write_all(&pattern(len)).unwrap());
    assert!(received == pattern(len));
}

#[test]
fn bytes_keep_their_order_when_places_for_them_come_and_go() {
    let len = 16 << 20;
    let place = 40_000;
    let mut received = Vec::new();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            received.extend_from_slice(bytes);
            // Long stretches with places and without.
            if received.len() >> 20 & 1 == 1 {
                state.direct.insert(id, vec![0; place]);
                state.direct_filled = 0;
            }
        }
        Event::Direct(id) => {
            let filled = state.direct_filled;
            received.extend_from_slice(&state.direct.remove(&id).unwrap()[..filled]);
        }
        Event::Closed(..) => cx.stop(),
        _ => {}
    };
    run(on, |address, _| connect(address).write_all(&pattern(len)).unwrap());
    assert!(received == pattern(len));
}

#[test]
fn a_peer_that_closed_its_side_is_noticed_when_its_connection_is_resumed() {
    let mut ended = false;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, _) => {
            cx.pause(id);
            state.send(cx, id, b"!");
            state.direct.insert(id, Vec::new());
        }
        Event::Woken => state.direct.keys().for_each(|&id| cx.resume(id)),
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::PeerClosed), "{why:?}");
            ended = true;
            cx.stop();
        }
        _ => {}
    };
    run(on, |address, waker| {
        let mut stream = connect(address);
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        waker.wake();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
    assert!(ended);
}

#[test]
fn many_connections_are_answered_in_one_batch() {
    let (connections, len) = (50, 100_000);
    let mut waiting = Vec::new();
    let mut left = connections;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, _) => {
            waiting.push(id);
            if waiting.len() == connections {
                for (i, &id) in waiting.iter().enumerate() {
                    state.send(cx, id, &pattern(len + i));
                }
            }
        }
        Event::Closed(..) => {
            left -= 1;
            if left == 0 {
                cx.stop();
            }
        }
        _ => {}
    };
    run(on, |address, _| {
        let mut streams: Vec<_> = (0..connections).map(|_| connect(address)).collect();
        for stream in &mut streams {
            stream.write_all(b"x").unwrap();
        }
        let mut lens: Vec<usize> = streams
            .iter_mut()
            .map(|stream| {
                let mut answer = vec![0; len];
                stream.read_exact(&mut answer).unwrap();
                assert!(answer == pattern(len));
                stream.shutdown(Shutdown::Write).unwrap();
                len + stream.read_to_end(&mut Vec::new()).unwrap()
            })
            .collect();
        lens.sort_unstable();
        assert!(lens.iter().copied().eq((0..connections).map(|i| len + i)));
    });
}

#[test]
fn a_paused_connection_ends_when_it_fails() {
    let mut ended = None;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => {
            cx.pause(id);
            state.send(cx, id, b"unread");
        }
        Event::Closed(_, why) => {
            ended = Some(why);
            cx.stop();
        }
        _ => {}
    };
    run(on, |address, _| {
        let stream = connect(address);
        // A socket that is closed with bytes unread resets the connection.
        stream.peek(&mut [0]).unwrap();
    });
    assert!(matches!(ended, Some(Closed::Error(error)) if error.kind() == ErrorKind::ConnectionReset));
}

#[test]
fn close_after_send_delivers_everything_though_the_peer_keeps_talking() {
    let len = 6 << 20;
    let mut ends = 0;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, _) => {
            assert_eq!(state.out.len(), 0, "received after close_after_send");
            state.send(cx, id, &pattern(len));
            cx.close_after_send(id);
        }
        Event::Closed(id, why) => {
            assert!(matches!(why, Closed::AllSent), "{why:?}");
            assert_eq!(state.out[&id].len(), 0);
            ends += 1;
        }
        Event::Woken => cx.stop(),
        _ => {}
    };
    let answer = run(on, |address, waker| {
        let mut stream = connect(address);
        stream.write_all(b"x").unwrap();
        stream.peek(&mut [0]).unwrap();
        stream.write_all(&vec![0; 1 << 20]).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        stream.write_all(&vec![0; 1 << 20]).unwrap();
        waker.wake();
        answer
    });
    assert!(answer == pattern(len));
    assert_eq!(ends, 1);
}

#[test]
fn close_after_send_delivers_to_a_peer_that_closed_its_side() {
    let len = 12 << 20;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, _) => {
            state.send(cx, id, &pattern(len));
            cx.close_after_send(id);
        }
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::AllSent), "{why:?}");
            cx.stop();
        }
        _ => {}
    };
    let answer = run(on, |address, _| {
        let mut stream = connect(address);
        stream.write_all(b"x").unwrap();
        stream.peek(&mut [0]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    });
    assert!(answer == pattern(len));
}

#[test]
fn no_wake_up_is_lost() {
    let (tx, rx) = mpsc::channel();
    let (threads, each) = (4, 5000);
    let mut seen = 0;
    let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| {
        if let Event::Woken = event {
            seen += rx.try_iter().count();
            if seen == threads * each {
                cx.stop();
            }
        }
    };
    run(on, |_, waker| {
        thread::scope(|scope| {
            for _ in 0..threads {
                let (tx, waker) = (tx.clone(), waker.clone());
                scope.spawn(move || {
                    for _ in 0..each {
                        tx.send(()).unwrap();
                        waker.wake();
                    }
                });
            }
        });
    });
}

#[test]
fn timeouts_come_in_time_and_never_early() {
    let step = Duration::from_micros(1500);
    let mut left = 5;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Woken => state.timeout = Some(cx.now() + step),
        Event::Timeout => {
            assert!(state.timeout.is_some_and(|due| due <= cx.now()));
            state.timeout = Some(cx.now() + step);
            left -= 1;
            if left == 0 {
                cx.stop();
            }
        }
        _ => {}
    };
    run(on, |_, waker| waker.wake());
    assert_eq!(left, 0);
}

#[test]
fn a_thousand_peers_that_connect_and_leave() {
    let mut ids = HashSet::new();
    let mut open = HashSet::new();
    let mut closed = 0;
    let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => {
            assert!(ids.insert(id), "{id:?} was given out twice");
            assert!(open.insert(id.index()), "index {} has two tenants", id.index());
        }
        Event::Closed(id, _) => {
            assert!(open.remove(&id.index()));
            closed += 1;
            if closed == 1000 {
                cx.stop();
            }
        }
        _ => {}
    };
    run(on, |address, _| {
        for _ in 0..1000 {
            drop(connect(address));
        }
    });
    assert_eq!(ids.len(), 1000);
}

#[test]
fn dead_ids_do_not_touch_the_next_connection() {
    let mut dead = None;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => match dead {
            None => {
                cx.close(id);
                dead = Some(id);
            }
            Some(dead) => {
                assert_eq!(dead.index(), id.index());
                cx.close(dead);
                cx.pause(dead);
                cx.send(dead);
                cx.close_after_send(dead);
                assert!(cx.release(dead).is_none());
            }
        },
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        Event::Sent(id) => assert_ne!(Some(id), dead),
        Event::Closed(id, _) => {
            assert_ne!(Some(id), dead, "closed is not called for close()");
            cx.stop();
        }
        _ => {}
    };
    run(on, |address, _| {
        let mut first = connect(address);
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
        let mut second = connect(address);
        second.write_all(b"ping").unwrap();
        let mut answer = [0; 4];
        second.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
    });
}

#[test]
fn a_released_connection_lives_on_in_another_reactor() {
    if crate::CARRIED {
        // It stays with its owner.
        return;
    }
    let (tx, rx) = mpsc::channel();
    let first = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| {
        if let Event::Accepted(id) = event {
            tx.send(cx.release(id).unwrap()).unwrap();
            assert!(cx.release(id).is_none());
            cx.stop();
        }
    };
    run(first, move |address, _| {
        let mut stream = connect(address);
        let mut reactor = reactor();
        let id = reactor.adopt(rx.recv().unwrap()).unwrap();
        let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
            Event::Sent(_) => cx.stop(),
            Event::Woken => state.send(cx, id, b"moved"),
            _ => {}
        };
        reactor.waker().wake();
        reactor.run(&mut Toy { state: State::default(), on }).unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"moved");
    });
}

/// What a peer sends last.
const END: &[u8] = b"the very end";

/// Receives on one reactor, which hands the connection over when it has seen `first_len` bytes, and then on another one, which
/// closes it. Gives what both received.
fn receive_on_two(first_len: usize, pauses: bool, peer: impl FnOnce(TcpStream) + Send) -> (Vec<u8>, Vec<u8>) {
    let (tx, rx) = mpsc::channel();
    let mut before = Vec::new();
    let first = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, bytes) => {
            before.extend_from_slice(bytes);
            if before.len() >= first_len {
                if pauses {
                    cx.pause(id);
                }
                cx.hand_over(id);
                cx.hand_over(id);
                assert!(cx.release(id).is_none());
                cx.resume(id);
            }
        }
        Event::Released(id, stream) => {
            cx.close(id);
            tx.send(stream).unwrap();
            cx.stop();
        }
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    let after = run(first, move |address, _| {
        thread::scope(|scope| {
            scope.spawn(move || peer(connect(address)));
            let mut reactor = reactor();
            let id = reactor.adopt(rx.recv().unwrap()).unwrap();
            let mut after = Vec::new();
            let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
                Event::Received(_, bytes) => {
                    after.extend_from_slice(bytes);
                    if after.ends_with(END) {
                        cx.close(id);
                        cx.stop();
                    }
                }
                Event::Closed(_, why) => panic!("{why:?}"),
                _ => {}
            };
            reactor.run(&mut Toy { state: State::default(), on }).unwrap();
            after
        })
    });
    (before, after)
}

#[test]
fn a_connection_is_handed_over_in_the_middle_of_what_it_receives() {
    if crate::CARRIED {
        // It stays with its owner.
        return;
    }
    for pauses in [false, true] {
        let sent = [pattern(16 << 20), END.to_vec()].concat();
        let (before, after) = receive_on_two(3 << 20, pauses, |mut stream| {
            stream.write_all(&sent).unwrap();
            // Nothing of the first reactor holds the socket open when the second closes it.
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
        assert!(before.len() >= 3 << 20 && !after.is_empty());
        assert!([before, after].concat() == sent, "bytes were lost or changed their order");
    }
}

#[test]
fn an_idle_connection_is_handed_over_without_a_byte() {
    if crate::CARRIED {
        // It stays with its owner.
        return;
    }
    let (before, after) = receive_on_two(1, false, |mut stream| {
        stream.write_all(b"x").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        // Nothing more comes for a while.
        stream.read(&mut [0]).unwrap_err();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream.write_all(END).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
    assert_eq!((&before[..], &after[..]), (&b"x"[..], END));
}

#[test]
fn what_a_hand_over_did_not_send_is_left_to_the_next() {
    if crate::CARRIED {
        // It stays with its owner.
        return;
    }
    let (tx, rx) = mpsc::channel();
    let len = 24 << 20;
    let mut left = Vec::new();
    let first = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => state.send(cx, id, &pattern(len)),
        Event::Sent(id) if state.out[&id].len() < len => cx.hand_over(id),
        Event::Released(id, stream) => {
            left = state.out.remove(&id).unwrap();
            tx.send((stream, left.clone())).unwrap();
            cx.stop();
        }
        Event::Closed(_, why) => panic!("{why:?}"),
        _ => {}
    };
    run(first, move |address, _| {
        let mut near = connect(address);
        let (stream, left) = rx.recv().unwrap();
        let mut reactor = reactor();
        let id = reactor.adopt(stream).unwrap();
        let waker = reactor.waker();
        thread::scope(|scope| {
            let near = &mut near;
            scope.spawn(move || {
                let mut received = vec![0; len];
                near.read_exact(&mut received).unwrap();
                assert!(received == pattern(len));
                waker.wake();
            });
            let mut state = State::default();
            state.send(&mut reactor.context(), id, &left);
            let on = |_: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
                Event::Woken => cx.stop(),
                Event::Closed(_, why) => panic!("{why:?}"),
                _ => {}
            };
            reactor.run(&mut Toy { state, on }).unwrap();
        });
    });
}

#[test]
fn a_hand_over_can_be_taken_back_by_closing() {
    if crate::CARRIED {
        // It stays with its owner.
        return;
    }
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Received(id, b"now") => {
            cx.hand_over(id);
            cx.close(id);
            cx.hand_over(id);
        }
        Event::Received(id, _) => {
            cx.hand_over(id);
            state.send(cx, id, b"bye");
            cx.close_after_send(id);
        }
        Event::Closed(_, why) => {
            assert!(matches!(why, Closed::AllSent), "{why:?}");
            cx.stop();
        }
        Event::Released(..) => panic!("it was closed"),
        _ => {}
    };
    run(on, |address, _| {
        let mut stream = connect(address);
        stream.write_all(b"now").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        let mut stream = connect(address);
        stream.write_all(b"then").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"bye");
    });
}

#[test]
fn what_was_marked_before_a_stop_still_leaves() {
    if crate::CARRIED {
        // Its carrier has not yet answered.
        return;
    }
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| {
        if let Event::Accepted(id) = event {
            state.send(cx, id, b"bye");
            cx.stop();
        }
    };
    let answer = run(on, |address, _| {
        let mut answer = Vec::new();
        connect(address).read_to_end(&mut answer).unwrap();
        answer
    });
    assert_eq!(answer, b"bye");
}

#[test]
fn a_flood_on_one_connection_does_not_starve_another() {
    let mut flood = None;
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) if flood.is_none() => flood = Some(id),
        Event::Received(id, _) if Some(id) == flood => {}
        Event::Received(id, bytes) => state.send(cx, id, bytes),
        Event::Closed(id, _) if Some(id) == flood => cx.stop(),
        _ => {}
    };
    run(on, |address, _| {
        let mut flood = connect(address);
        let mut polite = connect(address);
        let (done_tx, done) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while done.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    flood.write_all(&[0; 16_384]).unwrap();
                }
            });
            for i in 0..200_u8 {
                polite.write_all(&[i]).unwrap();
                let mut answer = [0];
                polite.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [i]);
            }
            drop(done_tx);
        });
    });
}

#[test]
fn a_closed_listener_refuses_and_its_connections_stay() {
    let mut reactor = reactor();
    let (listener, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let on = |state: &mut State, cx: &mut Context<'_>, event: Event<'_>| match event {
        Event::Accepted(id) => {
            cx.close_listener(listener);
            state.send(cx, id, b"!");
        }
        Event::Closed(..) => cx.stop(),
        _ => {}
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = connect(address);
            stream.read_exact(&mut [0]).unwrap();
            assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        });
        reactor.run(&mut Toy { state: State::default(), on }).unwrap();
    });
}

#[test]
fn an_address_in_use_is_reported() {
    let mut reactor = reactor();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(reactor.listen(address).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn the_same_port_serves_both_families() {
    let mut reactor = reactor();
    // Another process may happen to have the port on one of them.
    let found = (0..8).find_map(|_| {
        let (_, six) = match reactor.listen("[::]:0".parse().unwrap()) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => return None,
            listening => listening.unwrap(),
        };
        reactor.listen(SocketAddr::from(([127, 0, 0, 1], six.port()))).ok()
    });
    assert!(found.is_some());
}
