//! The client against a target in the same process, with a wire between them that can be cut.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod back_pressure;
mod both_ways;
mod counts;
mod disks;
mod examples;
mod files;
mod idle;
mod loss;
mod markers;
mod peers;
mod recovery;
mod rig;
mod sessions;
mod several;
mod stores;
mod task_management;
