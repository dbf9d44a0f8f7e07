//! The options of a command's event loop.

use std::time::Duration;

use clap::Args;
use lunette_reactor::{IoBackend, LoopConfig};

/// The longest time that a loop polls before it sleeps: more brings no gain.
const MAX_BUSY_POLL_US: i64 = 100_000;

/// Options that most users leave alone.
#[derive(Args)]
pub(crate) struct EventLoop {
    /// The backend of the event loop; auto takes io_uring where the system allows it
    #[arg(long, value_enum, value_name = "BACKEND", default_value_t = Io::Epoll)]
    io: Io,
    /// Look for more for MICROSECONDS before sleeping: less latency, for all of a core
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=MAX_BUSY_POLL_US))]
    busy_poll: u32,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Io {
    Auto,
    Epoll,
    Uring,
}

impl EventLoop {
    /// Why this event loop lets no other process go on with its sockets, if it does not: a ring keeps requests of them.
    pub(crate) fn holds_up_handover(&self) -> Option<&'static str> {
        match self.io {
            Io::Epoll => None,
            Io::Auto | Io::Uring => Some("with io_uring no other process can go on; serve with --io epoll"),
        }
    }

    pub(crate) fn config(&self) -> LoopConfig {
        let io = match self.io {
            Io::Auto => IoBackend::Auto,
            Io::Epoll => IoBackend::Epoll,
            Io::Uring => IoBackend::Uring,
        };
        LoopConfig { io, busy_poll: Duration::from_micros(self.busy_poll.into()) }
    }
}
