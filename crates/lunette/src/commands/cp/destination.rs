//! The destination of a copy that another command makes.

use std::sync::Arc;

use lunette_store::Store;

use super::endpoint::{self, Disk, Role, Volumes};
use crate::disks::DiskName;
use crate::failure::Failure;

/// A disk that becomes a copy.
pub(in crate::commands) struct Destination(Disk);

impl Destination {
    /// Opens a disk for a copy of `len` bytes, which changes it or is all of it.
    pub(in crate::commands) fn open(name: &DiskName, len: u64, changes_it: bool) -> Result<Self, Failure> {
        if !changes_it {
            return endpoint::open(name, Role::Fresh(len), Volumes::Kept).map(Self);
        }
        if endpoint::file_path(name).is_some_and(|path| !path.exists()) {
            return Err(Failure::disk(format!(
                "{name}: no such file; changes need a copy of before, so copy all first"
            )));
        }
        let disk = endpoint::open(name, Role::Resumed(0), Volumes::Kept)?;
        if let Some(file) = &disk.file {
            file.set_len(len).map_err(|error| {
                let remedy = lunette_files::remedy(&error);
                Failure::disk(format!("{}: cannot give the file its length: {error}{remedy}", disk.name))
            })?;
        }
        if disk.len_bytes() < len {
            let has = disk.len_bytes();
            return Err(Failure::disk(format!(
                "{}: its {has} bytes are too few for the {len} of the source",
                disk.name
            )));
        }
        Ok(Self(disk))
    }

    pub(in crate::commands) fn name(&self) -> &str {
        &self.0.name
    }

    pub(in crate::commands) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0.store)
    }

    /// Whether all of it reads as zero.
    pub(in crate::commands) fn is_blank(&self) -> bool {
        self.0.blank
    }

    /// Ends a copy that is flushed.
    pub(in crate::commands) fn close(&self) -> Result<(), Failure> {
        self.0.close()
    }

    /// Leaves nothing behind that looks like a copy. Gives what was done, for the message.
    pub(in crate::commands) fn abandon(&self) -> &'static str {
        self.0.abandon()
    }
}
