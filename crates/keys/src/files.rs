//! Files that only their owner may read, and that are replaced as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lunette_files::{Content, FileProblem};
use rustix::fs::{FlockOperation, flock};
use zeroize::Zeroizing;

use crate::keyfile::limits::MAX_KEY_FILE_BYTES;

/// The expected content of a key file.
pub(crate) const KEY_FILE: Content = Content { name: "a key file", max_bytes: MAX_KEY_FILE_BYTES };

/// A file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}{}", path.display(), lunette_files::remedy(error))]
pub struct FileError {
    path: PathBuf,
    #[source]
    error: io::Error,
}

impl FileError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { path: path.into(), error }
    }

    /// The error of the system.
    pub fn kind(&self) -> io::ErrorKind {
        self.error.kind()
    }
}

/// Creates a file with mode 0600. It is on stable storage when this returns.
///
/// # Errors
///
/// When the file exists, or cannot be written. What was written is removed then.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let create = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = create.map_err(FileError::at(path))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| sync_folder(path));
    written.map_err(|error| {
        // The first error is the one to tell.
        let _ = fs::remove_file(path);
        FileError { path: path.into(), error }
    })
}

/// A file that this process alone changes, as long as all use this type.
#[derive(Debug)]
pub struct LockedFile {
    path: PathBuf,
    file: File,
}

impl LockedFile {
    /// Waits until no other process has the file locked.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        // Names lead to the file that is replaced, not to the link.
        let path = fs::canonicalize(path).map_err(FileError::at(path))?;
        let lock = || loop {
            let file = lunette_files::open(&path, KEY_FILE).map_err(FileProblem::into_io)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // While this process waited, the file may have been replaced: the lock is on the old one then.
            if fs::metadata(&path)?.ino() == file.metadata()?.ino() {
                return Ok(file);
            }
        };
        let file = lock().map_err(FileError::at(&path))?;
        Ok(Self { path, file })
    }

    /// The content.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is longer than any key file.
    pub fn read(&self) -> Result<Zeroizing<Vec<u8>>, FileError> {
        read_bounded(&self.path, KEY_FILE)
    }

    /// Replaces the content and gives the lock back. After a power cut the old content is there or the new one.
    ///
    /// # Errors
    ///
    /// When the new file cannot be written. The old one is then still there.
    pub fn replace(self, bytes: &[u8]) -> Result<(), FileError> {
        lunette_files::replace_content(&self.path, bytes).map_err(FileError::at(&self.path))
    }

    /// Overwrites the content with zeroes and removes the file. Copies of the file, snapshots and the spare blocks of
    /// flash memory are out of its reach.
    ///
    /// # Errors
    ///
    /// When the file cannot be written or removed.
    pub fn destroy(self) -> Result<(), FileError> {
        let destroy = || {
            let len = self.file.metadata()?.len();
            let mut file = OpenOptions::new().write(true).open(&self.path)?;
            io::copy(&mut io::Read::take(io::repeat(0), len), &mut file)?;
            file.sync_all()?;
            fs::remove_file(&self.path)?;
            sync_folder(&self.path)
        };
        destroy().map_err(FileError::at(&self.path))
    }
}

/// The content of a file, in memory that is overwritten afterwards.
pub(crate) fn read_bounded(path: &Path, content: Content) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let read = || {
        let mut bytes = Zeroizing::new(Vec::new());
        lunette_files::fill(&mut bytes, &lunette_files::open(path, content)?, path, content)?;
        Ok(bytes)
    };
    read().map_err(|problem: FileProblem| FileError { path: path.into(), error: problem.into_io() })
}

/// Makes the entry of a file in its folder durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_private_file_is_its_owners_and_never_replaces_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_private(&path, b"one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(write_private(&path, b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_private(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        LockedFile::open(&path).unwrap().replace(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_second_change_waits_for_the_first_and_sees_its_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_private(&path, b"").unwrap();
        let (sender, began) = mpsc::channel();
        let first = LockedFile::open(&path).unwrap();
        let second = thread::spawn({
            let path = path.clone();
            move || {
                sender.send(()).unwrap();
                let locked = LockedFile::open(&path).unwrap();
                let bytes = locked.read().unwrap();
                locked.replace(&[&**bytes, b"second "].concat()).unwrap();
            }
        });
        began.recv().unwrap();
        first.replace(b"first ").unwrap();
        second.join().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first second ");
    }

    #[test]
    fn a_destroyed_file_is_overwritten_before_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        write_private(&path, b"secret").unwrap();
        fs::hard_link(&path, &link).unwrap();
        LockedFile::open(&path).unwrap().destroy().unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read(&link).unwrap(), [0; 6]);
    }

    #[test]
    fn a_longer_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_private(&path, &[1; 100]).unwrap();
        let content = |max_bytes| Content { name: "a test", max_bytes };
        assert_eq!(read_bounded(&path, content(99)).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_bounded(&path, content(100)).unwrap().len(), 100);
    }
}
