//! Files of a program's own, written as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The end of the name of a file that is not whole yet.
pub const UNFINISHED: &str = ".new";

/// Replaces a file, or creates it, for its owner alone. After a power cut it has the old content or the new one. Two
/// callers must not write one path at once.
///
/// # Errors
///
/// The system's, with the path.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(UNFINISHED);
    let new = PathBuf::from(new);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = write(&new, bytes).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&new);
    }
    // Without the second sync, a power cut may bring the old file back.
    written
        .and_then(|()| File::open(folder)?.sync_all())
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for content in ["a longer one", "short"] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_stays_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::create_dir(&path).unwrap();
        let error = replace(&path, b"x").unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    }
}
