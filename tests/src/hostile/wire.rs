//! A connection for right and wrong PDUs, on which no call waits longer than its limit.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::{BHS_LEN, Bhs, DIGEST_LEN, TargetPdu, pad_len};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::initiator::Pdu;

/// The longest time to connect: the backlog of a busy server may be full for a moment.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The most bytes that one read takes.
const READ_LEN: usize = 64 << 10;

/// A header as received, and its data segment.
pub(super) type Frame = (Bhs, Vec<u8>);

/// The result of waiting for a PDU.
pub(super) enum Received<P = Pdu> {
    Pdu(P),
    /// The time is over.
    Nothing,
    /// The other side has closed, or sends bytes that are not a PDU.
    End,
}

/// The amount of data that the other side has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// Part of the bytes, in the time allowed.
    Part,
    /// The connection is gone.
    Lost,
}

/// A socket with the negotiated digests.
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

    /// The bytes of a PDU in the stream.
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

    /// The next PDU of a target, if it arrives within `limit`.
    pub(super) fn receive(&mut self, limit: Duration) -> Received {
        match self.receive_frame(limit) {
            Received::Pdu((bhs, data)) => {
                TargetPdu::parse(&bhs).map_or(Received::End, |pdu| Received::Pdu((pdu, data)))
            }
            Received::Nothing => Received::Nothing,
            Received::End => Received::End,
        }
    }

    /// The next PDU of either side, unparsed.
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

    /// Takes the first PDU out of the received bytes, if it is complete. Digests are not verified.
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

    /// Waits for the socket. False when the time is over.
    fn wait_for(&self, what: PollFlags, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("limits are short");
        let mut sockets = [PollFd::new(&self.stream, what)];
        !left.is_zero() && matches!(poll(&mut sockets, Some(&timeout)), Ok(1))
    }

    /// The address of this side.
    pub(super) fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket has an address")
    }

    /// Shuts down one or both directions.
    pub(super) fn shut_down(&self, how: Shutdown) {
        // This fails when the other side has closed first.
        let _ = self.stream.shutdown(how);
    }

    /// Makes closing send a reset.
    pub(super) fn reset_on_close(&self) {
        // This fails only for a socket that is gone already.
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }
}
