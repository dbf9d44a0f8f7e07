//! Blocks in a regular file or on a block device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lunette_buffer::FileSlice;

use crate::durable::Durable;
use crate::file_open::{self, OpenError, OpenOptions, Opened};
use crate::{Capabilities, Completion, CopySource, FileIo, FileOp, FileOpKind, Geometry, Op, Outcome, Space, Store};

/// A store over a regular file, which may be sparse, or over a block device.
///
/// It works through the page cache of the system, so it declares a volatile cache; a flush is `fdatasync`, a write with
/// `fua` is written with `RWF_DSYNC`. Unmap and write zeroes punch holes where the file system can, unless the space was
/// preallocated.
///
/// After a flush has failed, every later flush and write with `fua` fails with
/// [`StoreError::FlushFailed`](crate::StoreError::FlushFailed), until the store is opened again: the system drops what it
/// could not write and reports that once, so a later success would be a lie. Reads and other writes go on.
#[derive(Debug)]
pub struct FileStore {
    file: Arc<File>,
    len_bytes: AtomicU64,
    geometry: Geometry,
    capabilities: Capabilities,
    preallocated: bool,
    durable: Arc<Durable>,
}

impl FileStore {
    /// Opens the file or block device at `path`.
    ///
    /// A regular file that may be written is locked against other processes that do the same (`flock`), a block device is
    /// opened exclusively, which fails while it is mounted.
    ///
    /// # Errors
    ///
    /// [`OpenError`] tells what is wrong with the path, and what to do about it.
    ///
    /// # Example
    ///
    /// ```
    /// use lunette_store::{FileStore, OpenOptions, Store};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("disk.img");
    /// let store = FileStore::open(&path, &OpenOptions { create: Some(1 << 30), ..OpenOptions::default() })?;
    /// assert_eq!(store.geometry().len_bytes, 1 << 30);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, OpenError> {
        let Opened { file, geometry, capabilities } = file_open::open(path.as_ref(), options)?;
        Ok(Self {
            file: Arc::new(file),
            len_bytes: AtomicU64::new(geometry.len_bytes),
            geometry,
            capabilities,
            preallocated: options.preallocate,
            durable: Arc::new(Durable::default()),
        })
    }

    /// Looks up the length again, for a file or device that was resized meanwhile, and serves it: [`Self::make_room`], then
    /// [`Self::serve_len`]. Gives the new length.
    ///
    /// # Errors
    ///
    /// What the system says; the length stays as it was.
    pub fn refresh_len(&self) -> io::Result<u64> {
        let len = self.make_room(0)?;
        self.serve_len(len);
        Ok(len)
    }

    /// The length of the file or device as the system has it now, in bytes, rounded down to the granularity.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn current_len(&self) -> io::Result<u64> {
        let granularity = u64::from(self.geometry.granularity_bytes);
        Ok(file_open::len(&self.file)? / granularity * granularity)
    }

    /// Makes a file that is shorter than `len_bytes` that long, and durably so. Gives the length that it has then, which may
    /// be served. A preallocated file gets space for what it has grown by. Waits for the medium.
    ///
    /// # Errors
    ///
    /// What the system says; block devices cannot be made longer.
    pub fn make_room(&self, len_bytes: u64) -> io::Result<u64> {
        if self.current_len()? < len_bytes {
            self.file.set_len(len_bytes)?;
            self.file.sync_all()?;
        }
        let len = self.current_len()?;
        if self.preallocated && !self.capabilities.read_only && !self.is_block_device()? {
            file_open::reserve(&self.file, len)?;
        }
        Ok(len)
    }

    /// Serves `len_bytes` from now on: what [`Self::make_room`] has found.
    pub fn serve_len(&self, len_bytes: u64) {
        self.len_bytes.store(len_bytes, Ordering::Release);
    }

    /// Whether it is a block device, whose length is not ours to change.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn is_block_device(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.file_type().is_block_device())
    }

    /// Makes a regular file longer or shorter. Bytes that are new read as zero. As with a write, the new length is durable
    /// after a flush.
    ///
    /// # Errors
    ///
    /// What the system says: it fails for block devices, and for a store that is read only.
    pub fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.file.set_len(len_bytes)?;
        self.len_bytes.store(len_bytes, Ordering::Release);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }
}

impl Store for FileStore {
    fn geometry(&self) -> Geometry {
        Geometry { len_bytes: self.len(), ..self.geometry }
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Blocks of the file, and what its file system has left; nothing is known of a block device.
    fn space(&self) -> io::Result<Option<Space>> {
        const STAT_BLOCK_BYTES: u64 = 512;
        let metadata = self.file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let system = rustix::fs::fstatvfs(&self.file)?;
        let free_bytes = system.f_bavail.saturating_mul(system.f_frsize);
        Ok(Some(Space { used_bytes: metadata.blocks() * STAT_BLOCK_BYTES, free_bytes }))
    }

    fn copy_source(&self) -> Option<CopySource> {
        Some(CopySource(Arc::clone(&self.file)))
    }

    fn can_copy_from(&self, source: &CopySource) -> bool {
        source.is_near(&self.file)
    }

    fn file_slice(&self, offset: u64, len: usize) -> Option<FileSlice> {
        let end = offset.checked_add(len as u64)?;
        (end <= self.len_bytes.load(Ordering::Acquire)).then(|| FileSlice::new(Arc::clone(&self.file), offset, len))
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        if let Err(error) = op.check(self.len(), self.capabilities.read_only) {
            return done.complete(Outcome::of(op, Err(error)));
        }
        let durable = op.fua() || matches!(op, Op::Flush);
        let done = if durable {
            match self.durable.start() {
                Ok(started) => Completion::call(move |outcome| started.finish(outcome, done)),
                Err(error) => return done.complete(Outcome::of(op, Err(error))),
            }
        } else {
            done
        };
        let kind = match op {
            Op::Read { offset, into } => FileOpKind::Read { offset, into },
            Op::Write { offset, from, fua } => FileOpKind::Write { offset, from, dsync: fua },
            Op::WriteZeroes { offset, len, may_unmap, fua } => {
                FileOpKind::Zero { offset, len, punch: may_unmap && !self.preallocated, dsync: fua }
            }
            // Zeroes for a file system that cannot punch would cost space instead of freeing it.
            Op::Unmap { .. } if !self.capabilities.unmap => return done.complete(Outcome::of(op, Ok(()))),
            Op::Unmap { offset, len } => FileOpKind::Zero { offset, len, punch: true, dsync: false },
            Op::Allocation { offset, len, found } => FileOpKind::Allocation { offset, len, found },
            Op::Copy { source, source_offset, offset, len, fua } => {
                FileOpKind::Copy { source: source.0, source_offset, offset, len, dsync: fua }
            }
            Op::Flush => FileOpKind::Sync,
        };
        io.submit(FileOp { file: Arc::clone(&self.file), kind }, done);
    }
}
