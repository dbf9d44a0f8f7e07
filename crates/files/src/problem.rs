//! Why a file is not read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::geteuid;

use crate::Content;

/// A file that is not read: its path, the reason, and the remedy. The message never quotes the file.
#[derive(Debug, thiserror::Error)]
pub struct FileProblem {
    /// The path.
    pub path: PathBuf,
    /// The expected content of the file.
    pub content: Content,
    /// The reason.
    pub reason: Reason,
}

/// The reason for which a file is not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The system's.
    System(io::Error),
    /// The path leads to something else than a regular file, which has this name.
    NotRegular(&'static str),
    /// A pipe that has nothing in it, or has been read already.
    Ended,
    /// The file is longer than its content may be.
    TooLong,
    /// The bytes from this one on are not UTF-8.
    NotText(usize),
}

impl FileProblem {
    pub(crate) fn new(path: &Path, content: Content, reason: Reason) -> Self {
        Self { path: path.into(), content, reason }
    }

    /// A problem of the system with a file that was opened in another way.
    pub fn of(path: &Path, content: Content, error: io::Error) -> Self {
        Self::new(path, content, Reason::System(error))
    }

    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(&self.reason, Reason::System(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// The reason and the remedy, without the path.
    pub fn why(&self) -> String {
        Why(self).to_string()
    }

    /// The problem as an error of the system, whose message leaves out the path.
    pub fn into_io(self) -> io::Error {
        let kind = match &self.reason {
            Reason::System(error) => error.kind(),
            Reason::TooLong => io::ErrorKind::FileTooLarge,
            Reason::NotRegular(_) | Reason::NotText(_) | Reason::Ended => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, self.why())
    }
}

/// The text of [`FileProblem::why`].
struct Why<'a>(&'a FileProblem);

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), Why(self))
    }
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileProblem { content: Content { name, max_bytes }, reason, .. } = self.0;
        match reason {
            Reason::System(error) if error.kind() == io::ErrorKind::NotFound => {
                write!(f, "No such file or directory; create it with {name} in it, or correct the path")
            }
            Reason::System(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let user = geteuid().as_raw();
                write!(f, "Permission denied; let the user {user} read the file and pass its folders")
            }
            Reason::System(error) => write!(f, "{name} cannot be read: {error}{}", remedy(error)),
            Reason::NotRegular(kind) => write!(f, "this is {kind}; name a regular file that holds {name}"),
            Reason::Ended => write!(f, "this pipe has ended; name a regular file that holds {name}"),
            Reason::TooLong => write!(f, "too long for {name}, which has {max_bytes} bytes at most; name another file"),
            Reason::NotText(byte) => write!(f, "not UTF-8 from byte {byte} on; write {name} as text in UTF-8"),
        }
    }
}

/// The remedy for an error of the system, as the end of a message that names the file: nothing, or a part that begins
/// with a semicolon.
pub fn remedy(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => return "; allow more open files (ulimit -n, or LimitNOFILE= of the service)",
        Some(Errno::NFILE) => return "; let the system have more open files (sysctl fs.file-max)",
        _ => {}
    }
    match error.kind() {
        io::ErrorKind::NotFound => "; create what is missing of its path, or correct the path",
        io::ErrorKind::PermissionDenied => "; let the user that runs this have access, or run it as another user",
        io::ErrorKind::StorageFull => "; free space on its file system, or choose another place",
        io::ErrorKind::QuotaExceeded => {
            "; the user's share of its file system is used up: free space, or have the quota raised"
        }
        io::ErrorKind::FileTooLarge => {
            "; its file system, or the limit of this process (ulimit -f), allows no file of that length"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; its file system is mounted read only: remount it, or choose another place"
        }
        io::ErrorKind::NotADirectory => "; a part of its path is no folder: correct the path",
        io::ErrorKind::BrokenPipe => "; the program that reads it has ended: see why there",
        _ => "",
    }
}

/// The remedy for a thread or an event loop that cannot be started, like [`remedy`].
pub fn remedy_to_start(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::WouldBlock => "; allow more tasks (ulimit -u, or TasksMax= of the service)",
        _ => remedy(error),
    }
}
