//! Portals, sessions and devices on a reactor: the target as a whole.
//!
//! Layer 4: over buffer, device, ecl, ecl-endpoint, handover, pdu, reactor, scsi, session, state, store, tls;
//! under lunette.
//!
//! The crates below know nothing of each other: `reactor` moves bytes, `session` speaks iSCSI, `device` speaks SCSI,
//! `store` keeps blocks. This crate passes the results of one to the next.
//!
//! [`Server::bind`] opens the portals. [`Server::run`] serves until a [`Stopper`] asks for an orderly end: initiators
//! log out, running tasks end, stores are flushed.
//!
//! [`Control`] changes what is served while it runs.
//!
//! # Embedding
//!
//! The crate is the only dependency that a program needs to serve disks of its own. Such a program implements
//! [`store::Store`], or takes [`store::FileStore`] or [`store::MemoryStore`], and puts it below a [`LogicalUnit`] of a
//! [`TargetDevice`]:
//!
//! ```no_run
//! use std::sync::Arc;
//! use lunette_target::store::MemoryStore;
//! use lunette_target::{LogicalUnit, LogicalUnitConfig, Lun, PortalConfig, Server, ServerConfig, TargetConfig, TargetDevice};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(MemoryStore::new(64 << 20).ok_or("too long")?);
//! let device = TargetDevice::new("iqn.2026-11.org.example:disk");
//! device.add(Lun::ZERO, Arc::new(LogicalUnit::new(LogicalUnitConfig::new(store, "serial-1"))?))?;
//! let portal = PortalConfig::new("127.0.0.1:3260".parse()?, 1);
//! Server::bind(ServerConfig::new(vec![portal], vec![TargetConfig::open(Arc::new(device))]))?.run()?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/serve_store.rs` implements a store. [`store`] has the contract of the trait, `state` what keeps persistent
//! reservations over a restart.
//!
//! # A command's way
//!
//! Bytes from a socket go to the connection's state machine, whose commands become device tasks. A task asks for one
//! thing after the other: a buffer from the pool, the command's data from the connection, and a request to the store,
//! which ends through the completion queue on any thread. Its response goes back to the connection, and from there to
//! the socket. All of this happens on the reactor's thread; only stores use others.
//!
//! # Cores
//!
//! [`ServerConfig::cores`] event loops run on as many threads. Each has sessions, tasks, buffers and timers of its own;
//! a session lives on one of them with all its connections. The few things that concern several travel as messages
//! (`core::mesh`).

#![forbid(unsafe_code)]

mod config;
mod control;
mod core;
mod limits;
mod monitor;
mod pulse;
mod server;
mod sessions;
pub mod stepped;
mod threads;

pub use lunette_state as state;
pub use lunette_store as store;

pub use lunette_buffer::{Buffer, FileSlice, Loan, Pool};
pub use lunette_device::{
    BLOCK_SIZES, Clock, CommandKind, EjectError, Entropy, GroupAccess, InitiatorBytes, LATENCY_BOUNDS, LATENCY_BUCKETS,
    LogicalUnit, LogicalUnitConfig, LogicalUnitError, LunInUse, LunMap, LunMapError, MIN_SANITIZE_RATE, MIN_SCRUB_RATE,
    MediumChangeError, Place, PortGroup, PortGroupsChange, PortGroupsConfig, PortGroupsError, QuantaOptions, Readiness,
    TargetDevice, UnitCounts, system_clock, system_entropy,
};
pub use lunette_reactor::{Counts, IoBackend, LoopConfig};
pub use lunette_scsi::Lun;
pub use lunette_session::iscsi_target::{Host, Moved, Origin, SessionInfo, host_of};
pub use lunette_session::keys::{Choices, Digest, Offer, Parameters};
pub use lunette_session::{Authentication, Credentials, Secret, Timers, Traffic};

pub use config::{
    BindError, DatagramPlace, DatagramPortalConfig, HostConfig, PortalConfig, PortalTls, ServerConfig, TargetConfig,
};
pub use control::{
    Adopted, Control, FreezeError, Frozen, Growth, LeftSession, Listening, PendingFreeze, PendingStandstill,
    PendingUpdate, Seen, Standstill, StandstillError, UnitChange, Update, UpdateError, Viewer,
};
pub use limits::{
    DEFAULT_BUFFER_BYTES, DEFAULT_FILE_THREADS, DEFAULT_SLOW_COMMAND, MAX_CORES, MIN_BUFFER_BYTES, PEER_PATIENCE,
};
pub use lunette_ecl::handshake::ResetSecret;
pub use lunette_ecl_endpoint::Config as DatagramConfig;
pub use monitor::{LoginCounts, Monitor, Statistics};
pub use pulse::Pulse;
pub use server::{DatagramPortal, Server, Stopper};
pub use sessions::{HostMaker, HostRequest, SessionEvent, SessionObserver, SessionStatus};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
