//! One connection, from its first byte to its last.

use std::io::{self, Read};

use lunette_tls::ChannelError;

use crate::handshake::{self, End};
use crate::stream::{Output, Stream};
use crate::tls::ServerTls;
use crate::{Export, SharedIo, transmission};

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
    /// The client asks for an export without TLS, which the server insists on.
    #[error("the client asks for an export without TLS, which this server demands")]
    WithoutTls,
    /// TLS has failed.
    #[error(transparent)]
    Tls(#[from] ChannelError),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Serves `export` to the client at the other end of `stream`, until it leaves or exceeds one of the time
/// [`limits`](crate::limits). With `tls` nothing is said of the export before the client speaks TLS.
///
/// # Errors
///
/// [`ConnectionError`]; the caller then closes the connection.
pub fn serve(
    mut stream: Stream<impl Read, impl Output>,
    export: &Export,
    io: &SharedIo,
    tls: Option<&ServerTls>,
) -> Result<(), ConnectionError> {
    match handshake::negotiate(&mut stream, export, tls)? {
        End::Left => Ok(()),
        End::Agreed(agreed) => transmission::run(stream, export, io, agreed),
        End::Tls(tls, negotiation) => {
            let mut stream = tls.accept(stream)?;
            match negotiation.go_on(&mut stream)? {
                // STARTTLS is refused in TLS.
                End::Left | End::Tls(..) => Ok(()),
                End::Agreed(agreed) => transmission::run(stream, export, io, agreed),
            }
        }
    }
}
