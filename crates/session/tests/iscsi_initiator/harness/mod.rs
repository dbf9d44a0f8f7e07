//! A session of the initiator under a virtual clock, with one of two targets at the other end: [`Pair`] has ours, [`Liar`] one
//! that says whatever a test wants.

mod crew;
mod disk;
mod lanes;
mod liar;
mod pair;
mod setup;
mod storm;

pub(crate) use crew::Crew;
pub(crate) use disk::{LUN, exchange, read, write};
pub(crate) use lanes::Bundle;
pub(crate) use liar::{Liar, Sent};
pub(crate) use pair::{Dice, Pair};
pub(crate) use setup::{INITIATOR, TARGET, config, credentials, entropy, node, pattern};
pub(crate) use storm::Storm;
