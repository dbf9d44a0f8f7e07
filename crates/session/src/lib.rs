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
//! # Connection recovery
//!
//! With ErrorRecoveryLevel 2 (RFC 7143 sections 7.1.4.3 and 7.2.2) tasks outlive the connection that brought them. The target's
//! driver then does this:
//!
//! - **A socket is gone:** [`iscsi_target::ConnectionMut::stream_lost`]. When it is true the connection is *suspended*: keep it, drain
//!   its events, go on calling it for its tasks (`want_data`, `complete`, `abort`) and at its timeouts; tell
//!   [`iscsi_target::Session::suspend`], and let another connection of the session [announce the
//!   loss](iscsi_target::ConnectionMut::announce_loss). When it is false, all is as without recovery. The same holds for
//!   [`iscsi_target::Event::Close`] of a connection that [is suspended](iscsi_target::Connection::is_suspended): close its socket after what is
//!   ready was sent, keep the rest.
//! - **[`iscsi_target::Event::LogoutForRecovery`], or [`iscsi_target::Admitted::detached`] in a login:** cut the connection off, call
//!   [`iscsi_target::ConnectionMut::log_out_for_recovery`] and [`iscsi_target::Session::detach`]. The logout is answered with `CLOSED`. When
//!   the connection names itself, only answer; it ends with [`iscsi_target::CloseReason::RecoveryLogout`], and then is detached.
//! - **TASK REASSIGN** comes as [`iscsi_target::Event::TaskManagement`]: look for the task with
//!   [`iscsi_target::Connection::known_task`] on all other connections of the session. On one that is detached: answer FUNCTION
//!   COMPLETE first, then [`iscsi_target::ConnectionMut::release_task`] there, [`iscsi_target::ConnectionMut::adopt_task`] here, and know the
//!   task by its new connection and tag from now on. On any other: TASK STILL ALLEGIANT. Nowhere: TASK DOES NOT EXIST, once
//!   nothing that was aborted before still works, or FUNCTION REJECTED when the name is [that of a
//!   request](iscsi_target::Connection::is_request).
//! - **ABORT TASK without `referenced`:** the task may be on a suspended connection. When the driver has it, it is aborted
//!   there; when it has ended, it is moved here as above, which answers it, and then the request is answered.
//! - **QUERY TASK:** this connection has no such task. On another one that is served, lost or detached: FUNCTION SUCCEEDED, and from one
//!   that is detached it moves here (RFC 7144 section 6.3). Nowhere: FUNCTION COMPLETE, once nothing that was aborted before still
//!   works, for the initiator may do its work anew.
//! - **An answer that was sent but not acknowledged** moves like a task that has not ended: its status and the data from
//!   ExpDataSN on are sent again, under the numbers of the new connection.
//! - **Other task management functions** reach the tasks of suspended connections as they reach all others;
//!   [`iscsi_target::ConnectionMut::silence`] is called for suspended connections too.
//! - **[`iscsi_target::CloseReason::NotRecovered`]:** Time2Wait and Time2Retain are over. End the tasks of the connection and forget it. A
//!   session, and with it its nexus, ends with the last connection, served or suspended.
//!
//! The numbers of R2Ts begin at the ExpDataSN of the reassignment: that many the initiator says it has.

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
pub use outbox::Piece;
pub use time::Time;
pub use timers::Timers;
pub use timetable::Timetable;
pub use traffic::{SharedTraffic, Traffic};
