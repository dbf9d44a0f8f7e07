//! One connection, from its first byte to its last.

use std::io::{self, Read};

use crate::stream::{Output, Stream};
use crate::{Export, SharedIo, handshake, transmission};

/// The reason why a connection ended before the client left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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

/// Serves `export` to the client at the other end of `stream`, until it leaves or exceeds one of the time
/// [`limits`](crate::limits).
///
/// # Errors
///
/// [`ConnectionError`]; the caller then closes the connection.
pub fn serve(
    mut stream: Stream<impl Read, impl Output>,
    export: &Export,
    io: &SharedIo,
) -> Result<(), ConnectionError> {
    let Some(agreed) = handshake::negotiate(&mut stream, export)? else { return Ok(()) };
    transmission::run(stream, export, io, agreed)
}
