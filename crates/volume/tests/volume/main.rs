//! Encrypted volumes over stores that keep, lose, damage and fail what is written to them.

mod common;
mod concurrency;
mod faults;
mod model;
mod power_loss;
mod tampering;
mod tools;
