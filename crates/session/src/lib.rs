//! The iSCSI protocol as state machines, without a socket, a clock, a thread or randomness of its own.
//!
//! Floor 2 of the house, over `pdu` (headers and text keys) and `crc32c` (digests). The floors above bring the sockets, the
//! clock and the random numbers: the target's reactor, a simulator, a benchmark and a unit test all drive the same machine.
//!
//! # The contract: mutate, drain, mutate
//!
//! A [`iscsi_target::LoginConnection`] takes bytes and gives events and bytes. When its login has passed, it enters a
//! [`iscsi_target::Session`], which owns it from then on as a [`iscsi_target::Connection`]:
//!
//! - **bytes in:** [`iscsi_target::Session::next_event`] consumes bytes from the front of the slice it is given and stops at
//!   every event, because an event may decide where the following bytes belong. Call it until it returns `None`. If bytes are
//!   left over then, the connection waits for the caller (a buffer, a decision, or room in its outbox):
//!   [`iscsi_target::Connection::hold`] them and stop reading from the socket while [`iscsi_target::Connection::wants_input`] is false.
//!   A large data segment can skip that way: [`iscsi_target::Connection::direct`] is the place it should be received into.
//! - **bytes out:** [`iscsi_target::Connection::slices`] are ready to be sent, in order; report with
//!   [`iscsi_target::Connection::sent`].
//! - **time:** [`iscsi_target::Connection::next_timeout`] says when [`iscsi_target::ConnectionMut::time_has_come`] wants to be called.
//!
//! After each call that changes the machine, drain events and bytes before the next one.
//!
//! The initiator's side, [`iscsi_initiator::Session`], keeps to the same contract.
//!
//! # Many connections, one session
//!
//! What belongs to the session (CmdSN order and window, its parameters, its name) is in [`iscsi_target::Session`] and
//! [`iscsi_initiator::Session`], which own their connections. What belongs to a connection (StatSN, the PDU stream) is in the
//! connection.
//!
//! The target's session decides what its connections have to do with each other: the order of commands, response fences, task
//! management over several connections, and with ErrorRecoveryLevel 2 (RFC 7143 sections 7.1.4.3 and 7.2.2) the tasks that outlive the
//! connection that brought them. The driver does what its [`iscsi_target::Event`]s say, and then asks the connections that the session
//! has [touched](iscsi_target::Session::take_touched) for theirs. What a driver has to answer comes with a ticket, which the answer
//! consumes. It tells the session of what happens outside:
//!
//! | outside | the driver calls |
//! |---|---|
//! | a socket is gone | [`iscsi_target::Session::stream_lost`]; when that is false, [`iscsi_target::Sessions::leave`] and [`remove`](iscsi_target::Sessions::remove) |
//! | [`iscsi_target::Event::Close`] | [`iscsi_target::Session::keep`]; when that is false, the same, once all is sent |
//! | a login takes the place of a connection ([`iscsi_target::Admitted::detached`]) | [`iscsi_target::Session::detach`] |
//! | stores are at rest after an abort | [`iscsi_target::Session::aborted`] |

#![forbid(unsafe_code)]

mod chap;
mod entropy;
mod extents;
mod held;
pub mod iscsi_initiator;
pub mod iscsi_target;
pub mod keys;
pub mod limits;
mod markers;
mod name;
mod outbox;
mod receiver;
mod time;
mod timers;
mod timetable;
mod traffic;

pub use chap::{Authentication, Credentials, Secret};
pub use entropy::Entropy;
pub use name::{NameError, check_name};
pub use time::Time;
pub use timers::Timers;
pub use timetable::Timetable;
pub use traffic::{SharedTraffic, Traffic};
