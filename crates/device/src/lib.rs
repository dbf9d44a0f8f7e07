//! The SCSI device server: logical units and tasks over a store.
//!
//! Floor 3 of the house: below it `scsi` for bytes, `store` for blocks and `buffer` for memory; above it `target`, which
//! drives it from sessions. Nothing in here does I/O, waits, or knows about iSCSI PDUs.
//!
//! # The pieces
//!
//! - [`TargetDevice`] maps logical unit numbers to [`LogicalUnit`]s and knows the `I_T` nexuses that are attached.
//! - [`Nexus`] is one initiator port talking to one target port. Unit attentions wait in it, one queue per logical unit.
//! - [`LogicalUnit`] is a disk: a store, a block size, an identity.
//! - [`Task`] is one command on its way: *select* its row in the opcode table, check it once in the gate, run its handler.
//!
//! # Driving a task
//!
//! A task asks for one thing at a time and gets it by the next call of [`Task::step`]: a buffer from the pool, the first
//! bytes of the command's Data-Out, one request to a store, its turn on blocks that another command works on, work that
//! waits for a medium, or the end of other tasks. The last step is [`Step::Done`]. A task that is dropped
//! before is aborted; what the store was already asked to do may still happen.
//!
//! A task may leave a [`BackgroundTask`] behind, which belongs to the logical unit: no nexus can abort it, and it goes on
//! when the initiator is long gone. [`TargetDevice::background`] gives those that an earlier process did not finish.
//!
//! ```
//! use std::sync::Arc;
//! use lunette_device::{Command, Input, NexusName, Step, TargetDevice};
//! use lunette_scsi::{Status, TaskAttribute};
//!
//! let device = Arc::new(TargetDevice::new("iqn.2026-11.lunette:disk"));
//! let nexus = device.attach(NexusName {
//!     initiator: "iqn.2026-11.host:a,i,0x400001370000".into(),
//!     target_port: "iqn.2026-11.lunette:disk,t,0x0001".into(),
//!     relative_port: 1,
//! });
//! // TEST UNIT READY to a logical unit that does not exist.
//! let command = Command {
//!     lun: [0; 8],
//!     cdb: [0; 16].into(),
//!     attribute: TaskAttribute::Simple,
//!     data_out_len: 0,
//!     data_in_len: 0,
//! };
//! let mut task = device.start(&nexus, command);
//! let Step::Done(response) = task.step(Input::Start) else { panic!("nothing to ask for") };
//! assert_eq!(response.status, Status::CHECK_CONDITION);
//! assert_eq!(response.sense.expect("sense data")[12], 0x25);
//! ```
//!
//! # Adding a command
//!
//! One row in `commands/opcodes/table.rs` and one handler in `commands/`. The row says what the gate has to check and what REPORT
//! SUPPORTED OPERATION CODES tells.

#![forbid(unsafe_code)]

mod command;
mod commands;
mod coroutine;
mod environment;
mod extent;
mod limits;
mod nexus;
mod persist;
mod port_groups;
mod reservations;
mod sanitize;
mod target_device;
mod task;
mod unit;
mod wait;

pub use command::{Command, InPlace, Response};
pub use coroutine::{BackgroundTask, Input, Step, Work};
pub use environment::{Clock, Entropy, system_clock, system_entropy};
pub use limits::{
    MAX_ATOMIC_BYTES, MAX_COMPARE_AND_WRITE_BLOCKS, MAX_PORT_GROUPS, MAX_PORTS_OF_GROUP, MAX_REGISTRATIONS,
    MAX_TRANSFER_BYTES, MAX_UNMAP_DESCRIPTORS, MAX_WRITE_SAME_BLOCKS,
};
pub use nexus::{NexusId, NexusName};
pub use port_groups::{GroupAccess, PortGroup, PortGroupsConfig, PortGroupsError};
pub use target_device::{LunInUse, Nexus, PendingEvent, PortGroupsChange, ResetOutcome, TargetDevice};
pub use task::Task;
pub use unit::{
    DEFAULT_PRODUCT, DEFAULT_REVISION, DEFAULT_VENDOR, EjectError, LogicalUnit, LogicalUnitConfig, LogicalUnitError,
    MIN_SANITIZE_RATE,
};
pub use wait::Waitable;
