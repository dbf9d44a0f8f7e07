//! The facts that a connection begins with.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::directory::Directory;
use crate::{Entropy, Timers};

/// The facts about the portal that a connection needs.
#[derive(Clone)]
pub struct ConnectionConfig {
    /// The targets, as they are now.
    pub directory: Arc<Directory>,
    /// Our address on this connection.
    pub local: SocketAddr,
    /// The initiator's.
    pub peer: IpAddr,
    /// The portal group of the portal.
    pub portal_group: u16,
    /// How long to wait.
    pub timers: Timers,
    /// Fresh random bytes.
    pub entropy: Entropy,
}
