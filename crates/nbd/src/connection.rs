//! One connection, from its first byte to its last.

use std::io::{self, BufReader, Read};

use crate::limited::Limited;
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::{Export, Output, SharedIo, handshake, transmission};

/// Bytes that are read at a time. Longer payloads go straight to their buffer.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// The reason why a connection ended before the client left.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The client broke a rule of the protocol, and the connection cannot continue.
    #[error("the client broke the protocol: {0}")]
    Protocol(&'static str),
    /// The client asks for an export that does not exist, by an option that has no error reply.
    #[error("the client asks for the export {0:?}, which is not served")]
    UnknownExport(String),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Serves `export` to the client at the other end of `reader` and `writer`, until it leaves or exceeds one of the time
/// [`limits`](crate::limits). Time limits are checked whenever a read or write returns; one that waits must return
/// `WouldBlock` or `TimedOut` from time to time, as a socket with a timeout does.
///
/// # Errors
///
/// [`ConnectionError`]; the caller then closes the connection.
pub fn serve(reader: impl Read, writer: impl Output, export: &Export, io: &SharedIo) -> Result<(), ConnectionError> {
    let (mut reader, mut writer) = (Limited::new(reader), Limited::new(writer));
    reader.start(HANDSHAKE_TIMEOUT);
    writer.start(HANDSHAKE_TIMEOUT);
    let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, reader);
    let Some(agreed) = handshake::negotiate(&mut reader, &mut writer, export)? else { return Ok(()) };
    transmission::run(&mut reader, writer, export, io, agreed)
}
