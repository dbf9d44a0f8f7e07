//! Results on standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::thread;

use serde::Serialize;

use crate::failure::Failure;

/// Prints a line. A reader that closes the pipe early (`| head`) is not a failure.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::other(format_args!("standard output: {error}{}", lunette_files::remedy(&error))))
        }
        _ => Ok(()),
    }
}

/// Prints a line on standard error. One that takes nothing, such as a pipe whose reader is gone, is no failure.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints lines by which clients find what is served; `what` names them in the log. A thread of its own prints, because
/// standard output may be a pipe that nothing reads, and neither that nor a failure is a reason to serve nothing.
pub(crate) fn announce(what: &'static str, lines: Vec<String>) -> Result<(), Failure> {
    let print = move || {
        let mut out = io::stdout().lock();
        let printed = lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
        if let Err(error) = printed {
            tracing::warn!(%error, "{what} cannot be printed on standard output");
        }
    };
    thread::Builder::new().name("lunette-urls".into()).spawn(print).map(drop).map_err(Failure::no_thread)
}

/// Prints a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(serde_json::to_string(value).map_err(Failure::other)?)
}
