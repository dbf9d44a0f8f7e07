//! Initiator and target of `session` in one process, under a virtual clock and over a network that breaks everything.
//!
//! A run is drawn from a seed, and one seed gives one run: parameters, load, network and faults come from the same dice, time
//! is a number, and nothing else decides. An `oracle` knows every command and who wrote each block, and checks on the way:
//!
//! - a command is delivered once, in the order of its number, and runs at most once; exactly once when it is answered GOOD,
//!   not at all when it is answered with an error;
//! - nothing of a command happens after its end: after the answer to a task management function that concerns it, after the
//!   news that others have ended it, after the login that follows the loss of its session; when such an answer comes, all that it
//!   concerns has ended;
//! - every byte of data is that of its command, on both sides; a read finds the last acknowledged write or a later one;
//! - neither side finds fault with the other, unless a byte was changed on its way;
//! - everything comes to an end, and no buffer is left.
//!
//! The drivers of the two sides (`client` and `server`) do what `session` asks of a driver, as `lunette-target` and
//! `lunette-initiator` do it with sockets.

#![forbid(unsafe_code)]

mod campaign;
mod client;
mod dice;
mod env;
mod fault;
mod frames;
mod medium;
mod oracle;
mod request;
mod scenario;
mod server;
mod tally;
mod wire;
mod world;

pub use campaign::{Campaign, Failure, Report, SetupReport};
pub use fault::FaultKind;
pub use tally::Tally;
pub use world::{Run, run};

/// What is not drawn from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// ErrorRecoveryLevel that both sides offer.
    pub level: u32,
    /// Connections of the session.
    pub connections: u32,
}
