//! The initiator's session, driven as a reactor would drive it: against our own target, and against targets that lie.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test by panicking")]

mod aborts;
mod bidirectional;
mod chap;
mod commands;
mod connection_loss;
mod connections;
mod control;
mod damaged_data;
mod data_order;
mod fast_abort;
mod garbage;
mod harness;
mod lengths;
mod login;
mod lost_data;
mod lost_statuses;
mod markers;
mod protocol_errors;
mod random_load;
mod retries;
mod sam5;
mod text;
mod two_ways;
