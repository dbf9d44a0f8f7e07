//! The path of a state file, and the file there.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::error::OpenStateError;

/// The mode of the file: for its owner alone.
const PRIVATE: u32 = 0o600;

/// The relation of an open file to its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The path leads to it.
    InPlace,
    /// The path leads nowhere: the file was deleted.
    Gone,
    /// The path leads to another file.
    Replaced,
}

impl Standing {
    pub(super) fn of(file: &File, path: &Path) -> io::Result<Self> {
        let ours = file.metadata()?;
        match fs::metadata(path) {
            Ok(found) if (found.dev(), found.ino()) == (ours.dev(), ours.ino()) => Ok(Self::InPlace),
            Ok(_) => Ok(Self::Replaced),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::Gone),
            Err(error) => Err(error),
        }
    }
}

/// Opens the file, or makes one.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    match options().open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => options().create(true).open(path),
        Ok(file) => {
            if is_empty(&file)? {
                tracing::warn!(
                    path = %path.display(),
                    "the state file is empty; reservations and saved mode pages that it had are lost"
                );
            }
            Ok(file)
        }
        Err(error) => Err(error),
    }
}

/// Makes a file where none is.
pub(super) fn create(path: &Path) -> io::Result<File> {
    options().create_new(true).open(path)
}

/// Locks the file against other processes, as long as it is open.
pub(super) fn lock(file: &File, path: &Path) -> Result<(), OpenStateError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenStateError::InUse(path.into())),
        Err(TryLockError::Error(error)) => Err(OpenStateError::of_system(path, &error)),
    }
}

/// Others on the machine cannot read a new file, whatever the umask says: it has keys of reservations and the secret of
/// resets.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(PRIVATE);
    options
}

fn is_empty(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    Ok(metadata.is_file() && metadata.len() == 0)
}

/// Takes away the rights of others to a file that is there already.
pub(super) fn make_private(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.mode() & 0o777 & !PRIVATE != 0 {
        // Only its owner may do this, and another owner has chosen who reads it.
        let _ = file.set_permissions(Permissions::from_mode(PRIVATE));
    }
    Ok(())
}

/// Makes the entry of a file in its folder durable. Some folders cannot be read, or are of file systems that have no
/// such operation; their files are used all the same.
pub(super) fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Err(error) = File::open(folder).and_then(|folder| folder.sync_all()) {
        tracing::warn!(path = %path.display(), %error, "the folder of the state file cannot be synchronized: a new file may be lost with the power");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_empty_file_is_named_in_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let (path, log) = (folder.path().join("state"), folder.path().join("log"));
        let subscriber = tracing_subscriber::fmt().with_writer(Arc::new(File::create(&log).unwrap())).finish();
        let logged = || fs::read_to_string(&log).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            open_or_create(&path).unwrap();
            assert_eq!(logged(), "", "a new file is as it should be");
            open_or_create(&path).unwrap();
        });
        assert!(logged().contains("the state file is empty") && logged().contains(&*path.to_string_lossy()));
    }
}
