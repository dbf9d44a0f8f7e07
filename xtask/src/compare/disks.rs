//! The served disks: files in the page cache, all with the same bytes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};

use super::measure::DISK_LEN;

/// The mount point of tmpfs on every Linux.
const TMPFS: &str = "/dev/shm";

/// One file for each server that serves one.
pub(crate) struct Disks {
    pub(crate) tgt: DiskFile,
    pub(crate) file: DiskFile,
    pub(crate) zero_copy: DiskFile,
}

impl Disks {
    pub(crate) fn create() -> Result<Self> {
        Ok(Self {
            tgt: DiskFile::create("tgt")?,
            file: DiskFile::create("file")?,
            zero_copy: DiskFile::create("zero-copy")?,
        })
    }
}

/// A file in memory, full of bytes that are not zero. Removed when dropped.
pub(crate) struct DiskFile(PathBuf);

impl DiskFile {
    fn create(name: &str) -> Result<Self> {
        let disk = Self(Path::new(TMPFS).join(format!("lunette-compare-{}-{name}", process::id())));
        let mut file = fs::File::create_new(&disk.0).with_context(|| format!("cannot create {}", disk.0.display()))?;
        let piece = vec![0x5a; 1 << 20];
        for _ in 0..DISK_LEN >> 20 {
            file.write_all(&piece).with_context(|| format!("cannot write {}", disk.0.display()))?;
        }
        Ok(disk)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
