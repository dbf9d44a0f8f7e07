//! Secrets are read from files, because other users of the machine can read arguments.

use std::path::{Path, PathBuf};

use lunette_files::{Content, FileProblem};
use lunette_session::Secret;

/// The longest file that is read as a secret.
const SECRET: Content = Content { name: "a secret", max_bytes: 1024 };

/// Why a file gives no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The file is not read: the system refuses, it is no regular file, or it is longer than any secret.
    #[error(transparent)]
    File(#[from] FileProblem),
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
    let mut bytes = lunette_files::read_secret(file, SECRET)?;
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Err(SecretError::Empty { file: file.into() });
    }
    Ok(Secret::new(std::mem::take(&mut *bytes)))
}
