//! What the process needs from the system: logging, signals, file descriptors.

use std::io::{self, ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::thread;

use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::reload::Reloader;

/// Logs to standard error; `RUST_LOG` chooses what (default: `info`).
pub(crate) fn start_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
}

/// A session is a descriptor; the usual soft limit of 1,024 is less than a target needs.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// The first SIGTERM or SIGINT calls `stop`, which stops in order, the second at once.
pub(crate) fn stop_on_signals(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::Builder::new().name("lunette-signals".into()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            if std::mem::replace(&mut asked, true) {
                std::process::exit(128 + signal);
            }
            stop();
        }
    })?;
    Ok(())
}

/// Why a server cannot listen on a TCP address, and what to do about it.
pub(crate) fn listen_failure(address: SocketAddr, error: &io::Error) -> Failure {
    let what = match error.kind() {
        ErrorKind::AddrInUse => "the address is in use; stop the other server, or choose another port",
        ErrorKind::AddrNotAvailable => "the address does not belong to this machine",
        ErrorKind::PermissionDenied => "permission denied; ports below 1024 need privileges",
        _ => return Failure::Address(format!("cannot listen on {address}: {error}")),
    };
    Failure::Address(format!("cannot listen on {address}: {what}"))
}

/// Holds SIGHUP back until there is something to reload. From here on it does not end the process, however long the start
/// takes.
pub(crate) fn hold_hangups() -> io::Result<Hangups> {
    Signals::new([SIGHUP]).map(Hangups)
}

/// SIGHUPs that have come, and will.
pub(crate) struct Hangups(Signals);

/// Each SIGHUP reads the configuration again, on a thread of its own: a disk that is slow to open does not delay a stop.
pub(crate) fn reload_on_signal(hangups: Hangups, mut reloader: Option<Reloader>) -> io::Result<()> {
    let Hangups(mut signals) = hangups;
    thread::Builder::new().name("lunette-reload".into()).spawn(move || {
        for _ in signals.forever() {
            if let Some(reloader) = &mut reloader {
                reloader.reload();
            } else {
                tracing::warn!("SIGHUP: there is no configuration file to read again; start with --config");
            }
        }
    })?;
    Ok(())
}
