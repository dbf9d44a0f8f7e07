//! The way to the peer: how long its datagrams may be, and where it ends.

pub mod address;
pub mod mtu;

pub use address::{Address, PeerAddress};
pub use mtu::PathMtu;
