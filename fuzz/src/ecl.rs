//! The Effective Cross Layer: datagrams to an association, and to both sides of a handshake.

pub mod association;
pub mod handshake;
mod peer;
