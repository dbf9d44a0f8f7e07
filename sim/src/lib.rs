//! Initiators and a target as they ship, in one thread, under a virtual clock and over a network that breaks
//! everything.
//!
//! The target's cores and the initiators' event loop are those of `lunette-target` and `lunette-initiator`: they are
//! stepped instead of run, over socket pairs whose other ends a simulated network holds, or with datagrams that it
//! carries. A run is drawn from a seed, and one seed gives one run: parameters, load, network, faults, the order in
//! which cores take their turns and all random numbers come from the same dice, and time is a number. An `oracle` knows
//! every command and the writer of each block, and checks on the way:
//!
//! - a write runs once when it is answered GOOD, not at all when it is answered with an error, and twice at most when
//!   its initiator may repeat it;
//! - nothing of a command happens after its end: after its answer, after the login that follows the loss of its
//!   session; when a task management function is answered, no store works for what it has ended;
//! - a write does not run while another initiator holds a reservation, nor once its initiator is preempted;
//! - every byte of data is that of its command, on both sides; a read finds the last acknowledged write or a later one;
//! - neither side finds fault with the other, unless a byte was changed on its way, and neither logs a fault of its
//!   own;
//! - another server may take the place of the target, or be gone on the way: nothing but a pause shows it, where
//!   sessions can go over; nothing works for any session meanwhile, and no unit says that it was reset;
//! - everything comes to an end: no session, no task, no buffer is left, also when the target is stopped under load and
//!   started again.
//!
//! `gateways` is another world of its own, in which several gateways to one disk fail over.

#![forbid(unsafe_code)]

mod campaign;
mod certificates;
mod clients;
mod datagrams;
mod dice;
mod env;
mod fault;
mod frames;
mod freezes;
mod gateways;
mod medium;
mod network;
mod oracle;
mod records;
mod scenario;
mod server;
mod store;
mod tally;
mod watch;
mod wire;
mod world;

pub use campaign::{Campaign, Failure, Report, SetupReport};
pub use fault::FaultKind;
pub use gateways::{GatewayRun, GatewayTally, gateway_campaign, run_gateways};
pub use tally::Tally;
pub use world::{Run, run};

/// The transport of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// TCP: iSCSI's recovery levels, with one and several connections.
    Tcp = 0,
    /// The Effective Cross Layer.
    Ecl = 1,
    /// TLS over TCP, in which nothing is changed without being noticed.
    Tls = 2,
}

impl Transport {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Tls, Self::Ecl];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Ecl => "ecl",
            Self::Tls => "tls",
        }
    }

    /// The transport as the initiator knows it, for which TLS is another option.
    pub(crate) fn of_initiator(self) -> lunette_initiator::Transport {
        match self {
            Self::Tcp | Self::Tls => lunette_initiator::Transport::Tcp,
            Self::Ecl => lunette_initiator::Transport::Ecl,
        }
    }

    /// Whether sessions run over datagrams, and not over streams.
    pub(crate) fn is_of_datagrams(self) -> bool {
        match self {
            Self::Tcp | Self::Tls => false,
            Self::Ecl => true,
        }
    }
}

/// The settings that are not drawn from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// The transport of the sessions.
    pub transport: Transport,
    /// ErrorRecoveryLevel that both sides offer.
    pub level: u32,
    /// Connections of the session.
    pub connections: u32,
}
