//! A whole target in this process, over the loopback interface: what its parts promise each other, kept by the driver.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod aborts;
mod at_once;
mod background;
mod buffers;
mod changes;
mod common;
mod connections;
mod cores;
mod direct_receive;
mod fast_abort;
mod files;
mod freezes;
mod hostile;
mod idle;
mod loans;
mod masking;
mod nexuses;
mod nothing_left_behind;
mod ordering;
mod portals;
mod preempt;
mod reactor_thread;
mod recovery;
mod relogin;
mod resets;
mod retained_data;
mod sam5;
mod silent_stores;
mod slow_peers;
mod standstill;
mod stop;
mod stores;
mod templates;
