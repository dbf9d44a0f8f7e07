//! An image that is open to be managed.

use std::ffi::{c_int, c_void};
use std::io;
use std::ops::{ControlFlow, Range};
use std::ptr::null_mut;
use std::time::{Duration, SystemTime};

use super::super::opened;
use super::super::table::{ManageTable, ProgressCallback};
use super::super::{OpenImage, check};
use super::lists::name;
use super::progress::follow;

/// An image that is open to be managed, or a snapshot of one.
///
/// All methods wait for the cluster. It is closed when it is dropped, which waits, too.
pub struct ManagedImage {
    table: &'static ManageTable,
    image: OpenImage,
}

impl ManagedImage {
    pub(super) fn new(table: &'static ManageTable, image: OpenImage) -> Self {
        Self { table, image }
    }

    pub(super) fn table(&self) -> &'static ManageTable {
        self.table
    }

    pub(super) fn image(&self) -> &OpenImage {
        &self.image
    }

    /// The id of the image in the pool, which no other image ever has.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn id(&self) -> io::Result<String> {
        self.image.id()
    }

    /// The length in bytes, of the snapshot if one is open.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn len_bytes(&self) -> io::Result<u64> {
        self.image.len_bytes()
    }

    /// The time at which the image was created.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn created(&self) -> io::Result<SystemTime> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the image is open, and `time` is a place for the result.
        check(unsafe { (self.table.rbd_get_create_timestamp)(self.image.handle, &raw mut time) })?;
        Ok(system_time(time))
    }

    /// Whether the cluster knows which objects differ between snapshots, so that
    /// [`differences`](Self::differences) need not ask for each one.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn has_fast_diff(&self) -> io::Result<bool> {
        self.image.facts().map(|facts| facts.fast_diff)
    }

    /// Whether the image has the feature of an exclusive lock.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn has_lock(&self) -> io::Result<bool> {
        self.image.facts().map(|facts| facts.has_lock)
    }

    /// Gives the image another length. What is beyond a shorter one is lost. Whatever has it open learns of that.
    ///
    /// # Errors
    ///
    /// `ReadOnlyFilesystem` when another client keeps the lock, or an error of the cluster.
    pub fn resize(&self, len_bytes: u64) -> io::Result<()> {
        // SAFETY: the image is open.
        check(unsafe { (self.table.rbd_resize)(self.image.handle, len_bytes) })
    }

    /// Takes the lock of the image, unless a client has it, and gives it up when another client wants it. Then changes
    /// take no longer than they must, because none of them takes the lock first. An image without the lock's feature
    /// has none.
    ///
    /// # Errors
    ///
    /// An error of the cluster, also when another client was quicker.
    pub fn lock_if_free(&self) -> io::Result<()> {
        if !self.image.has_lock()? || self.is_locked()? {
            return Ok(());
        }
        // librbd takes the lock for it, although there is nothing to flush. `rbd_lock_acquire` would keep it from
        // others.
        // SAFETY: the image is open.
        check(unsafe { (self.table.rbd_flush)(self.image.handle) })
    }

    fn is_locked(&self) -> io::Result<bool> {
        let (mut mode, mut owner, mut count) = (0, null_mut(), 1);
        // SAFETY: the image is open, and there is room for one owner. An exclusive lock has no more.
        let code = unsafe {
            (self.table.rbd_lock_get_owners)(self.image.handle, &raw mut mode, &raw mut owner, &raw mut count)
        };
        if code == -libc::ENOENT {
            return Ok(false);
        }
        check(code)?;
        // SAFETY: librbd has filled this many entries, and nothing refers to their texts.
        unsafe { (self.table.rbd_lock_get_owners_cleanup)(&raw mut owner, count) };
        Ok(count > 0)
    }

    /// Gives the image the content and the length that its snapshot has, in place. `told` learns how many bytes are
    /// done of how many. It needs the lock: when a store of this process has that, it works through that store, without
    /// a limit of time.
    ///
    /// # Errors
    ///
    /// `NotFound`, `ReadOnlyFilesystem` when another client keeps the lock, or an error of the cluster. Then a part of
    /// the image may have the content of the snapshot.
    pub fn roll_back(&self, snapshot: &str, told: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        let (snapshot, roll_back) = (name(snapshot)?, self.table.rbd_snap_rollback_with_progress);
        let mut told_all = |done, total| {
            told(done, total);
            ControlFlow::Continue(())
        };
        self.work(&mut told_all, |image, callback, argument| {
            // SAFETY: the image is open, and the name and what the callback needs live beyond the call.
            unsafe { roll_back(image.handle, snapshot.as_ptr(), callback, argument) }
        })
    }

    /// Copies from the origin what the image has from there, so that it depends on it no longer. `told` learns how many
    /// bytes are done of how many, and stops the work when it breaks: then the rest is as before. When a store of this
    /// process has the lock, it works through that store, without a limit of time. When another client has it, that
    /// client works, and does not stop.
    ///
    /// # Errors
    ///
    /// `Interrupted` when it was stopped, `InvalidInput` for an image without origin, or an error of the cluster.
    pub fn flatten(&self, told: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> io::Result<()> {
        let flatten = self.table.rbd_flatten_with_progress;
        self.work(told, |image, callback, argument| {
            // SAFETY: the image is open, and what the callback needs lives beyond the call.
            unsafe { flatten(image.handle, callback, argument) }
        })
    }

    /// Makes a call that reports its progress in objects, with the handle of this process that has the lock, or with
    /// this one.
    fn work(
        &self,
        told: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
        call: impl FnOnce(&OpenImage, ProgressCallback, *mut c_void) -> c_int + Send,
    ) -> io::Result<()> {
        let (owner, len_bytes) = (opened::owner_of(self.table, &self.image), self.len_bytes()?);
        let image = owner.as_deref().map_or(&self.image, |owner| owner.image());
        follow(|callback, argument| call(image, callback, argument), &mut |done, total| {
            told(share(len_bytes, done, total), len_bytes)
        })
    }

    /// Calls `found` for the extents of a range that may differ between a snapshot and what is open, with their offset,
    /// their length in bytes, and whether they have space. Without `since`, for the extents that have space. Those of
    /// the origin count if `with_origin`. With `whole_objects`, an object differs everywhere or nowhere; then librbd
    /// (16.2) may miss what was lost to a shorter length when a snapshot was taken with that.
    ///
    /// # Errors
    ///
    /// `NotFound` for the snapshot, or an error of the cluster.
    pub fn differences(
        &self,
        since: Option<&str>,
        range: Range<u64>,
        with_origin: bool,
        whole_objects: bool,
        found: &mut (dyn FnMut(u64, u64, bool) + Send),
    ) -> io::Result<()> {
        let since = since.map(name).transpose()?;
        self.image.differences(since.as_deref(), range, with_origin, whole_objects, &mut |offset, len, has_space| {
            found(offset, len, has_space);
            true
        })
    }
}

/// A time of librbd.
pub(super) fn system_time(time: libc::timespec) -> SystemTime {
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    let since = Duration::from_secs(seconds.unwrap_or(0)) + Duration::from_nanos(nanoseconds.unwrap_or(0).into());
    SystemTime::UNIX_EPOCH + since
}

/// The part of `len_bytes` that is as large as `done` of `total`.
fn share(len_bytes: u64, done: u64, total: u64) -> u64 {
    let part = u128::from(len_bytes) * u128::from(done.min(total)) / u128::from(total.max(1));
    u64::try_from(part).unwrap_or(len_bytes)
}
