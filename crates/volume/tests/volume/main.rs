//! Encrypted volumes over stores that keep, lose, damage and fail what is written to them.

mod common;
mod model;
