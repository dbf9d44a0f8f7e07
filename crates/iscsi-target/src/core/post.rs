//! Messages between cores.

pub(crate) use lunette_reactor::Mailbox;

/// The core that listens, applies changes and leads the stop.
pub(crate) const FIRST: usize = 0;
