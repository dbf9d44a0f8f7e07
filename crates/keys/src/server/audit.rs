//! The audit log: one line of JSON for each request, and for each connection that was refused.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;

/// The longest text of a client that an entry quotes, in bytes.
const MAX_QUOTED_BYTES: usize = 256;

/// The record of an event. An entry never holds a secret: it has no field for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// Seconds since 1970.
    pub time: i64,
    /// The client's address.
    pub peer: String,
    /// The name in the client's certificate; absent when the handshake failed.
    pub client: Option<String>,
    /// The operation, as KMIP names it; absent when no request could be read.
    pub operation: Option<String>,
    /// The object.
    pub object: Option<String>,
    /// `Success`, or KMIP's reason of the refusal.
    pub result: String,
    /// The text of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl AuditEntry {
    /// An entry without a request.
    pub(super) fn refused(time: i64, peer: SocketAddr, client: Option<&str>, result: &str, message: &str) -> Self {
        Self {
            time,
            peer: peer.to_string(),
            client: client.map(Into::into),
            operation: None,
            object: None,
            result: result.into(),
            message: Some(quoted(message)),
        }
    }
}

/// A text, cut to what an entry quotes.
pub(super) fn quoted(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_QUOTED_BYTES)].into()
}

/// Where entries are written.
pub struct AuditLog(Box<dyn Write + Send>);

impl AuditLog {
    /// Appends to a file, which is created for its owner alone.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file: File = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self(Box::new(file)))
    }

    /// Writes to anything.
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        Self(Box::new(writer))
    }

    /// Writes a line with one call, so that lines of several writers do not mix.
    ///
    /// # Errors
    ///
    /// The error of the writer.
    pub fn write(&mut self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        self.0.flush()
    }
}
