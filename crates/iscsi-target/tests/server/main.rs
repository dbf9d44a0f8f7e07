//! A whole target in this process, over the loopback interface: what its parts promise each other, kept by the driver.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod aborts;
mod background;
mod buffers;
mod changes;
mod common;
mod cores;
mod fast_abort;
mod files;
mod hostile;
mod idle;
mod kept;
mod leaks;
mod lent;
mod nexuses;
mod ordering;
mod places;
mod portals;
mod preempt;
mod reactor_thread;
mod recovery;
mod relogin;
mod resets;
mod sam5;
mod several;
mod silent_stores;
mod slow_peers;
mod stop;
mod stores;
