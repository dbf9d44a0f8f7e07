//! Datagrams through the loopback interface with and without offloads, beside the same bytes through TCP:
//! `cargo bench -p lunette-reactor --bench datagrams`, with `-- WORD` the lines that have the word, such as `Off`.
//!
//! The sender and the receiver are event loops of a thread each. The receiver says now and then what it has received,
//! and the sender has no more than a window under way, so nothing is lost. CPU time is that of both threads, the
//! sender's first.

#![expect(clippy::cast_precision_loss, reason = "figures of three digits")]

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use lunette_reactor::{
    Closed, ConnectionId, Context, DatagramConfig, DatagramFailure, DatagramList, DatagramPath, DatagramSocketId,
    Datagrams, Gather, Handler, IoBackend, ListenerId, Offloads, Reactor, TcpOptions, connect,
};
use rustix::time::{ClockId, clock_gettime};

const HEADER_LEN: usize = 128;
const WINDOW_BYTES: usize = 1 << 20;
/// Acknowledgements in a window. With one for each datagram the threads would measure how fast they wake each other.
const ACKNOWLEDGEMENTS: usize = 4;
const BUFFER_BYTES: u32 = 4 << 20;
const TIME: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);

/// One end. `ends` is the sender's alone.
struct End {
    header: [u8; HEADER_LEN],
    payload: Vec<u8>,
    path: Option<DatagramPath>,
    sent: usize,
    /// Datagrams that the receiver has said that it has.
    acknowledged: usize,
    received_datagrams: usize,
    received_bytes: usize,
    acknowledgement: [u8; 8],
    ends: Option<Instant>,
}

impl End {
    fn new(len: usize, path: Option<DatagramPath>, ends: Option<Instant>) -> Self {
        Self {
            header: [1; HEADER_LEN],
            payload: vec![2; len - HEADER_LEN],
            path,
            sent: 0,
            acknowledged: 0,
            received_datagrams: 0,
            received_bytes: 0,
            acknowledgement: [0; 8],
            ends,
        }
    }

    fn len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }
}

impl Handler for End {
    fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}

    fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
        self.received_bytes += bytes.len();
        bytes.len()
    }

    fn gather<'a>(&'a self, _: ConnectionId, list: &mut Gather<'a>) {
        let at = self.sent % self.len();
        list.push(&self.header[at.min(HEADER_LEN)..]);
        list.push(&self.payload[at.saturating_sub(HEADER_LEN)..]);
        while list.push(&self.header) && list.push(&self.payload) {}
    }

    fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, len: usize) {
        self.sent += len;
    }

    fn closed(&mut self, cx: &mut Context<'_>, _: ConnectionId, _: Closed) {
        cx.stop();
    }

    fn datagrams(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, datagrams: Datagrams<'_>) {
        for datagram in datagrams {
            if self.ends.is_some() {
                let count = datagram.bytes.first_chunk().map_or(0, |count| u64::from_ne_bytes(*count));
                self.acknowledged = count as usize;
            } else {
                self.received_datagrams += 1;
                self.received_bytes += datagram.bytes.len();
                self.path = Some(*datagram.path);
            }
        }
        cx.send_datagrams(socket);
    }

    fn gather_datagrams<'a>(&'a mut self, _: DatagramSocketId, list: &mut DatagramList<'a>) {
        let Some(path) = self.path else { return };
        let window = WINDOW_BYTES / self.len();
        if self.ends.is_none() {
            if self.received_datagrams >= self.acknowledged + window / ACKNOWLEDGEMENTS {
                self.acknowledged = self.received_datagrams;
                self.acknowledgement = (self.acknowledged as u64).to_ne_bytes();
                assert!(list.push(&path, [&self.acknowledgement[..]]));
            }
            return;
        }
        for _ in self.sent..self.acknowledged + window {
            if !list.push(&path, [&self.header[..], &self.payload]) {
                break;
            }
        }
    }

    fn datagrams_sent(&mut self, _: &mut Context<'_>, _: DatagramSocketId, count: usize) {
        self.sent += count;
    }

    fn datagram_failed(&mut self, _: &mut Context<'_>, _: DatagramSocketId, failure: DatagramFailure) {
        panic!("{failure:?}");
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        cx.stop();
    }

    fn next_timeout(&mut self, _: Instant) -> Option<Instant> {
        self.ends
    }

    fn timeout(&mut self, cx: &mut Context<'_>) {
        cx.stop();
    }
}

/// Runs until it is stopped; gives the CPU time of this thread.
fn run(reactor: &mut Reactor, end: &mut End) -> Duration {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("time is positive");
    let before = now();
    reactor.run(end).expect("the loop runs");
    now().saturating_sub(before)
}

/// Measures the transfer of messages; without offloads, over TCP.
fn measure(io: IoBackend, len: usize, offloads: Option<Offloads>, wanted: &str) -> Result<(), std::io::Error> {
    let name = offloads.map_or("TCP".into(), |offloads| format!("offloads {offloads:?}"));
    let name = format!("{:<9} {len:>5} {name:<13}", io.to_string());
    if !name.contains(wanted) {
        return Ok(());
    }
    let buffers = Some(BUFFER_BYTES);
    let config =
        |offloads| DatagramConfig { offloads, receive_buffer_bytes: buffers, send_buffer_bytes: buffers, only: None };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut receiver = Reactor::with(io)?;
    let mut sender = Reactor::with(io)?;
    let address = match offloads {
        Some(offloads) => receiver.context().bind_udp(any, &config(offloads))?.1,
        None => receiver.listen(any)?.1,
    };
    let waker = receiver.waker();
    let (begin, (sent_cpu, received_cpu, received)) = thread::scope(|scope| {
        let begin = Instant::now();
        let receiver = scope.spawn(move || {
            let mut end = End::new(len, None, None);
            let cpu = run(&mut receiver, &mut end);
            (cpu, end.received_bytes)
        });
        let mut end = End::new(len, Some(DatagramPath::to(address.into())), Some(begin + TIME));
        if let Some(offloads) = offloads {
            let (id, _) = sender.context().connect_udp(address, &config(offloads)).expect("it is bound");
            sender.context().send_datagrams(id);
        } else {
            let stream = connect(address, PATIENCE, &TcpOptions::default()).expect("it listens");
            let id = sender.adopt(stream).expect("it is open");
            sender.context().send(id);
        }
        let sent_cpu = run(&mut sender, &mut end);
        drop(sender);
        waker.wake();
        let (received_cpu, received) = receiver.join().expect("it does not panic");
        (begin, (sent_cpu, received_cpu, received))
    });
    let seconds = begin.elapsed().as_secs_f64();
    let datagrams = received as f64 / len as f64;
    let ns = |cpu: Duration| cpu.as_nanos() as f64 / datagrams;
    println!(
        "{name} {:>6.0} MB/s {:>9.0}/s {:>6.0} + {:>5.0} ns of CPU each",
        received as f64 / 1e6 / seconds,
        datagrams / seconds,
        ns(sent_cpu),
        ns(received_cpu),
    );
    Ok(())
}

fn main() {
    // Cargo adds an option of its own.
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    for io in [IoBackend::Epoll, IoBackend::Uring] {
        for len in [4224, 1280] {
            for offloads in [Some(Offloads::On), Some(Offloads::Off), None] {
                if let Err(error) = measure(io, len, offloads, &wanted) {
                    println!("{io}: {error}");
                }
            }
        }
    }
}
