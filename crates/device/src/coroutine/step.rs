//! What a task asks of its driver, step by step, and the answers.

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

/// What a task is given.
#[derive(Debug)]
pub enum Input {
    /// The first step.
    Start,
    /// The answer to [`Step::Buffer`].
    Buffer(Buffer),
    /// The answer to [`Step::DataOut`]: filled, and verified by the transport.
    DataOut(Buffer),
    /// The answer to [`Step::Store`] and [`Step::Work`]; the latter has no buffer.
    Store(Outcome),
    /// The answer to [`Step::File`]: whether these bytes may be sent from where they are.
    File(bool),
    /// The answer to [`Step::Wait`] and [`Step::Pause`].
    Waited,
    /// The answer to [`Step::Background`].
    Begun,
    /// The answer to [`Step::Abort`].
    Aborted {
        /// The nexuses that lost tasks.
        lost: Vec<NexusId>,
    },
}

/// See [`Step::Work`].
pub type Work = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

/// What a task wants next.
pub enum Step {
    /// A buffer of `len` bytes from the pool.
    Buffer {
        /// Bytes, more than zero and at most [`crate::MAX_TRANSFER_BYTES`].
        len: usize,
    },
    /// The command's first `len` bytes of Data-Out.
    DataOut {
        /// Bytes, more than zero and at most [`crate::Command::data_out_len`].
        len: usize,
    },
    /// One request to a store.
    Store {
        /// Which store.
        store: Arc<dyn Store>,
        /// What to ask of it.
        op: Op,
    },
    /// To know whether bytes of a file may be sent from there: the transport can do that, and will not have to wait for a medium.
    File {
        /// Which.
        slice: FileSlice,
    },
    /// That other commands end which this one must not run beside. To abort the task meanwhile, drop it.
    Wait {
        /// What to wait for.
        on: Arc<dyn Waitable>,
    },
    /// That so much time passes. Only background work asks for it.
    Pause {
        /// How much.
        time: Duration,
    },
    /// Work that waits for a medium, to be done away from the threads that must not wait.
    Work(Work),
    /// That work begins which outlives the task.
    Background(BackgroundTask),
    /// The end of other tasks: all of these nexuses on these logical units but this one, and all of theirs that work on `unit`
    /// from another one, as copies do. The answer comes when no store works for them any more.
    Abort {
        /// Whose tasks, and by which number these nexuses know the unit.
        tasks: Vec<(NexusId, Lun)>,
        /// The logical unit.
        unit: Arc<LogicalUnit>,
    },
    /// Nothing more: the command has ended.
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
