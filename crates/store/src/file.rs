//! Blocks in a regular file or on a block device.

mod attempt;
mod copy_source;
mod durability;
mod extents;
mod holders;
mod identity;
mod left;
mod lock;
mod loop_device;
mod made;
mod op;
mod open;
mod open_error;
mod sharing;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_buffer::FileSlice;
use rustix::io::Errno;

use crate::{Capabilities, Completion, Geometry, Op, OpKind, Outcome, Space, Store, whole_blocks};
pub use copy_source::CopySource;
use durability::DurabilityTracker;
pub use extents::{Extent, Extents};
pub use identity::FileIdentity;
use left::Ownership;
pub use left::{left_files, own_left_files};
use made::Made;
pub use op::{FileIo, FileOp, FileOpKind, InlineIo};
pub use open::OpenOptions;
use open::Opened;
pub use open_error::OpenError;
pub use sharing::{share_if_equal, share_range};

/// A store over a regular file, which may be sparse, or over a block device.
///
/// The store works through the page cache of the operating system, so it declares a volatile cache; a flush is
/// `fdatasync`, and a write with `fua` uses `RWF_DSYNC`. Unmap and write zeroes punch holes where the file system
/// supports it, unless the space was preallocated.
///
/// After a failed flush, every later flush and write with `fua` fails with
/// [`StoreError::FlushFailed`](crate::StoreError::FlushFailed), until the store is opened again or the failure is
/// [accepted](Self::accept_loss): the system drops what it could not write and reports that once, so a later success
/// would be false. Reads and other writes continue to work.
///
/// A file that has become shorter than the store serves is no longer read as zeroes there: a read that meets its end
/// fails with [`StoreError::OutOfRange`](crate::StoreError::OutOfRange). A write beyond its end would make it longer
/// again, so a program that serves a file compares [`current_len`](Self::current_len) often, and serves no more than
/// that.
///
/// A file that the system keeps in memory (tmpfs) never waits for a medium, so its store answers reads and writes
/// [at once](Store::answers_at_once).
#[derive(Debug)]
pub struct FileStore {
    file: Arc<File>,
    len_bytes: AtomicU64,
    geometry: Geometry,
    capabilities: Capabilities,
    preallocated: bool,
    in_memory: bool,
    durable: Arc<DurabilityTracker>,
    /// The file system reads from its page cache alone when it is asked to; false from its first refusal on.
    reads_cached: AtomicBool,
    identity: FileIdentity,
    /// The space and files that were made since the store was opened or kept last.
    made: Mutex<Vec<Made>>,
    tentative: AtomicBool,
    ownership: Ownership,
}

