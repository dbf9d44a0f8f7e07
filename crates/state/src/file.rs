//! State in a `redb` database: one file, copy on write, a commit is durable when it returns.

mod error;
#[cfg(test)]
mod power_loss;
mod values;

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::backends::FileBackend;

use crate::{StateError, StateStore};
pub use error::OpenStateError;
use values::Values;

/// The mode of the file: for its owner alone.
const PRIVATE: u32 = 0o600;

/// State in a file. The file is locked against other processes while it is open.
///
/// After an error the next call opens the database again, so saves succeed as soon as the file can be written.
pub struct StateFile {
    path: PathBuf,
    connect: Connect,
    open: Mutex<OpenFile>,
}

/// Opens the database in a file.
type Connect = Box<dyn Fn(File) -> Result<Values, redb::Error> + Send + Sync>;

/// The open file, and the database in it; without one after an error.
struct OpenFile {
    file: File,
    values: Option<Values>,
}

impl StateFile {
    /// Opens the file, and creates it when it is missing. After a crash it is repaired to its last commit.
    ///
    /// # Errors
    ///
    /// When another process has the file open, or it cannot be opened or created.
    pub fn open(path: &Path) -> Result<Self, OpenStateError> {
        Self::open_with(path, Box::new(|file| Values::open(FileBackend::new(file)?)))
    }

    fn open_with(path: &Path, connect: Connect) -> Result<Self, OpenStateError> {
        let failed = |error: io::Error| OpenStateError::of_system(path, &error);
        let file = open_or_create(path).map_err(failed)?;
        let values = connect(file.try_clone().map_err(failed)?);
        let values = values.map_err(|error| OpenStateError::of_database(path, error))?;
        // Not before: something else keeps its mode.
        make_private(&file).map_err(failed)?;
        Ok(Self { path: path.into(), connect, open: Mutex::new(OpenFile { file, values: Some(values) }) })
    }

    /// Uses the database, which is opened again after an error.
    fn with<T>(
        &self,
        open: &mut OpenFile,
        action: impl FnOnce(&Values) -> Result<T, redb::Error>,
    ) -> Result<T, OpenStateError> {
        let values = match open.values.take() {
            Some(values) => values,
            None => self.connect(&open.file)?,
        };
        let done = action(&values).map_err(|error| OpenStateError::of_database(&self.path, error))?;
        open.values = Some(values);
        Ok(done)
    }

    fn connect(&self, file: &File) -> Result<Values, OpenStateError> {
        let file = file.try_clone().map_err(|error| OpenStateError::of_system(&self.path, &error))?;
        (self.connect)(file).map_err(|error| OpenStateError::of_database(&self.path, error))
    }

    fn lock(&self) -> MutexGuard<'_, OpenFile> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the file, or makes one that others on the machine cannot read, whatever the umask says: it has keys of
/// reservations and the secret of resets.
fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(PRIVATE).open(path)
}

/// Takes away the rights of others to a file that is there already.
fn make_private(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.mode() & 0o777 & !PRIVATE != 0 {
        // Only its owner may do this, and another owner has chosen who reads it.
        let _ = file.set_permissions(Permissions::from_mode(PRIVATE));
    }
    Ok(())
}

impl StateStore for StateFile {
    fn load(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.with(&mut self.lock(), |values| values.read(name))?)
    }

    fn save(&self, name: &str, value: Option<&[u8]>) -> Result<(), StateError> {
        Ok(self.with(&mut self.lock(), |values| values.write([(name, value)]))?)
    }
}

impl From<OpenStateError> for StateError {
    fn from(error: OpenStateError) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Debug for StateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateFile").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::StorageBackend;

    use super::*;

    /// A file whose file system has no space while the flag is set.
    #[derive(Debug)]
    struct Scarce {
        file: FileBackend,
        is_full: Arc<AtomicBool>,
    }

    impl Scarce {
        fn check(&self) -> io::Result<()> {
            if self.is_full.load(Ordering::Relaxed) { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
    }

    impl StorageBackend for Scarce {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.check()?;
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.check()?;
            self.file.write(offset, data)
        }
    }

    #[test]
    fn saves_succeed_again_when_there_is_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let is_full = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_full);
        let connect = move |file| Values::open(Scarce { file: FileBackend::new(file)?, is_full: Arc::clone(&flag) });
        let file = StateFile::open_with(&path, Box::new(connect)).unwrap();
        file.save("a", Some(b"1")).unwrap();
        is_full.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            let told = file.save("a", Some(b"2")).unwrap_err().to_string();
            assert!(told.contains(&format!("{}: ", path.display())), "{told}");
            assert!(told.contains("free space"), "{told}");
        }
        is_full.store(false, Ordering::Relaxed);
        assert_eq!(file.load("a").unwrap(), Some(b"1".to_vec()));
        file.save("a", Some(b"3")).unwrap();
        drop(file);
        assert_eq!(StateFile::open(&path).unwrap().load("a").unwrap(), Some(b"3".to_vec()));
    }

    #[test]
    fn a_file_that_was_cut_off_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        StateFile::open(&path).unwrap().save("a", Some(b"1")).unwrap();
        let whole = fs::read(&path).unwrap();
        for len in [100, 4096, whole.len() / 2] {
            fs::write(&path, &whole[..len]).unwrap();
            let error = StateFile::open(&path).unwrap_err();
            assert!(matches!(error, OpenStateError::Damaged { .. }), "{len} bytes: {error}");
        }
    }

    #[test]
    fn values_are_replaced_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::open(&folder.path().join("state")).unwrap();
        assert_eq!(file.load("a").unwrap(), None);
        file.save("a", Some(b"1")).unwrap();
        file.save("b", Some(b"")).unwrap();
        file.save("a", Some(b"2")).unwrap();
        assert_eq!(file.load("a").unwrap(), Some(b"2".to_vec()));
        assert_eq!(file.load("b").unwrap(), Some(Vec::new()));
        file.save("a", None).unwrap();
        file.save("never there", None).unwrap();
        assert_eq!(file.load("a").unwrap(), None);
    }

    /// A copy of the open file is what a killed process leaves behind.
    #[test]
    fn what_was_saved_is_in_a_copy_of_the_open_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("state"), folder.path().join("copy"));
        let file = StateFile::open(&path).unwrap();
        for round in 0..10u8 {
            file.save("a", Some(&[round; 3000])).unwrap();
            fs::copy(&path, &copy).unwrap();
            let reopened = StateFile::open(&copy).unwrap();
            assert_eq!(reopened.load("a").unwrap(), Some(vec![round; 3000]));
        }
    }

    #[test]
    fn others_cannot_read_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        StateFile::open(&path).unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        StateFile::open(&path).unwrap();
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn a_file_is_opened_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let first = StateFile::open(&path).unwrap();
        assert!(matches!(StateFile::open(&path), Err(OpenStateError::InUse(_))));
        drop(first);
        StateFile::open(&path).unwrap();
    }

    #[test]
    fn a_file_of_another_format_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, [7; 8192]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(StateFile::open(&path), Err(OpenStateError::Foreign(_))));
        assert_eq!(fs::read(&path).unwrap(), [7; 8192]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
    }
}
