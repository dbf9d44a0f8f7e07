//! Scripted initiators and targets, for tests that need a peer which does what the test says.
//!
//! Layer 1: over crc32c, pdu, scsi; under no other crate.
//!
//! Other crates have this one as a dev-dependency only. It knows the bytes of the protocol and none of its state
//! machines, so their mistakes cannot hide in it.
//!
//! * [`Format`] turns a header and its segments into the bytes of a PDU, and [`Frame`] is a PDU that was cut from a
//!   stream.
//! * [`requests`] builds the PDUs of an initiator with a sensible value in every field, and [`Numbers`] those of a
//!   target. A test changes the fields that it is about: `ScsiCommand { read: true, ..requests::command(7) }`. So a new
//!   field of a PDU has one place.
//! * [`ScriptedInitiator`] is a blocking connection to a target: it logs in, numbers its requests, answers R2Ts and
//!   pings, and keeps what it receives.
//! * [`ScriptedTarget`] is a correct target with one small disk, whose [`Script`] may change what it answers. It is a
//!   machine without a socket ([`Connection::answer`]) and a listener ([`serve`]).
//! * [`Relay`] passes bytes between the two, and can hold them up, damage them and cut their connections.
//!
//! Peers that run inside a state machine's test, with no socket, use the first two.
//!
//! What goes wrong in here is a fault of the test or of what it tests, so it panics.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "every io::Error here is what the connection said")]

mod frame;
mod initiator;
mod pattern;
mod relay;
pub mod requests;
mod responses;
mod target;

use std::time::Duration;

pub use frame::{Format, Frame, keys, read_frame};
pub use initiator::{Outcome, Pdu, Port, ScriptedInitiator, Sense, cdb_10};
pub use pattern::{Dice, blocks, pattern};
pub use relay::Relay;
pub use responses::{Numbers, sense_segment, stat_sn_of};
pub use target::{Answer, Connection, DISK_LEN, LoginAnswer, PduBytes, Script, ScriptedTarget, serve};

/// The time after which a test gives up. No test passes because of it.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The name of the target of most tests.
pub const TARGET: &str = "iqn.2026-11.org.example:disk";

/// The block length of all disks of tests, in bytes.
pub const BLOCK_LEN: usize = 512;
