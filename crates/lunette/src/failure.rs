//! Failures of the command: the message and the exit code.

use std::fmt::Display;
use std::io::{self, Write as _};

use lunette_initiator::redacted;

/// A reason to end, one per exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The arguments contradict each other. `clap` finds other mistakes and exits with the same code.
    #[error("{0}")]
    Usage(String),
    /// The configuration file or a secret cannot be used.
    #[error("{0}")]
    Configuration(String),
    /// A portal cannot be opened.
    #[error("{0}")]
    Address(String),
    /// A disk cannot be opened.
    #[error("{0}")]
    Disk(String),
    /// A read or write failed while a disk was copied.
    #[error("{0}")]
    Transfer(String),
    /// A copy differs from its source.
    #[error("{0}")]
    Mismatch(String),
    /// The target was lost in the middle of a measurement.
    #[error("{0}")]
    Lost(String),
    /// Any other failure.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    pub(crate) fn configuration(what: impl Display) -> Self {
        Self::Configuration(what.to_string())
    }

    pub(crate) fn disk(what: impl Display) -> Self {
        Self::Disk(what.to_string())
    }

    pub(crate) fn other(what: impl Display) -> Self {
        Self::Other(what.to_string())
    }

    /// A thread, or what one needs, cannot be had.
    pub(crate) fn no_thread(error: impl Into<io::Error>) -> Self {
        let error = error.into();
        Self::Other(format!("cannot start a thread: {error}{}", lunette_files::remedy_to_start(&error)))
    }

    /// Adds to the message.
    pub(crate) fn with(mut self, more: &str) -> Self {
        let (Self::Usage(text)
        | Self::Configuration(text)
        | Self::Address(text)
        | Self::Disk(text)
        | Self::Transfer(text)
        | Self::Mismatch(text)
        | Self::Lost(text)
        | Self::Other(text)) = &mut self;
        text.push_str(more);
        self
    }

    /// The exit codes, as each subcommand's help lists them.
    fn code(&self) -> u8 {
        match self {
            Self::Other(_) => 1,
            Self::Usage(_) => 2,
            Self::Configuration(_) => 3,
            Self::Address(_) => 4,
            Self::Disk(_) => 5,
            Self::Transfer(_) => 6,
            Self::Mismatch(_) => 7,
            Self::Lost(_) => 8,
        }
    }

    /// Prints the message, without passwords of URLs, on standard error and gives the exit code.
    pub(crate) fn report(self) -> u8 {
        // The exit code tells it, too, where standard error takes nothing.
        let _ = writeln!(io::stderr(), "lunette: {}", redacted(&self.to_string()));
        self.code()
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn the_remedy_for_a_missing_thread_follows_the_error() {
        for (errno, expected) in
            [(Errno::AGAIN, "ulimit -u"), (Errno::MFILE, "ulimit -n"), (Errno::NFILE, "fs.file-max")]
        {
            let said = Failure::no_thread(errno).to_string();
            assert_eq!(said.matches("; ").count(), 1, "{said}");
            assert!(said.contains(expected), "{said}");
        }
    }
}
