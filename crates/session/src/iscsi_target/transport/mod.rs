//! Answers on their way out: cut into PDUs, numbered, and kept while they may have to be sent again.
//!
//! Knows [`tasks`](super::tasks) by what an answer repeats of them. Bytes in, and what both sides of the protocol
//! share, is in the crate's `receiver`, `outbox` and `markers`.

pub(super) mod answer;
mod held_answers;
mod retained;
pub(super) mod sender;
