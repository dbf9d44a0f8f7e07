//! The client against a target in the same process, with a relay between them that can be cut.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod back_pressure;
mod bidirectional;
mod connection_loss;
mod connections;
mod counts;
mod disks;
mod examples;
mod files;
mod fixture;
mod idle;
mod markers;
mod paths;
mod recovery;
mod scripted_targets;
mod sessions;
mod stores;
mod task_management;
