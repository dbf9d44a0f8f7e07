//! Sends that a full socket cuts: in headers, in what lies in files, and behind it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use lunette_buffer::FileSlice;
use lunette_reactor::{Closed, ConnectionId, Context, Gather, Handler, ListenerId};

use super::{connect, pattern, reactor};

const HEADER_LEN: usize = 48;
const FILE_LEN: usize = 40_000;
const TAIL_LEN: usize = 7;
const MESSAGE_LEN: usize = HEADER_LEN + FILE_LEN + TAIL_LEN;
const MESSAGES: usize = 600;

/// Sends messages whose middle lies in a file, from wherever the last send ended.
struct Sender {
    header: [u8; HEADER_LEN],
    file: Arc<File>,
    tail: [u8; TAIL_LEN],
    sent: usize,
    /// Sends that ended in the header, the file and the tail.
    cuts: [usize; 3],
    /// Told of the first that ended in the file: from then on the peer reads.
    cut: Option<mpsc::Sender<()>>,
}

impl Sender {
    fn new(cut: mpsc::Sender<()>) -> Self {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&pattern(FILE_LEN)).unwrap();
        Self { header: [1; HEADER_LEN], file: file.into(), tail: [2; TAIL_LEN], sent: 0, cuts: [0; 3], cut: Some(cut) }
    }

    fn message() -> Vec<u8> {
        [&[1; HEADER_LEN][..], &pattern(FILE_LEN), &[2; TAIL_LEN]].concat()
    }
}

impl Handler for Sender {
    fn accepted(&mut self, cx: &mut Context<'_>, _: ListenerId, id: ConnectionId, _: SocketAddr, _: SocketAddr) {
        cx.send(id);
    }

    fn received(&mut self, _: &mut Context<'_>, _: ConnectionId, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn gather<'a>(&'a self, _: ConnectionId, list: &mut Gather<'a>) {
        let mut sent = self.sent % MESSAGE_LEN;
        let left = MESSAGES * MESSAGE_LEN - self.sent;
        while left > list.len_bytes() {
            let header = &self.header[sent.min(HEADER_LEN)..];
            let of_file = sent.saturating_sub(HEADER_LEN).min(FILE_LEN);
            let tail = &self.tail[sent.saturating_sub(HEADER_LEN + FILE_LEN)..];
            let goes_on = list.push(header);
            let goes_on = goes_on
                && (of_file == FILE_LEN
                    || list.push_file(&FileSlice::new(Arc::clone(&self.file), of_file as u64, FILE_LEN - of_file)));
            if !goes_on || !list.push(tail) {
                return;
            }
            sent = 0;
        }
    }

    fn sent(&mut self, _: &mut Context<'_>, _: ConnectionId, len: usize) {
        self.sent += len;
        match self.sent % MESSAGE_LEN {
            0 => {}
            1..HEADER_LEN => self.cuts[0] += 1,
            at if at < HEADER_LEN + FILE_LEN => {
                self.cuts[1] += 1;
                self.cut = None;
            }
            _ => self.cuts[2] += 1,
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, _: ConnectionId, why: Closed) {
        assert!(matches!(why, Closed::PeerClosed), "{why:?}");
        cx.stop();
    }
}

#[test]
fn what_lies_in_files_goes_on_where_a_full_socket_cut_it() {
    let mut reactor = reactor();
    let (_, address) = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let counts = reactor.counts();
    let (cut, first_cut) = mpsc::channel();
    let mut sender = Sender::new(cut);
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, expected) = (connect(address), Sender::message());
            // Ends when the other side is dropped.
            let _ = first_cut.recv();
            for number in 0..MESSAGES {
                let mut message = vec![0; MESSAGE_LEN];
                stream.read_exact(&mut message).unwrap();
                assert!(message == expected, "message {number}");
            }
        });
        reactor.run(&mut sender).unwrap();
    });
    assert_eq!(sender.sent, MESSAGES * MESSAGE_LEN);
    assert_eq!(counts.counts().file_bytes, (MESSAGES * FILE_LEN) as u64);
    assert!(sender.cuts[1] > 0, "{:?}", sender.cuts);
}
