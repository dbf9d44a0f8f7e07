//! The iSCSI protocol as state machines, without a socket, a clock, a thread or randomness of its own.
//!
//! Floor 2 of the house, over `pdu` (headers and text keys) and `crc32c` (digests). The floors above bring the sockets, the
//! clock and the random numbers: the target's reactor, a simulator, a benchmark and a unit test all drive the same machine.
//!
//! # The contract: mutate, drain, mutate
//!
//! A [`target::Connection`] takes bytes and gives [`target::Event`]s and bytes:
//!
//! - **bytes in:** [`target::Connection::next_event`] consumes bytes from the front of the slice it is given and stops at
//!   every event, because an event may decide where the following bytes belong. Call it until it returns `None`. If bytes are
//!   left over then, the connection waits for the caller (a buffer, a decision, or room in its outbox):
//!   [`target::Connection::hold`] them and stop reading from the socket while [`target::Connection::wants_input`] is false.
//!   A large data segment can skip that way: [`target::Connection::direct`] is the place it should be received into.
//! - **bytes out:** [`target::Connection::slices`] are ready to be sent, in order; report with
//!   [`target::Connection::sent`].
//! - **time:** [`target::Connection::next_timeout`] says when [`target::Connection::time_has_come`] wants to be called.
//!
//! After each call that changes the machine, drain events and bytes before the next one.
//!
//! The initiator's side, [`initiator::Session`], keeps to the same contract; its driver owns a session with all of its
//! connections.
//!
//! # Many connections, one session
//!
//! What belongs to the session (CmdSN order and window, its parameters, its name) is in [`target::Session`] and
//! [`initiator::Session`], shared by its connections. What belongs to a connection (StatSN, the PDU stream) is in the
//! connection.

#![forbid(unsafe_code)]

mod chap;
mod entropy;
mod extents;
mod held;
pub mod initiator;
pub mod keys;
pub mod limits;
mod markers;
mod name;
mod outbox;
mod receiver;
pub mod target;
mod time;
mod timers;

pub use chap::{Authentication, Credentials, Secret};
pub use entropy::Entropy;
pub use name::{NameError, check_name};
pub use time::Time;
pub use timers::Timers;
