//! The reasons why a state file cannot be opened, read or written, each with its remedy.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A reason why a state file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenStateError {
    /// Another process has the file open.
    #[error("{path}: the state file is in use; stop the other process, or choose another file", path = .0.display())]
    InUse(PathBuf),
    /// The file is something else.
    #[error("{path}: that is no state file; name another file, or one that is not there yet", path = .0.display())]
    Foreign(PathBuf),
    /// The file is cut off, or its content contradicts itself.
    #[error(
        "{path}: the state file is damaged ({what}); put a copy of it back, or move it away: the server then starts \
         without its reservations and saved mode pages",
        path = .path.display()
    )]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The words of the database.
        what: String,
    },
    /// Another file has taken the path of the open file.
    #[error(
        "{path}: another file has taken the place of the state file; move it away, or start the server again to use it",
        path = .0.display()
    )]
    Replaced(PathBuf),
    /// A missing folder, no permission, or another failure.
    #[error("{path}: {what}", path = .path.display())]
    Failed {
        /// The path of the file.
        path: PathBuf,
        /// The words of the database or the system, with the remedy.
        what: String,
    },
}

impl OpenStateError {
    pub(super) fn of_system(path: &Path, error: &io::Error) -> Self {
        let remedy = lunette_files::remedy(error);
        Self::Failed { path: path.into(), what: format!("{error}{remedy}") }
    }

    pub(super) fn of_database(path: &Path, error: redb::Error) -> Self {
        let damaged = |what| Self::Damaged { path: path.into(), what };
        match error {
            redb::Error::DatabaseAlreadyOpen => Self::InUse(path.into()),
            redb::Error::Io(error) if error.kind() == ErrorKind::InvalidData => Self::Foreign(path.into()),
            redb::Error::Io(error) if error.kind() == ErrorKind::UnexpectedEof => damaged("it is cut off".into()),
            redb::Error::Io(error) => Self::of_system(path, &error),
            redb::Error::Corrupted(what) => damaged(what),
            error => Self::Failed { path: path.into(), what: error.to_string() },
        }
    }
}
