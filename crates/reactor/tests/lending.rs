//! Sends without a copy, over a path that is not within a host: two network namespaces and a veth pair between them.
//!
//! Only root may make these; others are told that nothing was tested.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lunette_buffer::{Pool, SharedBuffer};
use lunette_reactor::{
    Closed, ConnectionId, Context, Counts, CountsView, Gather, Handler, IoBackend, ListenerId, LoopConfig, Reactor,
    Waker,
};
use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};

const ADDRESS: &str = "192.0.2.1:3260";
const HEADER: [u8; 48] = [0xa5; 48];
const DATA_BYTES: usize = 256 << 10;
const UNIT_BYTES: usize = HEADER.len() + DATA_BYTES;
/// The peer asks for so many units.
const ASK: u8 = b'a';
const UNITS: usize = 32;
/// The peer asks for the end of the connection, and for that of the reactor.
const CLOSE: u8 = b'c';
const STOP: u8 = b's';

/// A receive buffer that is smaller than the first send.
const SMALL_BYTES: usize = 16 << 10;

fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// The stream that a peer sees, without end.
fn expected() -> impl Iterator<Item = u8> {
    (0..).map(|at| match at % UNIT_BYTES {
        header if header < HEADER.len() => HEADER[header],
        data => pattern(data - HEADER.len()),
    })
}

/// Sends units: a header of its own and data out of a pooled buffer, always the same.
struct Sender {
    pool: Pool,
    data: Option<SharedBuffer>,
    asked: usize,
    sent: usize,
    counts: CountsView,
    /// The counts when a unit was asked for.
    counted: Vec<Counts>,
    /// Bytes of the pool that are out when the connection was closed and the sender has let go of its buffer.
    kept: usize,
    /// Tells the peer then.
    over: mpsc::Sender<()>,
}

/// What a peer knows of the sender.
struct Watched {
    waker: Waker,
    pool: Pool,
    over: mpsc::Receiver<()>,
}

impl Handler for Sender {
    fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}

    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
        for byte in bytes {
            match *byte {
                ASK => {
                    self.counted.push(self.counts.counts());
                    self.asked += UNITS * UNIT_BYTES;
                    cx.send(id);
                }
                end => {
                    if end == CLOSE {
                        cx.close(id);
                    } else {
                        cx.stop();
                    }
                    self.data = None;
                    self.kept = self.pool.used_bytes();
                    self.over.send(()).unwrap();
                }
            }
        }
        bytes.len()
    }

    fn gather<'a>(&'a self, _: ConnectionId, list: &mut Gather<'a>) {
        let Some(data) = &self.data else { return };
        let mut at = self.sent;
        while at < self.asked {
            let within = at % UNIT_BYTES;
            let room = match within.checked_sub(HEADER.len()) {
                None => list.push(&HEADER[within..]),
                Some(start) => list.push_shared(data, start),
            };
            if !room {
                return;
            }
            at += if within < HEADER.len() { HEADER.len() - within } else { UNIT_BYTES - within };
        }
    }

    fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, len: usize) {
        self.sent += len;
    }

    fn closed(&mut self, cx: &mut Context<'_>, _: ConnectionId, _: Closed) {
        cx.stop();
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        if self.pool.used_bytes() == 0 {
            cx.stop();
        }
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(done.success(), "ip {arguments}");
}

/// Gives this thread a network of its own, which ends with it.
fn leave_network() {
    // SAFETY: no table of descriptors is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
}

