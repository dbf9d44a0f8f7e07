//! Secrets are read from files, because other users of the machine can read arguments.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lunette_session::Secret;

/// The longest file that is read as a secret.
const MAX_SECRET_BYTES: u64 = 1024;

/// Why a file gives no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The file cannot be read.
    #[error("{}: {source}", file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is longer than any secret.
    #[error("{}: {len} bytes are too long for a secret (at most {MAX_SECRET_BYTES})", file.display())]
    TooLong {
        /// The path of the file.
        file: PathBuf,
        /// The length of the file, in bytes.
        len: u64,
    },
    /// The file is empty.
    #[error("{}: the file is empty; put the secret into it", file.display())]
    Empty {
        /// The path of the file.
        file: PathBuf,
    },
}

/// Reads a secret: the content of the file without trailing line ends.
///
/// # Errors
///
/// [`SecretError`], which names the file.
pub fn read_secret(file: &Path) -> Result<Secret, SecretError> {
    let unreadable = |source| SecretError::Unreadable { file: file.into(), source };
    let len = fs::metadata(file).map_err(unreadable)?.len();
    if len > MAX_SECRET_BYTES {
        return Err(SecretError::TooLong { file: file.into(), len });
    }
    let mut bytes = fs::read(file).map_err(unreadable)?;
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Err(SecretError::Empty { file: file.into() });
    }
    Ok(Secret::new(bytes))
}
