//! The initiator's side: a session with all of its connections.
//!
//! # The contract: mutate, drain, mutate
//!
//! A [`Session`] belongs to one driver, and all its connections with it: what commands share (CmdSN, the window, the
//! task table) needs no lock. The driver owns sockets, clock and random numbers.
//!
//! - [`Session::connect`] begins the login of a connection over a stream that the driver has opened.
//! - **Bytes in:** [`Session::next_event`] consumes bytes of one connection up to the next event. Call it until it
//!   gives `None`; then everything is consumed. A large data segment is received where [`Session::direct`] says. A
//!   driver with many short commands uses [`Session::next_other_event`], which tells of their ends without an event for
//!   each.
//! - **Bytes out:** [`Session::slices`] are ready to be sent on a connection, in order; report with [`Session::sent`].
//! - **Time:** [`Session::next_timeout`] says when [`Session::time_has_come`] wants to be called. Events that come of
//!   it are taken by `next_event` with empty input.
//! - **Work:** [`Session::submit`] takes a command when [`Session::room`] is not zero. It ends exactly once: by
//!   [`Event::Completed`] or what tells of ends instead, by [`Event::Aborted`], or by [`Session::into_unfinished`] when
//!   the session is over.
//!
//! # Recovery level 2
//!
//! A connection that is lost ends with [`Event::Closed`], as always, but the session is not [over](Session::is_over):
//! what was under way goes on over the other connections. When none is left, [`Session::wants_connection`] asks for one
//! more [`Session::connect`]. Events that come of all this may be told by any connection, and output appear on any. A
//! session that gets no connection in time is over without an event: look at [`Session::is_over`] after
//! [`Session::time_has_come`].
//!
//! Buffers travel with their command and come back with its end, so nothing is ever written into memory that its owner
//! has taken back.

mod agreed;
mod attempts;
mod config;
mod connection;
mod ended;
mod error;
mod event;
mod expect;
mod full_feature;
mod incoming;
mod late_answers;
mod loads;
mod login;
mod lost;
mod recoveries;
mod request;
mod sender;
mod session;
mod shared;
mod statuses;
mod table;
mod task;
mod text;
mod turn_context;
mod unacknowledged;
mod window;

pub use config::{ChapIdentity, SessionConfig};
pub use connection::placing::Placement;
pub use error::{LoginError, SessionError};
pub use event::{Command, Event, Response, TaskTag};
pub use recoveries::Recoveries;
pub use session::Session;