/// Runs a reactor that lends in one network and `peer` in another; gives what the sender knows in the end, and its counts.
fn run(peer: impl FnOnce(&Watched) + Send) -> Option<(Sender, Counts)> {
    let config = LoopConfig { io: IoBackend::Uring, zero_copy_bytes: 64 << 20, ..LoopConfig::default() };
    if !rustix::process::geteuid().is_root() || Reactor::with(config).is_err() {
        eprintln!("not tested: it needs root, for network namespaces, and io_uring");
        return None;
    }
    let (far_ready, far_thread) = mpsc::channel();
    let (listening, listens) = mpsc::channel();
    thread::scope(|scope| {
        let far = scope.spawn(move || {
            leave_network();
            far_ready.send(gettid()).unwrap();
            let watched = listens.recv().unwrap();
            ip("addr add 192.0.2.2/24 dev far");
            ip("link set far up");
            peer(&watched);
        });
        let near = scope.spawn(move || {
            leave_network();
            let far = far_thread.recv().unwrap().as_raw_nonzero();
            ip(&format!("link add near type veth peer name far netns {far}"));
            ip("addr add 192.0.2.1/24 dev near");
            ip("link set near up");
            let mut reactor = Reactor::with(config).unwrap();
            reactor.listen(ADDRESS.parse().unwrap()).unwrap();
            let pool = Pool::new(1 << 20);
            let mut data = pool.take(DATA_BYTES).unwrap();
            data.iter_mut().zip(0..).for_each(|(byte, at)| *byte = pattern(at));
            let data = Some(data.share());
            let counts = reactor.counts();
            let (over, watched_over) = mpsc::channel();
            listening.send(Watched { waker: reactor.waker(), pool: pool.clone(), over: watched_over }).unwrap();
            let mut sender = Sender { pool, data, asked: 0, sent: 0, counts, counted: Vec::new(), kept: 0, over };
            reactor.run(&mut sender).unwrap();
            let counts = sender.counts.counts();
            (sender, counts)
        });
        far.join().unwrap();
        Some(near.join().unwrap())
    })
}

/// A socket whose receive buffer has `receive_bytes`, if not the usual.
fn connect_far(receive_bytes: Option<usize>) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    if let Some(bytes) = receive_bytes {
        sockopt::set_socket_recv_buffer_size(&socket, bytes).unwrap();
    }
    connect(&socket, &ADDRESS.parse::<SocketAddr>().unwrap()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

/// Waits until the sender has filled the socket, which it cannot be seen to have done: when the first bytes are there, the send that
/// brought them has lent more than such a small receive buffer takes.
fn ask_and_peek(stream: &mut TcpStream) {
    stream.write_all(&[ASK]).unwrap();
    stream.peek(&mut [0]).unwrap();
}

/// Reads to the end what the socket of the sender had taken.
fn read_the_rest(mut stream: TcpStream) {
    // As the receive buffer was, it would take long.
    sockopt::set_socket_recv_buffer_size(&stream, 1 << 20).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() > SMALL_BYTES && bytes.iter().copied().eq(expected().take(bytes.len())), "{}", bytes.len());
}

#[test]
fn bytes_arrive_and_copies_end_the_lending() {
    let peer = |_: &Watched| {
        let mut stream = connect_far(None);
        let mut expected = expected();
        for _ in 0..3 {
            stream.write_all(&[ASK]).unwrap();
            let mut bytes = vec![0; UNITS * UNIT_BYTES];
            stream.read_exact(&mut bytes).unwrap();
            assert!(bytes.iter().copied().eq(expected.by_ref().take(bytes.len())));
        }
    };
    let Some((sender, counts)) = run(peer) else { return };
    assert!(counts.copied_sends > 0 || counts.zero_copy_bytes > 0, "{counts:?}");
    if counts.zero_copy_bytes == 0 {
        // The system copied, as it does for a veth pair today. That was known before the second run of units.
        assert!(sender.counted[1].copied_sends >= 4, "{counts:?}");
        assert_eq!(sender.counted[1].copied_sends, counts.copied_sends);
    }
}

#[test]
fn buffers_outlive_their_connection_until_the_system_lets_go() {
    let peer = |watched: &Watched| {
        let mut stream = connect_far(Some(SMALL_BYTES));
        ask_and_peek(&mut stream);
        stream.write_all(&[CLOSE]).unwrap();
        watched.over.recv().unwrap();
        read_the_rest(stream);
        // The reactor stops when nothing is lent any more.
        let begin = Instant::now();
        while watched.pool.used_bytes() > 0 {
            assert!(begin.elapsed() < Duration::from_mins(1), "{} bytes are still lent", watched.pool.used_bytes());
            thread::yield_now();
        }
        watched.waker.wake();
    };
    let Some((sender, _)) = run(peer) else { return };
    assert_eq!((sender.kept, sender.pool.used_bytes()), (DATA_BYTES, 0));
}

#[test]
fn a_reactor_that_is_dropped_gives_up_what_is_lent() {
    let peer = |watched: &Watched| {
        let mut stream = connect_far(Some(SMALL_BYTES));
        ask_and_peek(&mut stream);
        stream.write_all(&[STOP]).unwrap();
        watched.over.recv().unwrap();
        read_the_rest(stream);
    };
    let Some((sender, _)) = run(peer) else { return };
    assert_eq!((sender.kept, sender.pool.used_bytes()), (DATA_BYTES, DATA_BYTES), "never to be used again");
}
