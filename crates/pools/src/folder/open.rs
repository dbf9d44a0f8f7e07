//! The opening of a pool: what was interrupted is ended or removed.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, RwLock};

use super::files::{Files, remove_all};
use super::in_place::InPlace;
use super::system::System;
use super::{FolderPool, failed, layout};
use crate::error::PoolError;
use crate::name::Name;

/// The length of the images by which reflinks are tried.
const PROBE_BYTES: u64 = 4096;

impl FolderPool {
    /// Opens the pool in a folder, which may be empty. A change that was interrupted is ended or undone, and volumes
    /// are removed that were not filled to the end.
    ///
    /// # Errors
    ///
    /// [`PoolError::Unusable`] when there is no such folder, or another process has the pool.
    pub fn open(root: &Path) -> Result<Self, PoolError> {
        Self::with(root, System::open(root)?)
    }
}

impl<F: Files> FolderPool<F> {
    /// Opens the pool that has these files.
    pub(super) fn with(root: &Path, files: F) -> Result<Self, PoolError> {
        let mut pool = Self {
            root: root.to_owned(),
            files,
            has_reflinks: false,
            next_scratch: AtomicU64::new(0),
            in_place: InPlace::default(),
            changes: Mutex::default(),
            names: RwLock::new(()),
        };
        pool.recover().map_err(|error| PoolError::Unusable {
            place: root.display().to_string(),
            why: format!("a change that was interrupted cannot be ended: {error}"),
        })?;
        pool.has_reflinks = pool.can_share_blocks().map_err(failed)?;
        Ok(pool)
    }

    /// Whether the file system can share blocks between files. Without, the pool has no snapshots and clones.
    pub fn has_reflinks(&self) -> bool {
        self.has_reflinks
    }

    fn recover(&self) -> io::Result<()> {
        self.end_interrupted()?;
        for name in self.files.names(&layout::work())? {
            if name.starts_with(layout::SCRATCH) {
                remove_all(&self.files, &layout::work().join(name))?;
            }
        }
        for file in self.files.names(&layout::pool())? {
            let Ok(name) = file.parse::<Name>() else { continue };
            // A record that cannot be read is told with the volumes.
            if self.record(&name).is_ok_and(|record| record.is_filling) {
                let scratch = self.scratch();
                self.move_to(&layout::volume(&name), scratch.path())?;
            }
        }
        Ok(())
    }

    fn can_share_blocks(&self) -> io::Result<bool> {
        let (from, into) = (self.scratch(), self.scratch());
        let tried = || {
            let source = self.files.make_image(from.path(), false)?;
            self.files.set_len(&source, PROBE_BYTES)?;
            self.files.flush(&source)?;
            self.files.clone_into(&source, &self.files.make_image(into.path(), false)?)
        };
        match tried() {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::Unsupported => Ok(false),
                // A full pool is opened, so that something can be removed. A snapshot is refused in its turn.
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Ok(true),
                _ => Err(error),
            },
        }
    }
}
