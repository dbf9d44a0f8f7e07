//! A connection as the phases of the protocol use it: one value with a half for each direction.

use std::io::{self, BufReader, IoSlice, Read, Write};

use crate::limited::Limited;
use crate::limits::HANDSHAKE_TIMEOUT;

/// Bytes that are read at a time. Longer payloads go straight to their buffer.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// A connection with both of its directions. Whatever is read ahead belongs to it.
///
/// Time limits are checked whenever a read or write returns; one that waits must return `WouldBlock` or `TimedOut` from
/// time to time, as a socket with a timeout does.
pub struct Stream<R, W> {
    pub(crate) reader: BufReader<Limited<R>>,
    pub(crate) writer: Limited<W>,
}

/// The writing half of a connection.
pub trait Output: Write + Send {
    /// Writes as much as the other end takes without a wait.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when that is nothing, which is also what a writer says that cannot tell; the bytes are then written
    /// by a thread that may wait.
    fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let _ = bytes;
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl<R: Read, W: Output> Stream<R, W> {
    /// A connection that begins. The time for the negotiation runs from now on.
    pub fn new(reader: R, writer: W) -> Self {
        let (mut reader, mut writer) = (Limited::new(reader), Limited::new(writer));
        reader.start(HANDSHAKE_TIMEOUT);
        writer.start(HANDSHAKE_TIMEOUT);
        Self { reader: BufReader::with_capacity(READ_AHEAD_BYTES, reader), writer }
    }
}

/// For tests: whatever is written is taken.
impl Output for &mut Vec<u8> {
    fn write_now(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_vectored(bytes)
    }
}
