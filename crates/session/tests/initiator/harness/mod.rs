//! A session of the initiator under a virtual clock, with our target at the other end.

mod disk;
mod pair;
mod setup;

pub(crate) use disk::{read, write};
pub(crate) use pair::Pair;
pub(crate) use setup::{config, node, pattern};
