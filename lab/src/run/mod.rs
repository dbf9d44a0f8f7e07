//! The processes around a link, and `lunette-lab link`.
//!
//! The process that was started ([`outer`]) does nothing but wait. Its child ([`inner`]) is the first process of a
//! process namespace and does all of the work. The kernel ends it when its parent dies, however that happens, and with
//! it every process of the namespace, so nothing outlives the tool: namespaces and devices have no other owner.

pub(crate) mod children;
pub(crate) mod exchange;
pub(crate) mod inner;
pub(crate) mod outer;
pub(crate) mod report;

use std::process::ExitCode;

/// The exit status for an error of the tool itself, as `env` and `timeout` have it.
pub(crate) const FAILED: u8 = 125;
/// Added to the number of the signal that ended a command, as shells do.
const BY_SIGNAL: i32 = 128;

/// A status as a process has it: the system keeps eight bits.
fn exit_code(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status).unwrap_or(FAILED))
}
