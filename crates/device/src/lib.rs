//! The SCSI device server: logical units over stores, and the tasks that execute commands on them.
//!
//! Layer 2: over buffer, gateway, handover, quanta, scsi, state, store; under iscsi-target, lunette.
//!
//! `scsi` encodes and decodes bytes, `store` holds blocks and `buffer` memory. The iSCSI target drives the device from
//! sessions. This crate does no I/O, blocks no thread and knows no iSCSI PDUs.
//!
//! - [`TargetDevice`] maps LUNs to [`LogicalUnit`]s and knows the attached `I_T` nexuses.
//! - [`Nexus`] is an attached nexus: one initiator port and one target port. It holds the pending unit attentions.
//! - [`LogicalUnit`] is a disk: a store, a block size, an identity, and its reservations and mode parameters.
//! - [`Task`] executes one command: it *admits* the command by its row of the opcode table, then runs the handler.
//!
//! # Contract
//!
//! The driver starts a task for each command and calls [`Task::step`] until [`Step::Done`] brings the response. Each
//! step asks for one thing, and the next call passes the answer:
//!
//! | step | answer |
//! |---|---|
//! | [`Step::Buffer`] | [`Input::Buffer`] of at least that length, from the pool |
//! | [`Step::DataOut`] | [`Input::DataOut`] with the first bytes of the Data-Out, verified |
//! | [`Step::Store`] | [`Input::Store`] with the outcome of the request |
//! | [`Step::File`] | [`Input::File`]: whether the transport may send bytes from the file |
//! | [`Step::Wait`], [`Step::Pause`] | [`Input::Waited`] once the condition holds or the time has passed |
//! | [`Step::Work`] | [`Input::Store`] with the result of the blocking work |
//! | [`Step::Background`] | [`Input::Begun`]; the driver steps the [`BackgroundTask`] from then on |
//! | [`Step::Abort`] | [`Input::Aborted`] once no store works on the aborted tasks |
//!
//! - The commands of a nexus are started and stepped by one thread at a time, which counts what they do without a lock.
//! - Dropping a task before its end aborts it. What its store was already asked to do may still happen.
//! - A [`BackgroundTask`] belongs to the logical unit: no nexus can abort it, and it outlives its initiator.
//!   [`TargetDevice::background`] returns the work that an earlier process did not finish.
//! - A process is replaced by one that goes on: [`LogicalUnit::handover`], [`TargetDevice::handover`] and
//!   [`Nexus::handover`] give what is kept in memory. The successor calls `inherit` in this order, and then begins.
//! - Task management is the caller's: it aborts the tasks, then calls [`TargetDevice::reset_unit`] and its like for the
//!   rest.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lunette_buffer::Pool;
//! use lunette_device::{Command, Input, LogicalUnit, LogicalUnitConfig, NexusName, Step, TargetDevice};
//! use lunette_scsi::{Lun, Status, TaskAttribute, requests};
//! use lunette_store::{MemoryStore, execute};
//!
//! let store = Arc::new(MemoryStore::new(1 << 20).expect("short enough"));
//! store.write(0, b"first block")?;
//! let unit = Arc::new(LogicalUnit::new(LogicalUnitConfig::new(store, "serial-1"))?);
//! let device = Arc::new(TargetDevice::new("iqn.2026-11.lunette:disk"));
//! device.add(Lun::ZERO, unit)?;
//! let nexus = device.attach(NexusName {
//!     initiator: "iqn.2026-11.host:a,i,0x400001370000".into(),
//!     target_port: "iqn.2026-11.lunette:disk,t,0x0001".into(),
//!     relative_port: 1,
//! });
//!
//! let pool = Pool::new(1 << 20);
//! let run = |cdb: [u8; 16], data_in_len| {
//!     let (attribute, data_out_len) = (TaskAttribute::Simple, 0);
//!     let command = Command { lun: [0; 8], cdb: cdb.into(), attribute, data_out_len, data_in_len };
//!     let mut task = device.start(&nexus, command);
//!     let mut input = Input::Start;
//!     loop {
//!         input = match task.step(input) {
//!             Step::Buffer { len } => Input::Buffer(pool.take(len).expect("room in the pool")),
//!             Step::Store { store, op } => Input::Store(execute(&*store, op)),
//!             Step::Done(response) => return response,
//!             other => unreachable!("{other:?}"),
//!         };
//!     }
//! };
//! // The first command reports the unit attention of a new nexus.
//! assert_eq!(run(requests::test_unit_ready(), 0).status, Status::CHECK_CONDITION);
//! let response = run(requests::read(0, 1, false), 512);
//! assert_eq!(response.status, Status::GOOD);
//! assert_eq!(&response.data_in.to_vec()[..11], b"first block");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//!
//! Imports point down this list, except that the opcode table and the context of a command refer to each other's types.
//!
//! - `task`: a command from admission to its response
//! - `commands`: the opcode table, the context of a command, and one handler file for each family of commands
//! - `target_device`: the device with its nexuses, ROD tokens and port groups; `coroutine`: how handlers run step by
//!   step
//! - `counts`: the numbers of a logical unit
//! - `scrub`: reads of whole units in the background; `preemption`: that of units which several servers offer
//! - `gateway`: the way from such a unit to its gateway
//! - `unit`: a logical unit and the state that commands share on it
//! - `reservations`, `port_groups`, `sanitize`: pure state machines
//! - `nexus`, `persist`, `extent`, `environment`, `wait`, `limits`: names and small parts
//!
//! # Choices
//!
//! - **Access states (ALUA)** belong to the target device, one for each LUN and target port group. Transitions are
//!   indivisible: SET TARGET PORT GROUPS ends when the new states are in force. Each nexus holds its own state on each
//!   unit in one word, which is all that admission reads. Initiators cannot take ports offline, because no command
//!   would bring them back.
//! - **Third-party copy** ends with its command, IMMED or not, and stops between pieces when it is aborted. It reaches
//!   only the units that its own nexus may READ or WRITE, and checks that before each piece. ROD tokens are point in
//!   time copies, which end when their blocks change.
//! - **Atomic commands** (COMPARE AND WRITE, ORWRITE, XDWRITEREAD, WRITE ATOMIC) have their range of blocks to
//!   themselves; all other medium access shares its range.
//!
//! # Adding a command
//!
//! One row in `commands/opcodes/table.rs` and one handler in `commands/`. The row says what admission checks and what
//! REPORT SUPPORTED OPERATION CODES reports.

