//! One connection, from its first byte to its last.

use std::io::{self, Read};

use lunette_tls::ChannelError;

use crate::handshake::{self, End};
use crate::stream::{Output, Stream};
use crate::tls::ServerTls;
use crate::{Client, Exports, SharedIo, transmission};

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
    /// The address of the client has begun too many handshakes of TLS.
    #[error("the address of the client begins too many handshakes of TLS")]
    TooManyHandshakes,
    /// TLS has failed.
    #[error(transparent)]
    Tls(#[from] ChannelError),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Serves one of `exports` to the `client` at the other end of `stream`, until it leaves or exceeds one of the time
/// [`limits`](crate::limits). With `tls` nothing is said of exports before the client speaks TLS.
///
/// # Errors
///
/// [`ConnectionError`]; the caller then closes the connection.
pub fn serve(
    stream: Stream<impl Read, impl Output>,
    exports: &dyn Exports,
    client: Client,
    io: &SharedIo,
    tls: Option<&ServerTls>,
) -> Result<(), ConnectionError> {
    serve_told(stream, exports, client, io, tls, || ())
}

/// [`serve`], which calls `agreed` when the negotiation has passed.
pub(crate) fn serve_told(
    mut stream: Stream<impl Read, impl Output>,
    exports: &dyn Exports,
    client: Client,
    io: &SharedIo,
    tls: Option<&ServerTls>,
    agreed: impl FnOnce(),
) -> Result<(), ConnectionError> {
    match handshake::negotiate(&mut stream, exports, client, tls)? {
        End::Left => Ok(()),
        End::Agreed(export, terms) => {
            agreed();
            transmission::run(stream, &export, io, terms)
        }
        End::Tls(tls, mut negotiation) => {
            let (mut stream, certificate) = tls.accept(stream)?;
            negotiation.prove(certificate);
            match negotiation.go_on(&mut stream)? {
                // STARTTLS is refused in TLS.
                End::Left | End::Tls(..) => Ok(()),
                End::Agreed(export, terms) => {
                    agreed();
                    transmission::run(stream, &export, io, terms)
                }
            }
        }
    }
}
