//! Limits on what initiators and portals can make a tunnel keep or wait for.

use std::time::Duration;

/// Connections of initiators at a time. Each has one to a portal.
pub(super) const MAX_CONNECTIONS: usize = 512;

/// Portals that the tunnel leads to, each with a listener of its own.
pub(super) const MAX_PORTALS: usize = 64;

/// Addresses that are known of one portal.
pub(super) const MAX_ADDRESSES: usize = 16;

/// The time from the initiator's connection until TLS with the portal stands.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Attempts to connect at a time, those that were given up among them: each has a thread.
pub(super) const MAX_DIALS: usize = 512;

/// Bytes of one direction that wait for their receiver, beyond which the sender is not read from. One receive may come
/// on top.
pub(super) const MAX_WAITING_BYTES: usize = 256 << 10;

/// Bytes of a direction's buffer that stay when nothing waits.
pub(super) const IDLE_BUFFER_BYTES: usize = 4 << 10;
