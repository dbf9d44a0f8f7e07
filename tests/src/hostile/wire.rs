//! A connection on which PDUs go out and come in, right or wrong, and no call waits longer than it is told.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::{BHS_LEN, Bhs, DIGEST_LEN, TargetPdu, pad_len};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::initiator::Pdu;

/// For a connection to come about: the backlog of a busy server may be full for a moment.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Bytes that one read takes.
const READ_LEN: usize = 64 << 10;

/// A header as it came, and its data segment.
pub(super) type Frame = (Bhs, Vec<u8>);

/// What a wait for a PDU ends with.
pub(super) enum Received<P = Pdu> {
    Pdu(P),
    /// Time is over.
    Nothing,
    /// The other side has closed, or sends what is no PDU.
    End,
}

/// How much of some bytes the other side has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// It took no more in the time that there was.
    Part,
    /// The connection is gone.
    Lost,
}

/// A socket with the digests that were agreed on.
pub(super) struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
}

impl Wire {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(&address, CONNECT_LIMIT)?)
    }

    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Vec::new(), header_digest: false, data_digest: false })
    }

    /// A PDU as it stands in the stream.
    pub(super) fn encode(&self, header: &[u8; BHS_LEN], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        if self.header_digest {
            bytes.extend(to_wire(crc32c(header)));
        }
        if !data.is_empty() {
            let start = bytes.len();
            bytes.extend_from_slice(data);
            bytes.resize(bytes.len() + pad_len(data.len()), 0);
            if self.data_digest {
                let digest = to_wire(crc32c(&bytes[start..]));
                bytes.extend(digest);
            }
        }
        bytes
    }

    pub(super) fn send(&mut self, mut bytes: &[u8], limit: Duration) -> Sent {
        let until = Instant::now() + limit;
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.wait_for(PollFlags::OUT, until) {
                        return Sent::Part;
                    }
                }
                Err(_) => return Sent::Lost,
            }
        }
        Sent::All
    }

    /// The next PDU of a target, when it comes within `limit`.
    pub(super) fn receive(&mut self, limit: Duration) -> Received {
        match self.receive_frame(limit) {
            Received::Pdu((bhs, data)) => {
                TargetPdu::parse(&bhs).map_or(Received::End, |pdu| Received::Pdu((pdu, data)))
            }
            Received::Nothing => Received::Nothing,
            Received::End => Received::End,
        }
    }

    /// The next PDU of any side, not looked into.
    pub(super) fn receive_frame(&mut self, limit: Duration) -> Received<Frame> {
        let until = Instant::now() + limit;
        loop {
            if let Some(frame) = self.take_frame() {
                return Received::Pdu(frame);
            }
            match self.read_some() {
                Ok(0) => return Received::End,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.wait_for(PollFlags::IN, until) {
                        return Received::Nothing;
                    }
                }
                Err(_) => return Received::End,
            }
        }
    }

    fn read_some(&mut self) -> io::Result<usize> {
        let filled = self.input.len();
        self.input.resize(filled + READ_LEN, 0);
        let read = self.stream.read(&mut self.input[filled..]);
        self.input.truncate(filled + read.as_ref().copied().unwrap_or(0));
        read
    }

    /// The first PDU of what was received, if all of it is there. Digests are not looked at.
    fn take_frame(&mut self) -> Option<Frame> {
        let bhs = Bhs::from(*self.input.first_chunk::<BHS_LEN>()?);
        let digest_len = |on: bool| if on { DIGEST_LEN } else { 0 };
        let len = bhs.data_segment_len();
        let start = BHS_LEN + bhs.ahs_len() + digest_len(self.header_digest);
        let end = start + len + pad_len(len) + digest_len(self.data_digest && len > 0);
        if self.input.len() < end {
            return None;
        }
        let data = self.input[start..start + len].to_vec();
        self.input.drain(..end);
        Some((bhs, data))
    }

    /// False when the time is over.
    fn wait_for(&self, what: PollFlags, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("limits are short");
        let mut sockets = [PollFd::new(&self.stream, what)];
        !left.is_zero() && matches!(poll(&mut sockets, Some(&timeout)), Ok(1))
    }

    /// Where this side is.
    pub(super) fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket has an address")
    }

    /// Ends one or both directions.
    pub(super) fn shut_down(&self, how: Shutdown) {
        // The other side may have been quicker.
        let _ = self.stream.shutdown(how);
    }

    /// Closing sends a reset instead of an end.
    pub(super) fn reset_on_close(&self) {
        // A socket that is gone already needs none.
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }
}
