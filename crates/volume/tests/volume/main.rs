//! Encrypted volumes over stores that keep, lose, damage and fail what is written to them.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod anchor;
mod awaited;
mod common;
mod concurrency;
mod faults;
mod model;
mod order;
mod parity;
mod power_loss;
mod rot;
mod tampering;
mod together;
mod tools;