impl FileStore {
    /// Opens the file or block device at `path`.
    ///
    /// A writable regular file is locked against other processes: by `flock`, and by the byte locks of QEMU. It must
    /// not be shown by a loop device. A writable block device is opened exclusively, which fails while it is mounted,
    /// and has the byte locks too. A file that is opened for reading shares with all.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is wrong with the path and how to correct it. Then the file system is as it was.
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
        let path = path.as_ref();
        let Opened { file, geometry, capabilities, in_memory, made, ownership } = open::open(path, options)?;
        let look_up = |source| OpenError::Io { path: path.to_owned(), action: "look it up", source };
        Ok(Self {
            identity: FileIdentity::of_file(&file).map_err(look_up)?,
            made: Mutex::new(made),
            tentative: AtomicBool::new(options.tentative),
            ownership,
            file: Arc::new(file),
            len_bytes: AtomicU64::new(geometry.len_bytes),
            geometry,
            capabilities,
            preallocated: options.preallocate,
            in_memory,
            durable: Arc::new(DurabilityTracker::default()),
            reads_cached: AtomicBool::new(true),
        })
    }

    /// Updates the length after the file or device was resized: [`Self::make_room`], then [`Self::serve_len`]. Returns
    /// the new length in bytes.
    ///
    /// # Errors
    ///
    /// The error of the system; the length stays as it was.
    pub fn refresh_len(&self) -> io::Result<u64> {
        let len = self.make_room(0)?;
        self.serve_len(len);
        Ok(len)
    }

    /// The current length of the file or device, in bytes, rounded down to the granularity.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn current_len(&self) -> io::Result<u64> {
        Ok(whole_blocks(self.file_len()?, self.geometry.granularity_bytes))
    }

    /// The current length of the file or device, in bytes, to the last byte.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn file_len(&self) -> io::Result<u64> {
        open::len(&self.file)
    }

    /// Distinguishes the file from another one that takes its place under its path.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Extends a file that is shorter than `len_bytes` to that length, durably. Returns the current length in bytes,
    /// which may be served. A preallocated file gets space for the extension. The call waits for the medium.
    ///
    /// # Errors
    ///
    /// The error of the system, and then the file is as it was; block devices cannot be extended.
    pub fn make_room(&self, len_bytes: u64) -> io::Result<u64> {
        let mut made = Vec::new();
        let extended = self.extend(len_bytes, &mut made);
        if extended.is_err() {
            self.undo(made);
        } else {
            self.made().extend(made);
        }
        extended
    }

    fn extend(&self, len_bytes: u64, made: &mut Vec<Made>) -> io::Result<u64> {
        let before = self.file_len()?;
        let grows = whole_blocks(before, self.geometry.granularity_bytes) < len_bytes;
        let reserves = self.preallocated && !self.capabilities.read_only && !self.is_block_device()?;
        if reserves {
            made::check_space(&self.file, self.len(), before.max(len_bytes))?;
        }
        if grows {
            self.file.set_len(len_bytes)?;
            made.push(Made::Len { before, now: len_bytes });
        }
        let len = self.current_len()?;
        if reserves {
            // What was served until now has its space.
            made.push(made::reserve(&self.file, self.len(), len)?);
        }
        if grows {
            self.file.sync_all()?;
        }
        Ok(len)
    }

    /// Keeps what was made since the store was opened: the file itself, its space, its length.
    pub fn keep(&self) {
        self.tentative.store(false, Ordering::Relaxed);
        self.made().clear();
    }

    /// Takes back what was made since the store was opened or kept: a file that was created is removed, one that was
    /// made longer gets its old length, and space that was set aside is given back. For a store that nothing was
    /// written to since.
    pub fn take_back(&self) {
        let made = std::mem::take(&mut *self.made());
        self.undo(made);
    }

    fn undo(&self, made: Vec<Made>) {
        // Another process may be writing there.
        if !self.ownership.is_ours() {
            return;
        }
        made.into_iter().rev().for_each(|made| made.take_back(&self.file));
    }

    fn made(&self) -> MutexGuard<'_, Vec<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor, for the process that takes this one's place ([`left_files`]). From now on the locks stay when
    /// the store is dropped.
    pub fn leave(&self) -> BorrowedFd<'_> {
        self.ownership.leave(true);
        self.as_fd()
    }

    /// Goes on with what was [left](Self::leave), because no other process has taken it.
    pub fn stay(&self) {
        self.ownership.leave(false);
    }

    /// Whether a flush or a durable write has failed.
    pub fn has_lost_writes(&self) -> bool {
        self.durable.has_failed()
    }

    /// Lets flushes succeed again after a failed one, as a store does that is opened again. Whoever wrote must be told
    /// that writes may be lost.
    pub fn accept_loss(&self) {
        self.durable.forget_failure();
    }

    /// Serves `len_bytes` from now on: the length that [`Self::make_room`] returned.
    pub fn serve_len(&self, len_bytes: u64) {
        self.len_bytes.store(len_bytes, Ordering::Release);
    }

    /// Whether the store is a block device, whose length cannot be changed.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn is_block_device(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.file_type().is_block_device())
    }

    /// Extends or truncates a regular file. New bytes read as zero. As with a write, the new length is durable after a
    /// flush.
    ///
    /// # Errors
    ///
    /// The error of the system. The call fails for block devices, and for a read-only store.
    pub fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.file.set_len(len_bytes)?;
        self.len_bytes.store(len_bytes, Ordering::Release);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    /// Whether all of these bytes lie within the store.
    fn holds(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len())
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        if *self.tentative.get_mut() {
            self.take_back();
        }
        // Unless an operation still has the file; then its end releases them. Closing releases nothing that another
        // process has open too.
        if self.ownership.is_ours()
            && let Some(file) = Arc::get_mut(&mut self.file)
        {
            lock::release(file);
        }
    }
}

impl AsFd for FileStore {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Store for FileStore {
    fn geometry(&self) -> Geometry {
        Geometry { len_bytes: self.len(), ..self.geometry }
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The blocks of the file and the free space of its file system; unknown for a block device.
    fn space(&self) -> io::Result<Option<Space>> {
        let metadata = self.file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let system = rustix::fs::fstatvfs(&self.file)?;
        let free_bytes = system.f_bavail.saturating_mul(system.f_frsize);
        Ok(Some(Space { used_bytes: metadata.blocks() * made::STAT_BLOCK_BYTES, free_bytes }))
    }

    fn copy_source(&self) -> Option<CopySource> {
        Some(CopySource(Arc::clone(&self.file)))
    }

    fn can_copy_from(&self, source: &CopySource) -> bool {
        source.is_near(&self.file)
    }

    fn file_slice(&self, offset: u64, len: usize) -> Option<FileSlice> {
        self.holds(offset, len).then(|| FileSlice::new(Arc::clone(&self.file), offset, len))
    }

    /// A write may wait for the medium, even one into the page cache.
    fn answers_at_once(&self, kind: OpKind) -> bool {
        match kind {
            OpKind::Read => self.in_memory || self.reads_cached.load(Ordering::Relaxed),
            OpKind::Write => self.in_memory && !self.capabilities.read_only,
            _ => false,
        }
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        if !self.holds(offset, into.len()) {
            return false;
        }
        if self.in_memory {
            return op::read(&self.file, offset, into).is_ok();
        }
        match attempt::read_cached(&self.file, offset, into) {
            Ok(len) => len == into.len(),
            Err(error) => {
                if error == Errno::OPNOTSUPP {
                    self.reads_cached.store(false, Ordering::Relaxed);
                }
                false
            }
        }
    }

    /// Durable writes go the way of all requests, because their failures are remembered.
    fn write_at_once(&self, offset: u64, from: &[u8], fua: bool) -> bool {
        let may = self.in_memory && !fua && !self.capabilities.read_only;
        may && self.holds(offset, from.len()) && op::write(&self.file, offset, from).is_ok()
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
            // A file system that cannot punch would spend space on zeroes instead of freeing it.
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
