//! Commands as tasks: their names, the data that is collected for them, and their order in the window of their session.
//!
//! Nothing here knows how bytes come or go: what is asked for and what has arrived are ranges of a task's data.

pub(super) mod data_out;
pub(super) mod known_task;
pub(super) mod task;
pub(super) mod window;
