//! The device server, driven command by command over a store in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod atomic;
mod attentions;
mod block_sizes;
mod copy;
mod counts;
mod data;
mod decoders;
mod describe;
mod files;
mod fixture;
mod freeze;
mod gateways;
mod handover;
mod identifying;
mod inventory;
mod log;
mod long_cdbs;
mod lun_maps;
mod medium_changes;
mod mode;
mod not_ready;
mod port_groups;
mod properties;
mod quanta;
mod removable;
mod reservations;
mod sanitize;
mod scrub;
mod thin;
mod thresholds;
mod tokens;
mod writes;
