//! Why an export cannot be used.

use std::io;

use lunette_tls::{ChannelError, TlsError};
use rustls::AlertDescription;

use super::limits::{MAX_EXPORT_LEN, MAX_MINIMUM_BLOCK_LEN};

/// Why a connection to an export cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The server cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection failed during the negotiation.
    #[error("the connection failed during the negotiation: {0}")]
    Lost(io::Error),
    /// The server broke a rule of the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The server lacks something that a client needs.
    #[error("the server has no {0}, which is needed")]
    Lacks(&'static str),
    /// The server has no export of that name.
    #[error("the server has no export of that name{0}")]
    Unknown(Said),
    /// The server insists on TLS, which the URI does not ask for.
    #[error("the server insists on TLS; write nbds:// with tls-certificates=DIR{0}")]
    Tls(Said),
    /// The server refuses TLS, without which the URI allows nothing.
    #[error("the server refuses TLS (STARTTLS), and nbds:// never goes on without it{0}")]
    NoTls(Said),
    /// The URI names no certificates.
    #[error("the server cannot be verified: tls-certificates=DIR is missing")]
    NoAuthority,
    /// The name is none that a certificate can have.
    #[error("{0:?} is no name of a server in certificates; write tls-hostname=NAME")]
    Name(String),
    /// The files of certificates and keys cannot be used.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// TLS has failed, in its handshake or right behind it.
    #[error("{}", told(.0))]
    Secure(#[from] ChannelError),
    /// The server refuses the export.
    #[error("the server refuses the export{0}")]
    Refused(Said),
    /// The smallest request of the export is longer than a logical block.
    #[error("blocks of {0} bytes or more cannot be served: a logical block has up to {MAX_MINIMUM_BLOCK_LEN} bytes")]
    BlockLen(u32),
    /// The export has a length that is no length of a disk.
    #[error("the length of {0} bytes is less than a block, or more than {MAX_EXPORT_LEN}")]
    Len(u64),
    /// A writable export can make no write durable.
    #[error("the server can neither flush nor write through (FUA), so no write would be durable; open it read-only")]
    NotDurable,
    /// The export is not the one that was opened.
    #[error("the export is another one than before: its {0}")]
    Changed(&'static str),
    /// A thread, or what one needs, cannot be had.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl OpenError {
    /// The error of a connection that ends before it begins.
    pub(crate) fn lost(error: io::Error) -> Self {
        let kind = error.kind();
        match error.downcast::<ChannelError>() {
            Ok(error) => Self::Secure(error),
            Err(_) if kind == io::ErrorKind::UnexpectedEof => {
                Self::Lost(io::Error::new(kind, "the server has closed it"))
            }
            Err(error) => Self::Lost(error),
        }
    }
}

/// An error of TLS, with alerts by their names.
fn told(error: &ChannelError) -> String {
    match error {
        ChannelError::Alert(alert) => format!("the server ends TLS: {:?}", AlertDescription::from(*alert)),
        error => error.to_string(),
    }
}

/// The server's own words, if it has any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said(pub(crate) String);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {:?}", self.0) }
    }
}
