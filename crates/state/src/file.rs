//! State in a `redb` database: one file, copy on write, a commit is durable when it returns.

mod error;
mod place;
#[cfg(test)]
mod power_loss;
mod storage;
mod values;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{StateError, StateStore};
pub use error::OpenStateError;
use place::Standing;
use storage::Storage;
use values::Values;

/// State in a file. The file is locked against other processes while it is open.
///
/// After an error the next call opens the database again, so saves succeed as soon as the file can be written. A save
/// is in the file at the path: when the file was deleted, a new one with all values takes its place.
pub struct StateFile {
    path: PathBuf,
    connect: Connect,
    open: Mutex<OpenFile>,
}

/// A state file that another process may open.
#[must_use = "the file is locked again when it is dropped"]
pub struct Lent<'a> {
    open: MutexGuard<'a, OpenFile>,
    path: &'a Path,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Err(error) = place::lock(&self.open.file, self.path) {
            tracing::error!(path = %self.path.display(), %error, "the state file cannot be locked again");
        }
    }
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
        Self::open_with(path, Box::new(|file| Values::open(Storage::new(file)?)))
    }

    /// Closes the database and gives up the lock, so that another process can open the file. Saves and loads wait until
    /// the answer is dropped: then this process has the file again.
    ///
    /// # Errors
    ///
    /// When the lock cannot be given up.
    pub fn lend(&self) -> io::Result<Lent<'_>> {
        let mut open = self.lock();
        open.values = None;
        open.file.unlock()?;
        Ok(Lent { open, path: &self.path })
    }

    fn open_with(path: &Path, connect: Connect) -> Result<Self, OpenStateError> {
        let failed = |error: io::Error| OpenStateError::of_system(path, &error);
        let file = place::open_or_create(path).map_err(failed)?;
        place::lock(&file, path)?;
        let values = connect(file.try_clone().map_err(failed)?);
        let values = values.map_err(|error| OpenStateError::of_database(path, error))?;
        // Not before: something else keeps its mode.
        place::make_private(&file).map_err(failed)?;
        place::sync_folder(path);
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

    /// Sees to it that the open file is the one that the next start opens.
    fn hold_place(&self, open: &mut OpenFile) -> Result<(), OpenStateError> {
        match Standing::of(&open.file, &self.path).map_err(|error| self.failed(&error))? {
            Standing::InPlace => Ok(()),
            Standing::Replaced => Err(OpenStateError::Replaced(self.path.clone())),
            Standing::Gone => {
                self.write_anew(open)?;
                tracing::warn!(
                    path = %self.path.display(),
                    "the state file was deleted under the server; a new one with all its values was written"
                );
                Ok(())
            }
        }
    }

    /// Writes all values into a new file, which takes the place of the open one.
    fn write_anew(&self, open: &mut OpenFile) -> Result<(), OpenStateError> {
        let all = self.with(open, Values::read_all)?;
        let file = place::create(&self.path).map_err(|error| self.failed(&error))?;
        // Another process may have opened the new file already; then it is that one's.
        place::lock(&file, &self.path)?;
        match self.fill(&file, &all) {
            Ok(values) => {
                *open = OpenFile { file, values: Some(values) };
                Ok(())
            }
            Err(error) => {
                // Otherwise it would be taken for another's.
                let _ = fs::remove_file(&self.path);
                Err(error)
            }
        }
    }

    fn fill(&self, file: &File, all: &[(String, Vec<u8>)]) -> Result<Values, OpenStateError> {
        let values = self.connect(file)?;
        let written = values.write(all.iter().map(|(name, value)| (&**name, Some(&**value))));
        written.map_err(|error| OpenStateError::of_database(&self.path, error))?;
        place::sync_folder(&self.path);
        Ok(values)
    }

    fn connect(&self, file: &File) -> Result<Values, OpenStateError> {
        let file = file.try_clone().map_err(|error| self.failed(&error))?;
        (self.connect)(file).map_err(|error| OpenStateError::of_database(&self.path, error))
    }

    fn failed(&self, error: &io::Error) -> OpenStateError {
        OpenStateError::of_system(&self.path, error)
    }

    fn lock(&self) -> MutexGuard<'_, OpenFile> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateStore for StateFile {
    fn load(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.with(&mut self.lock(), |values| values.read(name))?)
    }

    fn save(&self, name: &str, value: Option<&[u8]>) -> Result<(), StateError> {
        let mut open = self.lock();
        self.hold_place(&mut open)?;
        Ok(self.with(&mut open, |values| values.write([(name, value)]))?)
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
    use std::fs::Permissions;
    use std::io::ErrorKind;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::StorageBackend;
    use redb::backends::FileBackend;

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

    /// A state file, and the flag that takes its space away.
    fn scarce(path: &Path) -> (Arc<AtomicBool>, StateFile) {
        let is_full = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_full);
        let connect = move |file| Values::open(Scarce { file: FileBackend::new(file)?, is_full: Arc::clone(&flag) });
        (is_full, StateFile::open_with(path, Box::new(connect)).unwrap())
    }

    #[test]
    fn saves_succeed_again_when_there_is_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (is_full, file) = scarce(&path);
        file.save("a", Some(b"1")).unwrap();
        is_full.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            let told = file.save("a", Some(b"2")).unwrap_err().to_string();
            assert!(told.contains(&format!("{}: ", path.display())), "{told}");
            assert!(told.contains("free space"), "{told}");
            assert!(matches!(StateFile::open(&path), Err(OpenStateError::InUse(_))), "it stays locked");
        }
        is_full.store(false, Ordering::Relaxed);
        assert_eq!(file.load("a").unwrap(), Some(b"1".to_vec()));
        file.save("a", Some(b"3")).unwrap();
        drop(file);
        assert_eq!(StateFile::open(&path).unwrap().load("a").unwrap(), Some(b"3".to_vec()));
    }

    #[test]
    fn a_save_after_the_file_was_deleted_writes_a_new_one_with_everything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let file = StateFile::open(&path).unwrap();
        file.save("a", Some(b"1")).unwrap();
        file.save("b", Some(b"2")).unwrap();
        for value in [b"3", b"4"] {
            fs::remove_file(&path).unwrap();
            file.save("b", Some(value)).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(file);
        let next = StateFile::open(&path).unwrap();
        assert_eq!(["a", "b"].map(|name| next.load(name).unwrap()), [Some(b"1".to_vec()), Some(b"4".to_vec())]);
    }

    #[test]
    fn a_file_that_cannot_be_written_anew_is_not_left_half_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (is_full, file) = scarce(&path);
        file.save("a", Some(b"1")).unwrap();
        fs::remove_file(&path).unwrap();
        is_full.store(true, Ordering::Relaxed);
        file.save("b", Some(b"2")).unwrap_err();
        assert!(!path.exists());
        is_full.store(false, Ordering::Relaxed);
        file.save("b", Some(b"3")).unwrap();
        drop(file);
        let next = StateFile::open(&path).unwrap();
        assert_eq!(["a", "b"].map(|name| next.load(name).unwrap()), [Some(b"1".to_vec()), Some(b"3".to_vec())]);
    }

    #[test]
    fn nothing_is_saved_while_another_file_has_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("state"), folder.path().join("aside"));
        let file = StateFile::open(&path).unwrap();
        file.save("a", Some(b"1")).unwrap();
        fs::copy(&path, &aside).unwrap();
        fs::rename(&aside, &path).unwrap();
        let told = file.save("a", Some(b"2")).unwrap_err().to_string();
        assert!(told.contains(&format!("{}: another file", path.display())), "{told}");
        assert_eq!(file.load("a").unwrap(), Some(b"1".to_vec()));
        fs::rename(&path, &aside).unwrap();
        file.save("a", Some(b"3")).unwrap();
        let value = |path| StateFile::open(path).unwrap().load("a").unwrap();
        assert_eq!(value(&aside), Some(b"1".to_vec()));
        drop(file);
        assert_eq!(value(&path), Some(b"3".to_vec()));
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
