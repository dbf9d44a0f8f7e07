//! The running server: what it serves of a configuration, how that changes, and what it tells of it.

pub(crate) mod adapters;
pub(crate) mod attempts;
pub(crate) mod certificates;
pub(crate) mod clones;
pub(crate) mod control_plane;
pub(crate) mod counts;
pub(crate) mod gateways;
pub(crate) mod handover;
pub(crate) mod metrics;
pub(crate) mod nbd;
pub(crate) mod opening;
pub(crate) mod portals;
pub(crate) mod recovery;
pub(crate) mod reload;
pub(crate) mod served;
pub(crate) mod start_log;
pub(crate) mod this_machine;
pub(crate) mod unit;
pub(crate) mod volumes;
