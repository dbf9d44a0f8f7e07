//! An iSCSI client: sessions, disks, raw SCSI commands.
//!
//! Layer 4: over buffer, ecl, ecl-endpoint, files, keys, pdu, reactor, scsi, session, store, tls, volume; under
//! lunette.
//!
//! This crate runs the protocol of `session` on the event loop of `reactor`, and keeps a session alive where SCSI
//! allows it. It needs no kernel driver, no particular executor, and no thread per connection.
//!
//! # The pieces
//!
//! - [`Initiator`] is a thread with an event loop and a pool of buffers. It serves any number of sessions.
//! - [`Session`] is a session with one target: raw commands ([`Session::execute`], [`Session::submit`]), task
//!   management, pings, text.
//! - [`Disk`] is a logical unit that is a disk: reads and writes in blocks, flush, unmap, zeroes, compare and write.
#![cfg_attr(feature = "store", doc = "- [`RemoteStore`] is a disk behind the trait [`store::Store`].")]
//!   [`Disk::of_url`] opens one over several paths.
//! - [`discover`] lists targets.
//! - [`Url`] names a target or a disk with all options in one line, as `iscsi://host/target/lun?header_digest=crc32c`.
//!
//! Every operation is an `async fn` that any executor can run; [`wait`] runs one on the calling thread.
//!
//! ```no_run
//! use lunette_initiator::{Disk, Error, wait};
//!
//! fn first_block() -> Result<Vec<u8>, Error> {
//!     let disk = wait(Disk::connect("iscsi://192.0.2.1/iqn.2026-11.org.example:disk/0"))?;
//!     let block = wait(disk.read(0, 1))?;
//!     Ok(block.to_vec())
//! }
//! ```
//!
//! This crate is the only dependency that a user needs. It exports the types of lower crates that appear in its
//! interface, and [`scsi`], which makes CDBs and parses their answers.
//!
//! # Features
//!
//! `store` adds `RemoteStore`, a disk behind the trait of all stores of Lunette, and exports the crate of that trait as
//! `store`. `encryption` adds `encryption`, which opens encrypted disks with the keys that their URLs name.
//!
//! # When things go wrong
//!
//! - **Memory** given to a request belongs to the session until the request ends. Dropping a future aborts the task;
//!   the network never writes into memory that its owner has taken back.
//! - **A dropped future** aborts its request, or closes the session that was being opened. A transfer of several
//!   requests ([`Disk::write`]) may then be done in part. A session whose [`close`](Session::close) is dropped closes
//!   all the same.
//! - **The event loop** ends with its last handle, or when a completion or a listener panics. What waits for it then
//!   ends with [`Error::Closed`].
//! - **Time:** a request that takes longer than [`Options::request_timeout`] is aborted (ABORT TASK, then LOGICAL UNIT
//!   RESET, then a new connection) and ends with [`Error::TimedOut`].
//! - **Loss:** a lost connection is replaced for as long as [`Options::reconnect_for`]; requests that may run twice
//!   ([`Repeat::Always`]) are sent again in their order, others end with [`Error::InDoubt`]. A target that restarts may
//!   have lost writes that were acknowledged and not flushed: write what must be there with FUA, or [`Disk::flush`] it,
//!   and compare [`Disk::power_ons`]. `RemoteStore` does so: its flush fails with [`Error::CacheLost`] when such writes
//!   are in doubt.
//! - **Short transfers:** GOOD status with a residual ends the operations of [`Disk`] and `RemoteStore` with
//!   [`Error::Short`] or [`Error::Excess`]. A raw command ends well; [`Outcome::check_whole`] tells.
//! - **A target that breaks the rules** ends the session with [`Error::Session`], which names the rule. Nothing is sent
//!   to it again.

#![forbid(unsafe_code)]

mod detached;
mod discovery;
mod disk;
#[cfg(feature = "encryption")]
pub mod encryption;
mod engine;
mod error;
pub mod limits;
mod options;
mod paths;
mod pending;
mod portal;
#[cfg(feature = "store")]
mod remote_store;
mod request;
mod secret;
mod session;
mod session_event;
pub mod stepped;
mod task_management;
mod tls;
mod url;

pub use lunette_scsi as scsi;
#[cfg(feature = "store")]
pub use lunette_store as store;

pub use lunette_buffer::{Buffer, Pool, SharedBuffer};
pub use lunette_pdu::{
    AsyncEvent, AsyncMessage, Isid, LoginStatus, Opcode, RejectReason, Residual, TaskAttribute, TaskManagementFunction,
    TaskManagementResponseCode,
};
pub use lunette_reactor::{Counts, IoBackend, LoopConfig, Mac, Step, TcpInfo, TcpOptions};
pub use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseKey, Status};
pub use lunette_session::iscsi_initiator::{ChapIdentity, LoginError, Recoveries, SessionError};
pub use lunette_session::keys::{Choices, Digest, Offer, Parameters, TaskReporting};
pub use lunette_session::{Credentials, Secret, Timers, Traffic};

pub use discovery::{TargetRecord, discover};
pub use disk::{Disk, Facts};
pub use engine::host::RandomBytes;
pub use error::{Direction, Error};
pub use lunette_ecl::association::Seal;
pub use lunette_ecl::recovery::CongestionControl;
pub use lunette_ecl_endpoint::DatagramOptions;
pub use options::{Connector, Listener, Options, Transport};
pub use paths::activate;
pub use paths::status::{PathState, PathStatus};
pub use pending::{wait, wait_at_most};
pub use portal::{BadAddress, DEFAULT_PORT, Portal};
#[cfg(feature = "store")]
pub use remote_store::RemoteStore;
pub use request::{Completion, Outcome, Repeat, Reply, Request, Sink};
pub use secret::{SecretError, read_secret};
pub use session::{Initiator, Pending, Session};
pub use session_event::{Observation, SessionEvent};
pub use task_management::PendingEvent;
pub use tls::ClientTls;
pub use url::{KeyParameters, Paths, REDACTED, Url, UrlError, is_url, redacted, redacted_url};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples of the project's own README, the target's too.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ProjectReadme;
