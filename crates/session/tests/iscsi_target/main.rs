//! The rules of the target's side, told by a scripted initiator under a virtual clock. One file per area.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test by panicking")]

mod harness;

mod bad_input;
mod changes;
mod chap;
mod commands;
mod damaged;
mod data_in;
mod data_order;
mod data_out;
mod digests;
mod discovery;
mod fast_abort;
mod handover;
mod known_digests;
mod limits;
mod login;
mod logout;
mod markers;
mod ping;
mod progress;
mod random;
mod recovery;
mod redirection;
mod reject;
mod sam5;
mod snack;
mod task_management;
mod text;
