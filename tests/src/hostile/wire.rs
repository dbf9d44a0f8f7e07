//! A connection for right and wrong PDUs, on which no call waits longer than its limit.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lunette_pdu::{BHS_LEN, TargetPdu};
use lunette_testkit::{Format, Frame, Pdu};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest time to connect: the backlog of a busy server may be full for a moment.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The most bytes that one read takes.
const READ_LEN: usize = 64 << 10;

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
    pub(super) format: Format,
}

impl Wire {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(&address, CONNECT_LIMIT)?)
    }

    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Vec::new(), format: Format::PLAIN })
    }

    /// The bytes of a PDU in the stream.
    pub(super) fn encode(&self, header: &[u8; BHS_LEN], data: &[u8]) -> Vec<u8> {
        self.format.encode(header, &[], data)
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
            Received::Pdu(frame) => {
                TargetPdu::parse(&frame.bhs).map_or(Received::End, |pdu| Received::Pdu((pdu, frame.data)))
            }
            Received::Nothing => Received::Nothing,
            Received::End => Received::End,
        }
    }

    /// The next PDU of either side, unparsed.
    pub(super) fn receive_frame(&mut self, limit: Duration) -> Received<Frame> {
        let until = Instant::now() + limit;
        loop {
            // Digests are not verified.
            if let Some(frame) = self.format.take(&mut self.input) {
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
