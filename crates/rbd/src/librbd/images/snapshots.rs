//! The snapshots of an image.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::io;
use std::ptr::{null, null_mut};
use std::time::SystemTime;

use super::super::check;
use super::super::table::SnapshotInfo;
use super::ManagedImage;
use super::image::system_time;
use super::lists::{self, name, owned};
use super::progress::ignored;

/// `RBD_SNAP_NAMESPACE_TYPE_USER`.
pub(super) const USER_NAMESPACE: c_int = 0;

/// `RBD_SNAP_CREATE_SKIP_QUIESCE`: no other client is asked to stop writing first, which may take long.
const SKIP_QUIESCE: u32 = 1;

/// A snapshot that a user has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSnapshot {
    /// The id, which no other snapshot of the pool ever has. Later ones are larger.
    pub id: u64,
    /// The name.
    pub name: String,
    /// The length that the image had, in bytes.
    pub len_bytes: u64,
    /// The time of the snapshot.
    pub created: SystemTime,
}

impl ManagedImage {
    /// The snapshots that users have taken, the oldest first. Snapshots that librbd keeps for clones, groups and
    /// mirrors are not among them.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn snapshots(&self) -> io::Result<Vec<ImageSnapshot>> {
        let mut snapshots = Vec::new();
        for (id, name, len_bytes) in self.all_snapshots()? {
            if self.is_users(id)? {
                snapshots.push(ImageSnapshot { id, name, len_bytes, created: self.taken(id)? });
            }
        }
        Ok(snapshots)
    }

    /// The lengths that the image had at its snapshots, in bytes, by the ids of the snapshots. Snapshots that librbd
    /// keeps for clones, groups and mirrors are among them.
    ///
    /// # Errors
    ///
    /// An error of the cluster.
    pub fn lengths(&self) -> io::Result<BTreeMap<u64, u64>> {
        Ok(self.all_snapshots()?.into_iter().map(|(id, _, len_bytes)| (id, len_bytes)).collect())
    }

    /// Ids, names and lengths of all snapshots, the oldest first.
    fn all_snapshots(&self) -> io::Result<Vec<(u64, String, u64)>> {
        let empty = SnapshotInfo { id: 0, len_bytes: 0, name: null() };
        let ask = |infos: &mut [SnapshotInfo], count: &mut usize| {
            let mut room = c_int::try_from(*count).unwrap_or(c_int::MAX);
            // SAFETY: the image is open, and there is room for `room` entries.
            let code = unsafe { (self.table().rbd_snap_list)(self.image().handle, infos.as_mut_ptr(), &raw mut room) };
            *count = usize::try_from(if code < 0 { room } else { code }).unwrap_or(0);
            code.min(0)
        };
        let mut infos = lists::grow(empty, ask)?;
        let found = infos.iter().map(|info| {
            // SAFETY: librbd has filled the entries with texts, which live until the clean-up below.
            (info.id, unsafe { owned(info.name) }, info.len_bytes)
        });
        let mut found: Vec<_> = found.collect();
        if !infos.is_empty() {
            // SAFETY: this is librbd's list, which ends with an entry without name in the room behind the others, and
            // nothing refers to its texts any more.
            unsafe { (self.table().rbd_snap_list_end)(infos.as_mut_ptr()) };
        }
        found.sort_by_key(|(id, ..)| *id);
        Ok(found)
    }

    fn is_users(&self, id: u64) -> io::Result<bool> {
        let mut namespace_type = 0;
        // SAFETY: the image is open, and `namespace_type` is a place for the result.
        let code =
            unsafe { (self.table().rbd_snap_get_namespace_type)(self.image().handle, id, &raw mut namespace_type) };
        check(code).map(|()| namespace_type == USER_NAMESPACE)
    }

    fn taken(&self, id: u64) -> io::Result<SystemTime> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the image is open, and `time` is a place for the result.
        check(unsafe { (self.table().rbd_snap_get_timestamp)(self.image().handle, id, &raw mut time) })?;
        Ok(system_time(time))
    }

    /// Takes a snapshot. The monitors number the snapshots of all images, in rounds that are up to a second apart
    /// (`paxos_propose_interval`). Snapshots that are taken by several threads at once share a round.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`, or an error of the cluster.
    pub fn create_snapshot(&self, snapshot: &str) -> io::Result<()> {
        let snapshot = name(snapshot)?;
        // SAFETY: the image is open, the name lives beyond the call, and the callback needs nothing.
        check(unsafe {
            (self.table().rbd_snap_create2)(self.image().handle, snapshot.as_ptr(), SKIP_QUIESCE, ignored, null_mut())
        })
    }

    /// Removes a snapshot. One with clones remains, without its name, until the last clone is gone.
    ///
    /// # Errors
    ///
    /// `NotFound`, `ResourceBusy` for one that is protected, or an error of the cluster.
    pub fn remove_snapshot(&self, snapshot: &str) -> io::Result<()> {
        let snapshot = name(snapshot)?;
        // SAFETY: the image is open, and the name lives beyond the call.
        check(unsafe { (self.table().rbd_snap_remove)(self.image().handle, snapshot.as_ptr()) })
    }
}
