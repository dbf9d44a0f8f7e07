//! Random walks of what is done with volumes while their server is killed.
//!
//! One seed is one walk: on a file system of its own, a writer writes to two volumes in turn. Meanwhile snapshots are
//! taken, cloned, rolled back, sent and removed, and the server is killed in the midst of it. What must hold:
//!
//! - a snapshot has all that was acknowledged before it, and nothing that came after something that it lacks;
//! - a snapshot of two volumes has one instant, and is there for both or for none;
//! - the volumes have all that was acknowledged before the kill;
//! - a roll back has happened as a whole or not at all, and a received volume is whole or unfinished;
//! - nothing is left in the pool of what was begun.
//!
//! - `model` knows what a volume may hold, `ground` is the file system with the server over it, `writer` is the load,
//!   and `walk` makes the steps.

mod ground;
mod model;
mod walk;
mod writer;

use crate::walks::{self, Arguments, Tally};

/// Makes the walks.
pub fn run(arguments: &Arguments) -> Tally {
    walks::run(arguments, walk::walk)
}
