//! The iSCSI protocol as state machines, without a socket, a clock, a thread or randomness of its own.
//!
//! Layer 1: over buffer, crc32c, handover, pdu; under ecl, ecl-endpoint, iscsi-initiator, iscsi-target, lunette.
//!
//! `pdu` has headers and text keys, `crc32c` digests. The layers above bring sockets, clock and random numbers: the
//! target's reactor, a simulator, a benchmark and a unit test all drive the same machine. `ARCHITECTURE.md` beside this
//! crate's manifest explains sessions and recovery.
//!
//! # The contract: mutate, drain, mutate
//!
//! A [`iscsi_target::LoginConnection`] takes bytes and gives events and bytes. When its login has passed, it enters a
//! [`iscsi_target::Session`], which owns it from then on as a [`iscsi_target::Connection`]:
//!
//! | order | when | the driver calls |
//! |---|---|---|
//! | 1 | before it reads from a socket | [`Connection::wants_input`]; while it is false, nothing is read |
//! | 2 | a large data segment is next | [`Connection::direct`] for the place to receive into, then [`Connection::direct_received`] |
//! | 3 | bytes have come | [`Session::next_event`] until it returns `None`: it consumes bytes from the front of the slice up to the next event, which may decide where the following bytes belong |
//! | 4 | bytes are left over then | [`Connection::hold`]: the connection waits for the caller (a buffer, a decision, or room in its outbox) |
//! | 5 | step 3 has ended | [`Session::take_touched`], and step 3 with empty input for each of these connections |
//! | 6 | bytes are ready to be sent | [`Connection::slices`], in order, then [`Connection::sent`] |
//! | 7 | the time of [`Session::next_timeout`] has come | [`ConnectionMut::time_has_come`], then steps 3 to 6 |
//!
//! [`Connection::wants_input`]: iscsi_target::Connection::wants_input
//! [`Connection::direct`]: iscsi_target::Connection::direct
//! [`Connection::direct_received`]: iscsi_target::Connection::direct_received
//! [`Connection::hold`]: iscsi_target::Connection::hold
//! [`Connection::slices`]: iscsi_target::Connection::slices
//! [`Connection::sent`]: iscsi_target::Connection::sent
//! [`ConnectionMut::time_has_come`]: iscsi_target::ConnectionMut::time_has_come
//! [`Session::next_event`]: iscsi_target::Session::next_event
//! [`Session::next_timeout`]: iscsi_target::Session::next_timeout
//! [`Session::take_touched`]: iscsi_target::Session::take_touched
//!
//! After each call that changes the machine, drain events and bytes before the next one.
//!
//! The initiator's side, [`iscsi_initiator::Session`], keeps to the same contract.
//!
//! # Many connections, one session
//!
//! The state of the session (CmdSN order and window, its parameters, its name) is in [`iscsi_target::Session`] and
//! [`iscsi_initiator::Session`], which own their connections. What belongs to a connection (StatSN, the PDU stream) is
//! in the connection.
//!
//! The target's session decides everything between its connections: the order of commands, response fences, task
//! management over several connections, and which connections end together. With ErrorRecoveryLevel 2 (RFC 7143
//! sections 7.1.4.3 and 7.2.2) it also keeps the tasks that outlive their connection. The driver does what its
//! [`iscsi_target::Event`]s say, and then asks the connections that the session has
//! [touched](iscsi_target::Session::take_touched) for theirs. What a driver has to answer comes with a ticket, which
//! the answer consumes. It tells the session of what happens outside:
//!
//! | outside | the driver calls |
//! |---|---|
//! | a socket is gone | [`iscsi_target::Session::stream_lost`]; when that is false, [`iscsi_target::Sessions::remove`] |
//! | the tasks of a connection that is over have ended | [`iscsi_target::Sessions::leave`], and [`remove`](iscsi_target::Sessions::remove) when all is sent |
//! | what a task management request asks for is done | [`iscsi_target::Session::done`] |
//! | a connection that was logged out of is gone | [`iscsi_target::Session::logged_out`] |
//! | the target stops, or serves the session no longer | [`iscsi_target::Session::request_logout`] |
//! | the target is reset | [`iscsi_target::Session::reset`] |
//!
//! # A driver
//!
//! The target's side without its sockets: what is done with bytes that have come. Its device knows commands without
//! data only.
//!
//! ```
//! use std::collections::HashMap;
//!
//! use lunette_session::Time;
//! use lunette_session::iscsi_target::{Event, LoginConnection, LoginEvent, Response, SessionKey, Sessions};
//!
//! #[derive(Default)]
//! struct Driver {
//!     logins: HashMap<u32, LoginConnection>,
//!     keys: HashMap<u32, SessionKey>,
//!     sessions: Sessions<u32>,
//! }
//!
//! impl Driver {
//!     /// Gives false when the connection is over: what is ready is sent, and its socket is closed.
//!     fn received(&mut self, id: u32, mut bytes: &[u8], now: Time) -> bool {
//!         while let Some(login) = self.logins.get_mut(&id) {
//!             match login.next_event(&mut bytes) {
//!                 Some(LoginEvent::Admit(request)) => match self.sessions.admit(&request, id, now) {
//!                     Ok(admitted) => {
//!                         admitted.displaced.iter().for_each(|old| self.gone(*old));
//!                         let entered = self.logins.remove(&id).and_then(|login| self.sessions.enter(admitted.ticket, login, now));
//!                         self.keys.extend(entered.map(|key| (id, key)));
//!                     }
//!                     Err(status) => login.refuse(status),
//!                 },
//!                 Some(LoginEvent::Close(_)) => return false,
//!                 None => {
//!                     login.hold(bytes);
//!                     return true;
//!                 }
//!             }
//!         }
//!         let Some(key) = self.keys.get(&id).copied() else { return false };
//!         while let Some(session) = self.sessions.get_mut(key) {
//!             match session.next_event(id, &mut bytes, now) {
//!                 Some(Event::Command(command)) => session.complete(id, command.task, Response::default()),
//!                 Some(Event::TaskManagement(ticket)) => session.done(id, ticket, now),
//!                 Some(Event::Logout { ticket, connection }) => {
//!                     session.logged_out(id, ticket);
//!                     if connection != id {
//!                         self.gone(connection);
//!                     }
//!                 }
//!                 Some(Event::Close(_)) => {
//!                     self.sessions.leave(key, id);
//!                     return false;
//!                 }
//!                 Some(Event::Gone) => self.gone(id),
//!                 Some(other) => panic!("{other:?} of a session without recovery and a device without data"),
//!                 None => {
//!                     session.connection_mut(id).into_iter().for_each(|mut connection| connection.hold(bytes));
//!                     // Others may have something to send, or go on with what they hold.
//!                     let touched = session.take_touched();
//!                     return touched.into_iter().filter(|other| *other != id).all(|other| self.received(other, &[], now));
//!                 }
//!             }
//!         }
//!         false
//!     }
//!
//!     fn gone(&mut self, id: u32) {
//!         if let Some(key) = self.keys.remove(&id) {
//!             self.sessions.remove(key, id);
//!         }
//!     }
//! }
//! ```
//!
//! # Tasks and transport
//!
//! On the target's side, `iscsi_target::tasks` is what any transport would need: tasks, the data that they collect, and
//! the order of commands. `iscsi_target::transport`, with the crate's `receiver`, `outbox` and `markers`, is what TCP
//! needs: PDUs, digests, StatSN, and what is kept to be sent again. Tasks import nothing of the transport.
//! `iscsi_target::full_feature` and `connection` join the two.

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
mod outgoing_pdu;
mod receiver;
mod reflection;
mod time;
mod timers;
mod timetable;
mod traffic;

pub use chap::algorithms::{ChapAlgorithm, ChapAlgorithms, UnknownChapAlgorithm};
pub use chap::{Authentication, Credentials, ProvenSecrets, Secret};
pub use entropy::Entropy;
pub use name::{
    LocalNameError, NameError, check_foreign_name, check_initiator_name, check_local_name, check_name, folded_name,
    is_same_name,
};
pub use outgoing_pdu::{OutgoingPdu, Unacknowledged};
pub use reflection::{SharedSecret, check_secrets};
pub use time::Time;
pub use timers::Timers;
pub use timetable::Timetable;
pub use traffic::{SharedTraffic, Traffic};
