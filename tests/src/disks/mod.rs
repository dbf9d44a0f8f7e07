//! Random walks of what happens to the file below a disk, with a disk that is read and written meanwhile.
//!
//! One seed is one walk: on a file system of its own, a file grows, is cut, replaced, gets odd lengths, finds no space,
//! is mounted again; the file system fails; the server is reloaded, stopped and killed. What must hold:
//!
//! - what was acknowledged and flushed is there, and what was acknowledged, as long as the file system does not fail;
//! - no read returns anything else than was written, and beyond the end of a file there are no zeroes but errors;
//! - the server starts again, whatever has happened;
//! - a change that is refused takes no space.
//!
//! - `model` knows what each block may hold, `ground` is the file system with the server over it, and `walk` makes the
//!   steps.

mod ground;
mod model;
mod walk;

use crate::walks::{self, Arguments, Tally};

/// Makes the walks.
pub fn run(arguments: &Arguments) -> Tally {
    walks::run(arguments, walk::walk)
}
