//! Portals, sessions and devices on a reactor: the target as a whole.
//!
//! Floor 4 of the house. Below it the pieces know nothing of each other: `reactor` moves bytes, `session` speaks iSCSI,
//! `device` speaks SCSI, `store` keeps blocks. This crate carries what one says to the next.
//!
//! [`Server::bind`] opens the portals, [`Server::run`] serves until a [`Stopper`] asks for an orderly end: initiators are
//! asked to log out, running tasks end, stores are flushed.
//!
//! [`Control`] changes what is served while it runs.
//!
//! # A command's way
//!
//! Bytes from a socket go to the connection's state machine. A command that comes out of it becomes a device task. The task
//! asks for one thing after the other: a buffer (from the pool, or it waits), the command's data (from the connection), a
//! request to the store (which ends through the completion queue, on whatever thread). Its response goes back to the
//! connection, and from there to the socket. All of this happens on the reactor's thread; only stores use others.
//!
//! # Cores
//!
//! [`ServerConfig::cores`] event loops run on as many threads. Each has sessions, tasks, buffers and timers of its own; a session
//! lives on one of them with all its connections. The few things that concern several travel as letters (`core::orders`).

#![forbid(unsafe_code)]

mod control;
mod core;
mod limits;
mod monitor;
mod server;
mod stepped;
mod threads;

pub use control::{Control, Growth, PendingUpdate, UnitChange, Update, UpdateError};
pub use limits::{DEFAULT_BUFFER_BYTES, DEFAULT_FILE_THREADS, MAX_CORES, MIN_BUFFER_BYTES};
pub use lunette_reactor::IoBackend;
pub use monitor::{Monitor, Statistics};
pub use server::{BindError, PortalConfig, Server, ServerConfig, Stopper, TargetConfig};
pub use stepped::{CoreStep, SteppedServer};
