//! The state that a server leaves to the process that takes its place: a versioned value, and descriptors.
//!
//! Layer 0: over no other crate; under device, iscsi-target, lunette, session.
//!
//! A *handover* replaces the process of a server while its sessions go on. The *predecessor* comes to a standstill and
//! sends its successor a [`Handover`] with the descriptors of its sockets and disks. The *successor* answers
//! [`Taken`](Message::Taken) once it can go on. Before that word the predecessor owns everything, after it the
//! successor does: [`channel`] says how both know.
//!
//! This crate has the value as plain data, and the way to send it. The crates that own a state translate it from and to
//! these types, each in a file named `handover.rs`.
//!
//! # Versions
//!
//! The value is MessagePack with names. A reader ignores names that it does not know, and takes the default for those
//! that are missing. So two releases understand each other as long as a new field may be missing. A change that readers
//! must not ignore raises [`FORMAT`]. The reader of another format refuses the value, and the predecessor goes on.
//!
//! ```
//! use lunette_handover::{Handover, Session};
//!
//! let session = Session { initiator_name: "iqn.2026-11.example:host".into(), tsih: 7, ..Session::default() };
//! let handover = Handover { sessions: vec![session], ..Handover::default() };
//! assert_eq!(Handover::decode(&handover.encode()?)?, handover);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod channel;
mod session;
mod unit;

use serde::{Deserialize, Serialize};
pub use serde_bytes::ByteBuf;

pub use channel::{Channel, ChannelError, Message};
pub use session::{
    Answer, Connection, CopyEnd, CopyResult, Nexus, Parameters, Residual, SeenUnit, Sent, Session, Window,
};
pub use unit::{Initiator, Memory, MemoryDisk, Target, Token, Unit};

/// The format that this release writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// All that a server leaves to its successor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handover {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// The version of the writer, for people.
    pub version: String,
    /// The sessions in their full feature phase, each with its connections.
    pub sessions: Vec<Session>,
    /// The targets.
    pub targets: Vec<Target>,
    /// The logical units of all targets.
    pub units: Vec<Unit>,
    /// The places of the descriptors of sockets that listen on TCP.
    pub listeners: Vec<u32>,
    /// The places of the descriptors of Unix sockets that listen.
    pub unix_listeners: Vec<u32>,
    /// The places of the descriptors of open files and block devices, with their locks.
    pub files: Vec<u32>,
    /// The disks in memory, if there are any.
    pub memory: Option<Memory>,
    /// The names of objects that the server is without already, because of mistakes in its configuration.
    pub left_out: Vec<String>,
}

impl Default for Handover {
    fn default() -> Self {
        Self {
            format: FORMAT,
            version: String::new(),
            sessions: Vec::new(),
            targets: Vec::new(),
            units: Vec::new(),
            listeners: Vec::new(),
            unix_listeners: Vec::new(),
            files: Vec::new(),
            memory: None,
            left_out: Vec::new(),
        }
    }
}

/// Why a value cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The value cannot be encoded.
    #[error("the state cannot be written: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    /// The bytes are no such value.
    #[error("the state of the predecessor cannot be read: {0}")]
    Decode(#[from] rmp_serde::decode::Error),
    /// The writer has another format.
    #[error(
        "the state of the predecessor has format {theirs}, and this release reads format {FORMAT}; restart the server instead"
    )]
    OtherFormat {
        /// The format of the writer.
        theirs: u32,
    },
}

/// The part of every value that all formats have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope {
    format: u32,
}

impl Handover {
    /// The value as bytes.
    ///
    /// # Errors
    ///
    /// When memory or a length is beyond what the encoding can write.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        Ok(rmp_serde::to_vec_named(self)?)
    }

    /// The value of these bytes.
    ///
    /// # Errors
    ///
    /// When the bytes are no value, or one of another format.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let Envelope { format: theirs } = rmp_serde::from_slice(bytes)?;
        if theirs != FORMAT {
            return Err(FormatError::OtherFormat { theirs });
        }
        Ok(rmp_serde::from_slice(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later release, with a name that this one does not know and without one that it knows.
    #[derive(Serialize)]
    struct Later {
        format: u32,
        sessions: Vec<LaterSession>,
        weather: String,
    }

    #[derive(Serialize)]
    struct LaterSession {
        tsih: u16,
        mood: Vec<u8>,
    }

    fn later(format: u32) -> Vec<u8> {
        let sessions = vec![LaterSession { tsih: 9, mood: vec![1, 2] }];
        rmp_serde::to_vec_named(&Later { format, sessions, weather: "fine".into() }).unwrap()
    }

    #[test]
    fn names_may_come_and_go() {
        let read = Handover::decode(&later(FORMAT)).unwrap();
        assert_eq!(read.sessions, [Session { tsih: 9, ..Session::default() }]);
        assert!(read.units.is_empty());
    }

    #[test]
    fn another_format_is_refused() {
        for format in [0, FORMAT + 1] {
            let refused = Handover::decode(&later(format)).unwrap_err();
            assert!(matches!(refused, FormatError::OtherFormat { theirs } if theirs == format));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b""[..], b"\xc1", &[0xff; 40], &later(FORMAT)[..20]] {
            assert!(matches!(Handover::decode(bytes), Err(FormatError::Decode(_))));
        }
    }
}
