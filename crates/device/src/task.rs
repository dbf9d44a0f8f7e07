//! Tasks: commands on their way.

use std::fmt;
use std::sync::Arc;

use lunette_buffer::Buffer;
use lunette_scsi::{AdditionalSense, SenseData, SenseFormat};
use lunette_store::{Op, Outcome, Store};

use crate::command::{Command, Response};
use crate::nexus::NexusState;

/// What a task is given.
#[derive(Debug)]
pub enum Input {
    /// The first step.
    Start,
    /// The answer to [`Step::Buffer`].
    Buffer(Buffer),
    /// The answer to [`Step::DataOut`]: filled, and verified by the transport.
    DataOut(Buffer),
    /// The answer to [`Step::Store`].
    Store(Outcome),
}

/// What a task wants next.
pub enum Step {
    /// A buffer of `len` bytes from the pool.
    Buffer {
        /// Bytes, more than zero and at most [`crate::MAX_TRANSFER_BYTES`].
        len: usize,
    },
    /// The command's first `len` bytes of Data-Out.
    DataOut {
        /// Bytes, more than zero and at most [`Command::data_out_len`].
        len: usize,
    },
    /// One request to a store.
    Store {
        /// Which store.
        store: Arc<dyn Store>,
        /// What to ask of it.
        op: Op,
    },
    /// Nothing more: the command has ended.
    Done(Response),
}

/// One command on its way. See the crate's documentation for how to drive it.
pub struct Task {
    command: Command,
}

impl Task {
    pub(crate) fn new(_device: String, _nexus: Arc<NexusState>, command: Command) -> Self {
        Self { command }
    }

    /// Gives the task what it asked for ([`Input::Start`] first) and learns what it wants next.
    ///
    /// An input that does not answer the last step ends the task with HARDWARE ERROR, INTERNAL TARGET FAILURE.
    pub fn step(&mut self, _input: Input) -> Step {
        let sense = SenseData::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
        Step::Done(Response::check(&sense, SenseFormat::Fixed))
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer { len } => write!(f, "Buffer({len})"),
            Self::DataOut { len } => write!(f, "DataOut({len})"),
            Self::Store { op, .. } => write!(f, "Store({op:?})"),
            Self::Done(response) => write!(f, "Done({response:?})"),
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("command", &self.command).finish_non_exhaustive()
    }
}
