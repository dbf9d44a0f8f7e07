//! The files of this program: written as a whole, readable for those who need them.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::geteuid;
use uuid::Uuid;

use crate::limits::LOCK_TIMEOUT;

/// The time between two looks at a lock.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The mode of files for their owner alone.
const PRIVATE: u32 = 0o600;

/// The bits of a mode for members of the group, and for all others.
const BITS_OF_GROUP: u32 = 0o070;
const BITS_OF_OTHERS: u32 = 0o007;

/// The beginning of the names of files with secrets that this program has made.
const OWN: &str = "targetcli-";

/// Waits until no other program works with a file, up to a limit, and keeps others away until the answer is dropped.
pub(super) fn lock(path: &Path) -> io::Result<File> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let file = OpenOptions::new().create(true).append(true).mode(PRIVATE).open(path.with_extension("lock"))?;
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(LOOK_AGAIN),
            Err(Errno::WOULDBLOCK) => {
                let text = format!(
                    "another targetcli has held {} for {} s; end it, or wait",
                    path.display(),
                    LOCK_TIMEOUT.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            locked => return locked.map(|()| file).map_err(Into::into),
        }
    }
}

/// Files for new secrets, which are written together.
pub(super) struct NewSecrets {
    folder: PathBuf,
    files: Vec<(PathBuf, String)>,
}

impl NewSecrets {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), files: Vec::new() }
    }

    /// Another file, with a name of its own: the server reads a file again when an object names another one.
    pub(super) fn add(&mut self, secret: &str) -> String {
        let path = self.folder.join(format!("{OWN}{}", Uuid::new_v4()));
        let name = path.display().to_string();
        self.files.push((path, secret.into()));
        name
    }

    /// Writes all files. After a failure none of them is left.
    pub(super) fn write(&self) -> io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let written = self.files.iter().try_for_each(|(path, secret)| write_secret(path, &self.folder, secret));
        if written.is_err() {
            self.remove();
        }
        written
    }

    /// Removes the files.
    pub(super) fn remove(&self) {
        for (path, _) in &self.files {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes a file for the user of the server. The file belongs to the owner and the group of its folder, and the group
/// reads it where it reads the folder.
fn write_secret(path: &Path, folder: &Path, secret: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)?;
    file.write_all(secret.as_bytes())?;
    if geteuid().is_root() {
        let around = fs::metadata(folder)?;
        fchown(&file, Some(around.uid()), Some(around.gid()))?;
        let is_for_group =
            around.gid() != 0 && around.mode() & BITS_OF_GROUP != 0 && around.mode() & BITS_OF_OTHERS == 0;
        if is_for_group {
            file.set_permissions(Permissions::from_mode(PRIVATE | 0o040))?;
        }
    }
    file.sync_all()
}

/// Removes files of secrets that this program has made, and no others.
pub(super) fn remove_own(folder: &Path, files: impl Iterator<Item = String>) {
    for file in files.map(PathBuf::from) {
        let is_own = file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(OWN));
        if is_own && file.parent() == Some(folder) {
            let _ = fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_for_their_owner_and_leave_with_what_used_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut secrets = NewSecrets::new(folder.path());
        let (one, two) = (secrets.add("first"), secrets.add("second"));
        secrets.write().unwrap();
        assert_eq!(fs::read_to_string(&one).unwrap(), "first");
        assert_eq!(fs::metadata(&two).unwrap().mode() & 0o777, PRIVATE);
        let foreign = folder.path().join("db-host");
        fs::write(&foreign, "x").unwrap();
        remove_own(folder.path(), [one.clone(), foreign.display().to_string()].into_iter());
        assert!(!Path::new(&one).exists() && foreign.exists());
        secrets.remove();
        assert!(!Path::new(&two).exists());
    }
}
