//! Two network namespaces, a device in each, and the relay between them.

mod namespace;
mod pair;
mod relay;
pub(crate) mod sys;
mod tun;
mod veth;

pub(crate) use pair::{End, Pair};
pub(crate) use relay::{OneWay, Relay, Relayed};
pub(crate) use veth::{Ethernet, STATIONS};
