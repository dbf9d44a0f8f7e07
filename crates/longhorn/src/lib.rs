//! Volumes of a Longhorn engine as stores.
//!
//! Layer 2: over buffer, store; under lunette.
//!
//! An engine of Longhorn (`longhorn-engine`, `pkg/dataconn`) serves one volume at a Unix socket. This crate is its
//! client, as the backing store `longhorn` of tgtd is.
//!
//! - [`LonghornName`] is the name of a volume: the socket, and the length, which the engine does not tell.
//! - `wire` is the format of messages, and [`LonghornStore`] the store.

#![forbid(unsafe_code)]

pub mod limits;
mod name;
mod store;
mod wire;

pub use name::{LonghornName, NameError};
pub use store::LonghornStore;
