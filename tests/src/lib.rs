//! Helpers that the tests in `tests/` share: a listening `lunette serve`, targets of other projects, external tools
//! with a time limit, and logins of scripted initiators.
//!
//! The tests run a build of the command, which `cargo xtask test` makes; the variable
//! `LUNETTE_BIN` selects another one. All traffic stays on the loopback interface.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "every io::Error here is what the connection said")]

mod api;
mod browser;
mod ceph;
mod configured;
pub mod csi_node;
pub mod disks;
mod durability;
pub mod failover;
mod foreign;
pub mod handover;
pub mod hostile;
mod initiator;
mod island;
pub mod keys;
mod mount;
pub mod pools;
mod process;
mod random;
pub mod sanity;
mod server;
mod tool;
pub mod volumes;
pub mod walks;

pub use api::{Answer, Api};
pub use browser::Browser;
pub use ceph::{Ceph, Image, Namespace};
pub use configured::Configured;
pub use durability::Durable;
pub use foreign::{Foreign, TARGET_USER, USER, free_address};
pub use initiator::{LoginKeys, NAME, attach, chap_login, log_in, login_request};
pub use island::Island;
pub use mount::Mount;
pub use process::{Owned, Process, signal, stop, wait_at_most, wait_until};
pub use random::{random_bytes, random_file};
pub use server::{DEFAULT_TARGET, Server, Upgrade, lunette, passing_socket};
pub use tool::{Ran, run, run_at_most};
