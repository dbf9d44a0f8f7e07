//! A pair of a target's connection and an initiator that is played by hand. No socket, no thread, no real clock.
//!
//! [`Peer`] is the initiator; its PDUs go through a [`Driver`], which cuts the stream, answers events from a script and
//! owns the clock. Whatever the target sends is parsed and checked by a [`Checker`] before a test sees it.

mod checker;
mod driver;
mod peer;
mod requests;
mod setup;

pub(crate) use driver::{Cut, wrote};
pub(crate) use peer::Peer;
pub(crate) use requests::{
    command, data_out, login_request, nop_out, read, snack, solicited, task_management, text, text_request, write,
};
pub(crate) use setup::{INITIATOR, Setup, TARGET, node, only};

/// Bytes that tell where they belong.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}
