//! A session of the initiator under a virtual clock, with one of two targets at the other end: [`Pair`] and
//! [`MultiPair`] have ours, [`ScriptedTarget`] and [`ScriptedSession`] one that says whatever a test wants.

mod disk;
mod multi_pair;
mod pair;
mod scripted_session;
mod scripted_target;
mod setup;
mod storm;

pub(crate) use disk::{LUN, exchange, read, write};
pub(crate) use lunette_testkit::{Dice, pattern};
pub(crate) use multi_pair::MultiPair;
pub(crate) use pair::Pair;
pub(crate) use scripted_session::ScriptedSession;
pub(crate) use scripted_target::{ScriptedTarget, Sent};
pub(crate) use setup::{INITIATOR, TARGET, config, credentials, entropy, node};
pub(crate) use storm::Storm;
