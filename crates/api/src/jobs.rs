//! Jobs: actions of the server that take longer than a request.
//!
//! - [`job`] is one job as a state machine, which gets the time from its caller.
//! - `registry` keeps a bounded number of jobs, and decides which one runs next.
//! - [`work`] joins both with what a job does: it begins the work, takes its reports and tells the events.
//!
//! Jobs are kept in memory and end with the server.

pub mod job;
mod registry;
pub mod work;

pub use job::{Job, JobKind, JobOrder, JobState, Outcome};
pub use work::{JobRun, Jobs};
