//! Why an export cannot be used.

use std::io;

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
    /// The server insists on TLS.
    #[error("the server insists on TLS, which is not supported{0}")]
    Tls(Said),
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

/// The server's own words, if it has any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said(pub(crate) String);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {:?}", self.0) }
    }
}
