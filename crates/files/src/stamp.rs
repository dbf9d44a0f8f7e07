//! The state of a file, by which a change of its content is seen without reading it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a file is to have stayed as it is, before its times tell that it has not changed: file systems have ticks.
const SETTLED: Duration = Duration::from_secs(2);

/// Tells one state of a file from another: which file it is, its length, and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of a file, links followed.
    ///
    /// # Errors
    ///
    /// The error of the system: the file is missing, or cannot be looked at.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self {
            file: (found.dev(), found.ino()),
            len: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whether the file was last written so long ago that another write would give it another stamp.
    pub fn is_settled(&self) -> bool {
        let seconds = u64::try_from(self.modified.0).unwrap_or(0);
        SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(seconds)).is_ok_and(|age| age > SETTLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_content_and_another_file_have_other_stamps() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        fs::write(&one, "a").unwrap();
        let first = Stamp::of(&one).unwrap();
        assert_eq!(Stamp::of(&one).unwrap(), first);
        assert!(!first.is_settled());
        fs::write(&one, "ab").unwrap();
        assert_ne!(Stamp::of(&one).unwrap(), first);
        fs::write(&other, "ab").unwrap();
        assert_ne!(Stamp::of(&other).unwrap(), Stamp::of(&one).unwrap());
        let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(&one).unwrap().set_modified(long_ago).unwrap();
        assert!(Stamp::of(&one).unwrap().is_settled());
        assert!(Stamp::of(&folder.path().join("none")).is_err());
    }
}
