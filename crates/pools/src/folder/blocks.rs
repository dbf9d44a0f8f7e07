//! The blocks of a volume: the space that they take, and blocks of its own for a clone.

use std::io::ErrorKind;

use lunette_store::Extent;

use super::difference::differences;
use super::files::Files;
use super::{FolderPool, failed, layout};
use crate::error::PoolError;
use crate::name::Name;
use crate::pool::{Change, Progress, VolumeSpace};

/// Bytes that get blocks of their own between two reports of progress.
const PIECE_BYTES: u64 = 64 << 20;

impl<F: Files> FolderPool<F> {
    pub(super) fn space_of_volume(&self, name: &Name) -> Result<VolumeSpace, PoolError> {
        let image = self.open_now(name, None)?;
        // Bytes in the page cache have no space yet.
        self.files.flush(&image).map_err(failed)?;
        let (mut own_bytes, mut shared_bytes) = (0, 0);
        for extent in self.files.extents(&image) {
            let Extent { range, is_shared, .. } = match extent {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    let own_bytes = self.files.allocated_bytes(&image).map_err(failed)?;
                    return Ok(VolumeSpace { own_bytes, shared_bytes: None });
                }
                extent => extent.map_err(failed)?,
            };
            *if is_shared { &mut shared_bytes } else { &mut own_bytes } += range.end - range.start;
        }
        Ok(VolumeSpace { own_bytes, shared_bytes: Some(shared_bytes) })
    }

    pub(super) fn changes_between(
        &self,
        volume: &Name,
        since: Option<&Name>,
        until: Option<&Name>,
    ) -> Result<Vec<Change>, PoolError> {
        let later = self.open_now(volume, until)?;
        let earlier = since.map(|since| self.open_now(volume, Some(since))).transpose()?;
        // Snapshots are flushed already.
        self.files.flush(&later).map_err(failed)?;
        differences(&self.files, earlier.as_ref(), &later).map_err(failed)
    }

    pub(super) fn flatten_volume(&self, name: &Name, progress: Progress<'_>) -> Result<(), PoolError> {
        let before = {
            let _reading = self.reading();
            self.record(name)?
        };
        if before.origin.is_none() {
            return Ok(());
        }
        self.unshare(name, progress)?;

        let _change = self.begin()?;
        let mut record = self.record(name)?;
        if !record.is_same_volume(&before) {
            return Err(PoolError::NoVolume(name.clone()));
        }
        record.origin = None;
        self.put_record(name, &record).map_err(failed)
    }

    /// Gives a volume blocks of its own where it shares them. Its content stays as it is, so this may end anywhere.
    fn unshare(&self, name: &Name, progress: Progress<'_>) -> Result<(), PoolError> {
        let image = {
            let _reading = self.reading();
            self.files.change_image(&layout::disk(name)).map_err(failed)?
        };
        self.files.flush(&image).map_err(failed)?;
        let len_bytes = self.files.len(&image).map_err(failed)?;
        for extent in self.files.extents(&image) {
            let Extent { range, is_shared, .. } = match extent {
                // Nothing tells what is shared, and no file depends on another one all the same.
                Err(error) if error.kind() == ErrorKind::Unsupported => break,
                extent => extent.map_err(failed)?,
            };
            let (mut next, end) = (range.start, range.end.min(len_bytes));
            while is_shared && next < end {
                if progress(next, len_bytes).is_break() {
                    return Err(PoolError::Stopped);
                }
                let piece_end = end.min(next + PIECE_BYTES);
                self.files.unshare(&image, next..piece_end).map_err(failed)?;
                next = piece_end;
            }
        }
        self.files.flush(&image).map_err(failed)?;
        let _ = progress(len_bytes, len_bytes);
        Ok(())
    }

    /// Opens an image while no names change.
    fn open_now(&self, volume: &Name, snapshot: Option<&Name>) -> Result<F::Image, PoolError> {
        let _reading = self.reading();
        self.image_of(volume, snapshot)
    }
}
