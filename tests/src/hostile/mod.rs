//! Random walks of hostile peers against the programs that ship: hostile initiators against `lunette serve`, and a
//! hostile target against the commands and the library of the client.
//!
//! One seed is one walk. A walk sends valid and nearly valid PDUs, stops in the middle, does not read, does not answer,
//! and leaves in all ways. The other side must always meet a few requirements: it neither panics nor hangs, it serves
//! well-behaved peers, what it holds is bounded, and it releases that when the peer is gone.
//!
//! - `initiator` is the hostile initiator, with its moves in `commands`, `requests` and `breaks`; `session` holds its
//!   knowledge, `login` its logins, `wire` its socket, and `dice` its random numbers.
//! - `witness` is the well-behaved initiator beside it, `server` the server, and `against_server` runs many walks
//!   against one.
//! - `target` is the hostile target, which departs from the answers of a correct one by `lies`; `clients` are those
//!   that meet it, and `against_clients` runs many walks at a time.

mod against_clients;
mod against_server;
mod breaks;
mod clients;
mod commands;
pub(crate) mod dice;
mod fault;
mod initiator;
mod lies;
mod login;
mod requests;
mod server;
mod session;
mod target;
mod wire;
mod witness;

use std::thread;

use clap::{Parser, ValueEnum};

pub use fault::Tally;

/// Random walks of hostile peers against the server and the client.
#[derive(Debug, Parser)]
#[command(name = "lunette-hostile")]
pub struct Arguments {
    /// Walks on each side.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
    /// Side that is attacked.
    #[arg(long, value_enum, default_value_t = Side::Both)]
    side: Side,
    /// Make only the walk of this seed, and show all that happens in it; needs a side.
    #[arg(long, value_name = "SEED")]
    trace: Option<u64>,
}

/// The side that is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    Target,
    Initiator,
    Both,
}

/// Makes the walks and reports faults on standard error.
pub fn run(arguments: &Arguments) -> Tally {
    let seeds = || arguments.first..arguments.first.saturating_add(arguments.seeds);
    let on_target = || arguments.trace.map_or_else(|| against_server::run(seeds()), against_server::trace);
    let on_initiator = || arguments.trace.map_or_else(|| against_clients::run(seeds()), against_clients::trace);
    match arguments.side {
        Side::Target => on_target(),
        Side::Initiator => on_initiator(),
        // Both sides wait most of their time.
        Side::Both => thread::scope(|scope| {
            let clients = scope.spawn(on_initiator);
            let mut tally = on_target();
            tally.add_all(clients.join().expect("a campaign does not panic"));
            tally
        }),
    }
}
