//! State in a `redb` database: one file, copy on write, a commit is durable when it returns.

#[cfg(test)]
mod power_loss;

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use redb::{Database, DatabaseError, ReadableDatabase, StorageError, TableDefinition};

use crate::{StateError, StateStore};

/// The only table. Its name and types are the format of the file.
const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lunette-state");

/// Memory for pages of the file. Values are small and seldom read.
const CACHE_BYTES: usize = 1 << 20;

/// The mode of the file: for its owner alone.
const PRIVATE: u32 = 0o600;

/// State in a file. The file is locked against other processes while it is open.
pub struct StateFile {
    database: Database,
}

/// A reason why a state file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStateError {
    /// Another process has the file open.
    #[error("{path}: the state file is in use; stop the other process, or choose another file", path = .0.display())]
    InUse(PathBuf),
    /// The file is something else.
    #[error("{path}: that is no state file; name another file, or one that is not there yet", path = .0.display())]
    Foreign(PathBuf),
    /// A missing folder, no permission, or another failure.
    #[error("{path}: {what}", path = .path.display())]
    Failed {
        /// The path of the file.
        path: PathBuf,
        /// The words of the database or the system.
        what: String,
    },
}

impl StateFile {
    /// Opens the file, and creates it when it is missing. After a crash it is repaired to its last commit.
    ///
    /// # Errors
    ///
    /// When another process has the file open, or it cannot be opened or created.
    pub fn open(path: &Path) -> Result<Self, OpenStateError> {
        let failed = |what: &dyn fmt::Display| OpenStateError::Failed { path: path.into(), what: what.to_string() };
        let file = create(path).map_err(|error| failed(&format_args!("{error}{}", lunette_files::remedy(&error))))?;
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => OpenStateError::InUse(path.into()),
            DatabaseError::Storage(StorageError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                OpenStateError::Foreign(path.into())
            }
            error => failed(&error),
        })?;
        // Not before: something else keeps its mode.
        make_private(&file).map_err(|error| failed(&error))?;
        Self::over(database).map_err(|error| failed(&error))
    }

    fn over(database: Database) -> Result<Self, redb::Error> {
        let file = Self { database };
        file.make_table()?;
        Ok(file)
    }

    /// Creates the table, so that readers always find it.
    fn make_table(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(TABLE)?;
        Ok(transaction.commit()?)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, redb::Error> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        Ok(table.get(name)?.map(|value| value.value().to_vec()))
    }

    fn write(&self, name: &str, value: Option<&[u8]>) -> Result<(), redb::Error> {
        // Durability::Immediate is the default: commit returns after the file is synchronized.
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            match value {
                Some(value) => drop(table.insert(name, value)?),
                None => drop(table.remove(name)?),
            }
        }
        Ok(transaction.commit()?)
    }
}

/// Opens the file, or makes one that others on the machine cannot read, whatever the umask says: it has keys of
/// reservations and the secret of resets.
fn create(path: &Path) -> io::Result<File> {
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
        self.read(name).map_err(|error| StateError(error.to_string()))
    }

    fn save(&self, name: &str, value: Option<&[u8]>) -> Result<(), StateError> {
        self.write(name, value).map_err(|error| StateError(error.to_string()))
    }
}

impl fmt::Debug for StateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateFile").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
