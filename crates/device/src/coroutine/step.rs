//! The requests of a task to its driver, and the answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::{Buffer, FileSlice};
use lunette_scsi::Lun;
use lunette_store::{Op, Outcome, Store, StoreError};

use super::BackgroundTask;
use crate::command::Response;
use crate::nexus::NexusId;
use crate::unit::LogicalUnit;
use crate::wait::Waitable;

/// The answer to the last step of a task.
#[derive(Debug)]
pub enum Input {
    /// Starts the task.
    Start,
    /// Answers [`Step::Buffer`].
    Buffer(Buffer),
    /// Answers [`Step::DataOut`]: the data, verified by the transport.
    DataOut(Buffer),
    /// Answers [`Step::Store`] and [`Step::Work`]; the latter has no buffer.
    Store(Outcome),
    /// Answers [`Step::File`]: whether the bytes may be sent from the file.
    File(bool),
    /// Answers [`Step::Wait`] and [`Step::Pause`].
    Waited,
    /// Answers [`Step::Background`].
    Begun,
    /// Answers [`Step::Abort`].
    Aborted {
        /// The nexuses whose tasks were aborted.
        lost: Vec<NexusId>,
    },
}

/// Blocking work of [`Step::Work`].
pub type Work = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

/// A request of a task to its driver.
pub enum Step {
    /// A buffer of `len` bytes from the pool.
    Buffer {
        /// Length in bytes, more than zero and at most [`crate::MAX_TRANSFER_BYTES`].
        len: usize,
    },
    /// The command's first `len` bytes of Data-Out.
    DataOut {
        /// Length in bytes, more than zero and at most [`crate::Command::data_out_len`].
        len: usize,
    },
    /// One request to a store.
    Store {
        /// The store to send the request to.
        store: Arc<dyn Store>,
        /// The request to send.
        op: Op,
    },
    /// Whether bytes of a file may be sent from there: the transport supports it, and sending does not wait for a
    /// medium.
    File {
        /// The bytes of the file.
        slice: FileSlice,
    },
    /// A condition that other commands bring about. To abort the task before it holds, drop the task.
    Wait {
        /// The condition to wait for.
        on: Arc<dyn Waitable>,
    },
    /// A pause. Only background work asks for it.
    Pause {
        /// Length of the pause.
        time: Duration,
    },
    /// Work that waits for a medium, to be run on a thread that may block.
    Work(Work),
    /// Background work to start, which outlives the task.
    Background(BackgroundTask),
    /// The abort of other tasks: all tasks of these nexuses on these logical units except this one, and all tasks of
    /// these nexuses that access `unit` from another logical unit, as copies do. The answer comes when no store works
    /// on them any more.
    Abort {
        /// The nexuses, each with its LUN of the unit.
        tasks: Vec<(NexusId, Lun)>,
        /// The logical unit.
        unit: Arc<LogicalUnit>,
    },
    /// The response that ends the command.
    Done(Response),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer { len } => write!(f, "Buffer({len})"),
            Self::DataOut { len } => write!(f, "DataOut({len})"),
            Self::Store { op, .. } => write!(f, "Store({op:?})"),
            Self::File { slice } => write!(f, "File({})", slice.len()),
            Self::Wait { .. } => f.write_str("Wait"),
            Self::Pause { time } => write!(f, "Pause({time:?})"),
            Self::Work(_) => f.write_str("Work"),
            Self::Background(_) => f.write_str("Background"),
            Self::Abort { tasks, .. } => write!(f, "Abort({tasks:?})"),
            Self::Done(response) => write!(f, "Done({response:?})"),
        }
    }
}
