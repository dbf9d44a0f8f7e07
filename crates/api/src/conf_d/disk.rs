//! A folder of the file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lunette_files::{Content, FileProblem};

use super::Folder;
use crate::limits::MAX_BODY_BYTES;

/// A folder of the file system, which is created when something is first written to it.
#[derive(Debug, Clone)]
pub struct DiskFolder(PathBuf);

/// An object, or the redo log, which holds the files of all objects; this is more than they may have.
const OBJECT: Content = Content { name: "an object", max_bytes: 16 * MAX_BODY_BYTES };

impl DiskFolder {
    /// The folder at this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        // Names of initiators and users are for the owner alone.
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(self.0.join(name))
    }
}

impl Folder for DiskFolder {
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned())).collect()
    }

    fn read(&self, name: &str) -> io::Result<Option<String>> {
        match lunette_files::read_text(&self.0.join(name), OBJECT) {
            Err(problem) if problem.is_missing() => Ok(None),
            read => read.map(Some).map_err(FileProblem::into_io),
        }
    }

    fn write(&self, name: &str, content: &str) -> io::Result<()> {
        let mut file = match self.open(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::DirBuilder::new().mode(0o750).create(&self.0)?;
                File::open(self.0.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")))?
                    .sync_all()?;
                self.open(name)?
            }
            file => file?,
        };
        file.write_all(content.as_bytes())?;
        file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}
