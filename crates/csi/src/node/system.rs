//! The system of a node, as a trait: all effects of the node go through it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ran {
    /// The exit code; `None` when a signal or the time limit ended it.
    pub code: Option<i32>,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

/// The kinds of files that the node tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A block device.
    Device,
    /// Anything else.
    Other,
}

/// The space of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// All bytes.
    pub total_bytes: u64,
    /// The bytes that users may still take.
    pub available_bytes: u64,
    /// The bytes that are taken.
    pub used_bytes: u64,
    /// All inodes.
    pub total_inodes: u64,
    /// The inodes that are free.
    pub free_inodes: u64,
}

/// The system of a node. All methods may wait.
pub trait System: Send + Sync + 'static {
    /// Runs a program to its end.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<Ran>;

    /// Reads a text, also of `/sys` and `/proc`.
    ///
    /// # Errors
    ///
    /// The system's.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Reads a text of the host, when the driver runs in a container.
    ///
    /// # Errors
    ///
    /// The system's.
    fn read_of_host(&self, path: &Path) -> io::Result<String>;

    /// Replaces the text of a file of the host in place, so that its owner stays. The file is there. Then its owner
    /// alone may read it.
    ///
    /// # Errors
    ///
    /// The system's.
    fn rewrite_of_host(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Replaces a file as a whole, and makes its folder.
    ///
    /// # Errors
    ///
    /// The system's.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;

    /// The names in a folder; none when it is not there.
    ///
    /// # Errors
    ///
    /// The system's.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// The path without symbolic links.
    ///
    /// # Errors
    ///
    /// The system's.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf>;

    /// The kind of a file, or `None` when it is not there.
    ///
    /// # Errors
    ///
    /// The system's.
    fn kind(&self, path: &Path) -> io::Result<Option<Kind>>;

    /// Whether the first and the last bytes of a device are zero, and it has a length.
    ///
    /// # Errors
    ///
    /// When one of these bytes cannot be read.
    fn is_blank(&self, device: &Path) -> io::Result<bool>;

    /// Makes a folder with those above it, or does nothing when it is there.
    ///
    /// # Errors
    ///
    /// The system's.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes an empty file with the folders above it, or does nothing when it is there.
    ///
    /// # Errors
    ///
    /// The system's.
    fn make_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a file or an empty folder, or does nothing when it is not there. It stays removed after a power cut.
    ///
    /// # Errors
    ///
    /// The system's.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The space of the file system at a path.
    ///
    /// # Errors
    ///
    /// The system's.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// Waits.
    fn wait(&self, time: Duration);
}
