//! The state of an event loop that a session driver works on.

use std::sync::Arc;

use lunette_reactor::{ConnectionId, Context};
use lunette_session::{SharedTraffic, Time};

use super::host::Host;
use super::queue::Queue;

/// The parts of the event loop that a session driver uses.
pub(super) struct Env<'a, 'b> {
    pub(super) cx: &'a mut Context<'b>,
    pub(super) now: Time,
    pub(super) queue: &'a Arc<Queue>,
    /// Connections that were adopted and are not in `by_connection` yet.
    pub(super) adopted: &'a mut Vec<ConnectionId>,
    pub(super) traffic: &'a SharedTraffic,
    pub(super) host: &'a Host,
}
