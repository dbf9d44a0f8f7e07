//! The script's end of a connection. It never blocks, for it is the loop's own thread that is here.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// When to give up. No count depends on it.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

pub(crate) struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
    /// Kept, for new memory for each batch would take longer than all else.
    sent: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_nonblocking(true).expect("a TCP socket");
        Self { stream, received: vec![0; 1 << 20], sent: Vec::new() }
    }

    /// The bytes that lie ready, or a part of them; empty when there are none.
    pub(crate) fn receive(&mut self) -> &[u8] {
        let len = match self.stream.read(&mut self.received) {
            Ok(0) => panic!("the other side has hung up"),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        };
        &self.received[..len]
    }

    /// Sends all at once. Gives how much it was.
    pub(crate) fn send<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>) -> usize {
        self.sent.clear();
        slices.for_each(|slice| self.sent.extend_from_slice(slice));
        self.stream.write_all(&self.sent).expect("a socket has room for a batch");
        self.sent.len()
    }

    /// Waits until `bytes` lie ready at the other end, and nothing has to be on its way.
    pub(crate) fn arrived(&self, bytes: usize) {
        until("a batch arrives as a whole", || self.other_end_has() == bytes);
    }

    /// The bytes that the other end could receive now, as the system shows them to everybody (proc_net_tcp.rst).
    fn other_end_has(&self) -> usize {
        let port =
            |address: io::Result<std::net::SocketAddr>| format!(":{:04X}", address.expect("a TCP socket").port());
        let (local, remote) = (port(self.stream.peer_addr()), port(self.stream.local_addr()));
        let table = fs::read_to_string("/proc/net/tcp").expect("the table of sockets");
        let queued = table.lines().find_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let here = fields.next()?.ends_with(&local) && fields.next()?.ends_with(&remote);
            let (_, received) = fields.nth(1)?.split_once(':')?;
            here.then(|| usize::from_str_radix(received, 16).ok())?
        });
        queued.expect("the other end is of this process")
    }
}

/// Looks until it `is` so.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let give_up = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < give_up, "{what}: not within {LIMIT:?}");
        std::thread::yield_now();
    }
}
