//! The handover of a running server to another process, usually of a newer build: sessions go on.
//!
//! | room | side |
//! |---|---|
//! | [`leaving`] | the process that runs: it starts its successor, comes to a standstill, and sends what it has |
//! | [`taking`] | the successor: it starts as always, with what it is sent |
//! | [`door`] | where `lunette upgrade` asks the running process for it |
//!
//! `lunette_handover::channel` says when which of the two owns the sessions. What cannot go on in another process is
//! refused before anything stands still, or is counted as lost; `docs/upgrades.md` has both lists.

mod door;
mod leaving;
mod taking;

pub(crate) use door::{Outcome, ask, open, servers};
pub(crate) use leaving::{Leaving, What};
pub(crate) use taking::{Left, Predecessor};

/// The variable that tells a process that its standard input leads to its predecessor.
const VARIABLE: &str = "LUNETTE_HANDOVER";
