//! How a command runs: its handler is an `async fn` without an executor, which its task resumes step by step.

pub(crate) mod background;
pub(crate) mod channel;
mod step;
pub(crate) mod workspace;

use lunette_buffer::Buffer;
use lunette_scsi::SenseData;

pub use background::BackgroundTask;
pub use step::{Input, Step, Work};

/// The result of a handler: Data-In for the initiator, GOOD without data, or sense data.
pub(crate) type Reply = Result<Option<Buffer>, SenseData>;
