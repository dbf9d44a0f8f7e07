//! The file or device that a path names.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

/// Distinguishes the file behind a path from another one that takes its place. A block device is the disk behind its
/// number, whatever file names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    /// The inode of a file; of a block device the number of its disk since the system started, if the system counts.
    number: u64,
    is_block_device: bool,
}

impl FileIdentity {
    /// The file that `path` names now.
    ///
    /// # Errors
    ///
    /// The error of the system: [`NotFound`](io::ErrorKind::NotFound) where the path names none.
    pub fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::of(&metadata))
    }

    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| Self::of(&metadata))
    }

    fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            let device = metadata.rdev();
            Self { device, number: disk_sequence(device).unwrap_or(0), is_block_device: true }
        } else {
            Self { device: metadata.dev(), number: metadata.ino(), is_block_device: false }
        }
    }
}

/// Linux counts the disks that a device has had (5.15); a partition has the number of its disk.
fn disk_sequence(device: u64) -> Option<u64> {
    let device = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let text = ["", "../"].iter().find_map(|of| fs::read_to_string(format!("{device}/{of}diskseq")).ok());
    text?.trim().parse().ok()
}