#![forbid(unsafe_code)]

mod command;
mod commands;
mod coroutine;
mod counts;
mod environment;
mod extent;
mod gateway;
mod limits;
mod nexus;
mod persist;
mod port_groups;
mod preemption;
mod reservations;
mod sanitize;
mod scrub;
mod target_device;
mod task;
mod unit;
mod wait;

pub use command::{Command, Response};
pub use commands::opcodes::is_refused_to_readers;
pub use coroutine::{BackgroundTask, Input, Step, Work};
pub use counts::{CommandKind, LATENCY_BOUNDS, LATENCY_BUCKETS, UnitCounts};
pub use environment::{Clock, Entropy, system_clock, system_entropy};
pub use gateway::{Answered, AskGateway};
pub use limits::{
    BLOCK_SIZES, MAX_ATOMIC_BYTES, MAX_COMPARE_AND_WRITE_BLOCKS, MAX_PORT_GROUPS, MAX_PORTS_OF_GROUP,
    MAX_REGISTRATIONS, MAX_TRANSFER_BYTES, MAX_UNMAP_DESCRIPTORS, MAX_WRITE_SAME_BLOCKS,
};
pub use nexus::{NexusId, NexusName};
pub use port_groups::{GroupAccess, PortGroup, PortGroupsConfig, PortGroupsError};
pub use scrub::{ScrubEnd, ScrubOwner, ScrubbedBlocks, scrub_once};
pub use target_device::{
    Assigned, LunInUse, LunMap, LunMapError, LunMaps, Nexus, PendingEvent, Place, PortGroupsChange, ResetOutcome,
    TargetDevice,
};
pub use task::{AtOnce, Task};
pub use unit::{
    DEFAULT_PRODUCT, DEFAULT_REVISION, DEFAULT_VENDOR, EjectError, FrozenUnit, HoldUp, InheritError, InitiatorBytes,
    LogicalUnit, LogicalUnitConfig, LogicalUnitError, MIN_SANITIZE_RATE, MIN_SCRUB_RATE, MediumChangeError,
    QuantaCounts, QuantaOptions, Readiness, STORE_FAILURES, StoredDigests,
};
pub use wait::Waitable;
