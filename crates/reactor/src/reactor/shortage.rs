//! A ring whose queues are far too short for what is under way, and whose buffers run out: it is slower, and loses
//! nothing.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;

use lunette_buffer::Pool;

use super::*;
use crate::backend::QueueLens;
use crate::{FileCall, FileRequest, Gather};

/// A send of several connections still fits into the one, and into the other what one call may complete.
const SHORT: QueueLens = QueueLens { submissions: 8, completions: 8 };

/// More than there are buffers, and by far more than fit into a queue.
const CONNECTIONS: usize = 40;

/// More than one buffer of the ring holds, and less than a socket does.
const PRELOADED: usize = 100_000;

/// The whole of what each peer sends.
const STREAM_LEN: usize = 1 << 20;

fn short() -> Option<Reactor> {
    let opened = Reactor::over(|waker, counters| Backend::open_ring(waker, counters, SHORT), Duration::ZERO);
    // The system may forbid rings.
    opened.ok()
}

/// Echoes, and reads from a file whenever it receives.
struct Busy {
    echo: HashMap<ConnectionId, Vec<u8>>,
    pool: Pool,
    file: Arc<File>,
    reads_begun: u64,
    reads_ended: u64,
    open: usize,
}

impl Busy {
    fn new() -> Self {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 4096]).unwrap();
        Self {
            echo: HashMap::new(),
            pool: Pool::new(1 << 28),
            file: file.into(),
            reads_begun: 0,
            reads_ended: 0,
            open: CONNECTIONS,
        }
    }

    fn stop_when_done(&self, cx: &mut Context<'_>) {
        if self.open == 0 && self.reads_ended == self.reads_begun {
            cx.stop();
        }
    }
}

impl Handler for Busy {
    fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, _: ConnectionId, _: SocketAddr, _: SocketAddr) {}

    fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
        self.echo.entry(id).or_default().extend_from_slice(bytes);
        cx.send(id);
        for _ in 0..3 {
            let into = self.pool.take(4096).unwrap();
            let request = FileRequest { file: Arc::clone(&self.file), call: FileCall::Read { offset: 0, into } };
            cx.submit_file(self.reads_begun, request).unwrap();
            self.reads_begun += 1;
        }
        bytes.len()
    }

    fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
        list.push(self.echo.get(&id).map_or(&[], Vec::as_slice));
    }

    fn sent(&mut self, _: &mut Context<'_>, id: ConnectionId, len: usize) {
        self.echo.get_mut(&id).unwrap().drain(..len);
    }

    fn closed(&mut self, cx: &mut Context<'_>, _: ConnectionId, why: Closed) {
        assert!(matches!(why, Closed::PeerClosed), "{why:?}");
        self.open -= 1;
        self.stop_when_done(cx);
    }

    fn file_done(&mut self, cx: &mut Context<'_>, _: u64, request: FileRequest, result: io::Result<usize>) {
        assert_eq!(result.unwrap(), 4096);
        assert!(matches!(request.call, FileCall::Read { into, .. } if into.iter().all(|byte| *byte == 7)));
        self.reads_ended += 1;
        self.stop_when_done(cx);
    }
}

/// The bytes that a peer sends.
fn stream_of(peer: usize) -> Vec<u8> {
    (0..STREAM_LEN).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ peer as u8).collect()
}

/// Sends the stream from where it was left, and gives what comes back.
fn exchange(mut peer: &TcpStream, stream: &[u8], sent: usize) -> Vec<u8> {
    peer.set_nonblocking(false).unwrap();
    // A broken loop does not hang the test for ever.
    peer.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    peer.set_write_timeout(Some(Duration::from_mins(1))).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            peer.write_all(&stream[sent..]).unwrap();
        });
        let mut echoed = vec![0; STREAM_LEN];
        peer.read_exact(&mut echoed).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        echoed
    })
}

#[test]
fn queues_that_overflow_and_buffers_that_run_out_lose_nothing() {
    let Some(mut reactor) = short() else { return };
    let mut busy = Busy::new();
    let (near, far): (Vec<_>, Vec<_>) = (0..CONNECTIONS).map(|_| tests::pair()).unzip();
    // All have sent before the ring looks for the first time.
    let sent: Vec<usize> = far.iter().enumerate().map(|(index, peer)| preload(peer, index)).collect();
    for stream in near {
        reactor.adopt(stream).unwrap();
    }
    thread::scope(|scope| {
        for (index, (peer, sent)) in far.iter().zip(sent).enumerate() {
            scope.spawn(move || {
                let stream = stream_of(index);
                assert!(exchange(peer, &stream, sent) == stream, "connection {index}");
            });
        }
        reactor.run(&mut busy).unwrap();
    });
    assert!(busy.reads_begun > CONNECTIONS as u64);
    assert_eq!(busy.pool.used_bytes(), 0);
}

/// Sends as much as the socket takes; gives how much.
fn preload(mut peer: &TcpStream, index: usize) -> usize {
    peer.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while sent < PRELOADED {
        match peer.write(&stream_of(index)[sent..PRELOADED]) {
            Ok(len) => sent += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    sent
}
