//! Results on standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

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

/// Prints a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(serde_json::to_string(value).map_err(Failure::other)?)
}
