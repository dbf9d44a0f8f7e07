//! Filters: stores over another store, for tests and tools. Each changes one aspect and passes the rest on.

mod delay;
mod fault;
mod gated;
mod power_loss;
mod read_only;
mod trace;

pub use delay::Delay;
pub use fault::{Fault, Rule};
pub use gated::{ClosedGate, Gated, Turns, WriteGate};
pub use power_loss::PowerLoss;
pub use read_only::ReadOnly;
pub use trace::{MAX_RECORDS, Record, Trace};
