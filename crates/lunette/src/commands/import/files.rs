//! The files that an import writes: all, or none.
//!
//! Root writes for the user of the service, so its files belong to the owner and the group of their folder.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use lunette_files::remedy;
use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::failure::Failure;

/// A file that is not there yet.
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    pub(super) content: String,
    pub(super) mode: u32,
}

/// A folder for new files, which is made when it is missing.
pub(super) struct Folder<'a> {
    pub(super) path: &'a Path,
    pub(super) mode: u32,
    /// The option that names it.
    pub(super) option: &'static str,
    pub(super) files: Vec<NewFile>,
}

/// Writes the files of all folders. After a failure nothing of it is left, so the import can be tried again.
pub(super) fn write(folders: &[Folder<'_>]) -> Result<(), Failure> {
    let mut made = Made::default();
    let written = folders.iter().try_for_each(|folder| made.folder(folder));
    if written.is_err() {
        made.remove();
    }
    written
}

/// The folders and files that have been made, in their order.
#[derive(Default)]
struct Made {
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Made {
    fn folder(&mut self, folder: &Folder<'_>) -> Result<(), Failure> {
        let failed = |path: &Path, error: io::Error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::other(format!(
                "{}: the file is there already, and is not written over; move it away, or name another folder with {}",
                path.display(),
                folder.option
            )),
            _ => Failure::other(format!("{}: {error}{}", path.display(), remedy(&error))),
        };
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing: Vec<PathBuf> = folder.path.ancestors().take_while(is_missing).map(Into::into).collect();
        let made = DirBuilder::new().recursive(true).mode(folder.mode).create(folder.path);
        self.folders.extend(missing.into_iter().rev());
        made.and_then(|()| self.hand_over_folders()).map_err(|error| failed(folder.path, error))?;
        for file in &folder.files {
            self.file(file).map_err(|error| failed(&file.path, error))?;
        }
        Ok(())
    }

    fn file(&mut self, file: &NewFile) -> io::Result<()> {
        let mut opened = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(&file.path)?;
        self.files.push(file.path.clone());
        opened.write_all(file.content.as_bytes())?;
        hand_over(&opened, &file.path)
    }

    /// Gives new folders away, from the outermost on.
    fn hand_over_folders(&self) -> io::Result<()> {
        // The owner of the folder around it may have put a link to another in its place.
        let no_link = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
        let open = |folder: &Path| OpenOptions::new().read(true).custom_flags(no_link).open(folder);
        self.folders.iter().try_for_each(|folder| hand_over(&open(folder)?, folder))
    }

    /// Removes it as far as that is possible. A folder in which something else is stays.
    fn remove(self) {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
        for folder in self.folders.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Gives what root made to the owner and the group of its folder. Where root keeps the folder for a group, as that of
/// secrets for the service, the group reads the file.
fn hand_over(made: &File, path: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::metadata(parent)?;
    fchown(made, Some(folder.uid()), Some(folder.gid()))?;
    let metadata = made.metadata()?;
    if metadata.is_file() && is_for_group(&folder) {
        made.set_permissions(Permissions::from_mode(metadata.mode() | READ_BY_GROUP))?;
    }
    Ok(())
}

/// The bit of a mode by which the group reads a file.
const READ_BY_GROUP: u32 = 0o040;

/// The bits of a mode for users of neither kind.
const BITS_OF_OTHERS: u32 = 0o007;

/// Whether a folder is root's, and a group but no other user reads it.
fn is_for_group(folder: &Metadata) -> bool {
    let (mode, is_of_root) = (folder.mode(), folder.uid() == 0 && folder.gid() != 0);
    is_of_root && mode & READ_BY_GROUP != 0 && mode & BITS_OF_OTHERS == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    fn folder<'a>(path: &'a Path, option: &'static str, names: &[&str]) -> Folder<'a> {
        let file = |name: &&str| NewFile { path: path.join(name), content: (*name).into(), mode: 0o600 };
        Folder { path, mode: 0o700, option, files: names.iter().map(file).collect() }
    }

    #[test]
    fn new_files_belong_to_the_owner_of_their_folder() {
        let place = tempfile::tempdir().unwrap();
        let (objects, secrets, new) =
            (place.path().join("objects"), place.path().join("secrets"), place.path().join("objects/new"));
        for path in [&objects, &secrets] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o750)).unwrap();
        }
        // Another user cannot give files away, and has nothing to.
        let is_root = geteuid().is_root();
        if is_root {
            chown(&objects, Some(4711), Some(4712)).unwrap();
            chown(&secrets, Some(0), Some(4712)).unwrap();
        }
        let folders = [
            folder(&objects, "--conf-d", &["a"]),
            folder(&secrets, "--secrets", &["s"]),
            folder(&new, "--secrets", &["s"]),
        ];
        write(&folders).unwrap();
        let of = |path: &Path| {
            let metadata = fs::metadata(path).unwrap();
            (metadata.uid(), metadata.gid())
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((of(&objects.join("a")), mode(&objects.join("a"))), (of(&objects), 0o600));
        assert_eq!((of(&new), of(&new.join("s"))), (of(&objects), of(&objects)));
        assert_eq!(of(&secrets.join("s")), of(&secrets));
        assert_eq!(mode(&secrets.join("s")), if is_root { 0o640 } else { 0o600 });
    }

    #[test]
    fn a_file_that_is_there_leaves_no_trace_of_the_others() {
        let place = tempfile::tempdir().unwrap();
        let (secrets, objects) = (place.path().join("new/secrets"), place.path().join("objects"));
        fs::create_dir(&objects).unwrap();
        fs::write(objects.join("b"), "old").unwrap();
        let folders = [folder(&secrets, "--secrets", &["s"]), folder(&objects, "--conf-d", &["a", "b", "c"])];
        let error = write(&folders).unwrap_err().to_string();
        assert!(error.contains("objects/b: the file is there already") && error.contains("--conf-d"), "{error}");
        let names = |path: &Path| fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!((names(place.path()), names(&objects)), (vec!["objects".into()], vec!["b".into()]));
        fs::remove_file(objects.join("b")).unwrap();
        write(&folders).unwrap();
        assert_eq!(fs::read_to_string(secrets.join("s")).unwrap(), "s");
        assert_eq!(names(&objects).len(), 3);
    }
}
