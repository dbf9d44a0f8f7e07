//! The purpose of bytes that are due on a connection.

use lunette_pdu::{NopOut, ScsiCommand, TextRequest};

use super::event::TaskTag;

/// The purpose of the data segment of the header that has just been read.
pub(crate) enum Expect {
    /// Nothing; it is dropped.
    Nothing,
    /// The keys of a text request.
    Text(TextRequest),
    /// An echo.
    Ping(NopOut),
    /// Bytes `offset..offset + len` of a task.
    Data { task: TaskTag, offset: u32, len: u32 },
    /// The bytes cannot be taken now. They will be asked for again.
    Lost { task: TaskTag, offset: u32, len: u32 },
    /// A PDU that is kept as it came: the connection comes to rest.
    Kept,
    /// Immediate data of a command that does not count before its data is verified.
    Command(ScsiCommand),
}
