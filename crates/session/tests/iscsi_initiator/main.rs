//! The initiator's session, driven as a reactor would drive it: against our own target, and against targets that lie.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test by panicking")]

mod harness;

mod aborts;
mod both_ways;
mod chap;
mod commands;
mod control;
mod fast_abort;
mod garbage;
mod lengths;
mod lies;
mod login;
mod lost;
mod lost_data;
mod lost_statuses;
mod markers;
mod orders;
mod pair;
mod retries;
mod sam5;
mod several;
mod storm;
mod text;
