//! The process's dealings with the system: signals, file descriptors.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread;

use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use signal_hook::consts::{SIGALRM, SIGINT, SIGIO, SIGPROF, SIGTERM, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Raises the limit of open files. A session takes a descriptor, and the usual soft limit of 1,024 is less than a
/// target needs.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Keeps the secrets of this process out of core dumps. The log tells when that is not possible.
pub(crate) fn protect_secrets() {
    if let Err(error) = lunette_keys::protect_process() {
        tracing::warn!(%error, "a core dump of this process would show its secrets");
    }
}

/// Makes the first SIGTERM or SIGINT call `stop`, for an orderly end, and the second end the process at once.
pub(crate) fn stop_on_signals(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::Builder::new().name("lunette-signals".into()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            if std::mem::replace(&mut asked, true) {
                // Other threads go on, so nothing that they use may be destroyed.
                lunette_rbd::exit_now(u8::try_from(128 + signal).unwrap_or(u8::MAX));
            }
            stop();
        }
    })?;
    Ok(())
}

/// The failure of listening on a TCP address, with advice.
pub(crate) fn listen_failure(address: SocketAddr, error: &io::Error) -> Failure {
    let what = match error.kind() {
        ErrorKind::AddrInUse => "the address is in use; stop the other server, or choose another port",
        ErrorKind::AddrNotAvailable => "the address does not belong to this machine",
        ErrorKind::PermissionDenied => "permission denied; ports below 1024 need privileges",
        _ => return Failure::Address(format!("cannot listen on {address}: {error}")),
    };
    Failure::Address(format!("cannot listen on {address}: {what}"))
}

/// Lets a write beyond the limit of file sizes fail with EFBIG, which is reported as any other failure. By default the
/// process gets SIGXFSZ, which ends it.
pub(crate) fn let_long_writes_fail() -> io::Result<()> {
    outlive(SIGXFSZ)
}

/// Signals that end a process by default and ask a server for nothing.
fn harmless() -> impl Iterator<Item = i32> {
    let named = [SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXCPU, SIGXFSZ];
    named.into_iter().chain([Signal::POWER.as_raw(), Signal::STKFLT.as_raw()]).chain(REAL_TIME)
}

/// Signals of real time that glibc leaves to programs; 32 and 33 are its own.
const REAL_TIME: RangeInclusive<i32> = 34..=64;

/// Lets the process outlive signals that ask for nothing.
pub(crate) fn outlive_signals() -> io::Result<()> {
    harmless().try_for_each(outlive)
}

fn outlive(signal: i32) -> io::Result<()> {
    match signal_hook::flag::register(signal, Arc::default()) {
        // Another C library keeps more of them to itself.
        Err(error) if error.kind() == ErrorKind::InvalidInput && REAL_TIME.contains(&signal) => Ok(()),
        registered => registered.map(drop),
    }
}

/// A signal that no longer ends the process, held back until it can be answered.
pub(crate) struct Held(Signals);

/// Holds `signal` back. Starting may take long; signals that arrive meanwhile are answered after it.
pub(crate) fn hold(signal: i32) -> io::Result<Held> {
    Signals::new([signal]).map(Held)
}

impl Held {
    /// Calls `answer` for each signal, past and future, on a separate thread, so that a slow answer does not delay a
    /// stop.
    pub(crate) fn answer_with(self, thread: &str, mut answer: impl FnMut() + Send + 'static) -> io::Result<()> {
        let Self(mut signals) = self;
        thread::Builder::new().name(thread.into()).spawn(move || signals.forever().for_each(|_| answer()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_outlives_what_asks_for_nothing() {
        outlive_signals().unwrap();
        for signal in harmless() {
            signal_hook::low_level::raise(signal).unwrap();
        }
    }
}
