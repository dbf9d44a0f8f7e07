//! Files of a program's own, written as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
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
    put(path, bytes, |_| Ok(())).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Replaces the content of a file, like [`replace`]; mode and owner stay. A missing one is created for its owner alone.
///
/// # Errors
///
/// The system's, without the path.
pub fn replace_content(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, |new| {
        if let Ok(old) = fs::metadata(path) {
            new.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777))?;
            // Only root may give files away; for others the file is their own already.
            let _ = fchown(new, Some(old.uid()), Some(old.gid()));
        }
        Ok(())
    })
}

/// Writes a new file, which `prepare` gets while it is empty, in the place of a file.
fn put(path: &Path, bytes: &[u8], prepare: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(UNFINISHED);
    let new = PathBuf::from(new);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        prepare(&file)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    let written = write();
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&new);
    }
    // Without the second sync, a power cut may bring the old file back.
    written.and_then(|()| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
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
    fn a_file_whose_content_is_replaced_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pem");
        for (mode, expected) in [(None, 0o600), (Some(0o640), 0o640)] {
            if let Some(mode) = mode {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            replace_content(&path, b"content").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, expected);
        }
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
