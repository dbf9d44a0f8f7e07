//! The interface of both engines, and what it tells of volumes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::time::SystemTime;

use lunette_rbd::RbdUrl;
use serde::{Deserialize, Serialize};

use crate::error::PoolError;
use crate::name::Name;

/// The words that users give a volume or snapshot, by their keys.
pub type Labels = BTreeMap<String, String>;

/// A callback that learns the bytes that are done and all bytes, from time to time. When it breaks, the work stops.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// A pool of volumes. The [crate](crate) has its contract.
///
/// # Errors
///
/// The methods give [`PoolError`]: what is not there, what is there already, what is in use, or why the medium failed.
#[allow(clippy::missing_errors_doc, reason = "the trait has them for all methods")]
pub trait Pool: Send + Sync + fmt::Debug {
    /// The place of the blocks of a volume, or of its snapshot. It follows from the names, so neither need be there.
    fn place(&self, volume: &Name, snapshot: Option<&Name>) -> Place;

    /// All volumes, in the order of their names. What cannot be read is left out, with its reason in the second list.
    fn volumes(&self) -> Result<(Vec<Volume>, Vec<PoolError>), PoolError>;

    /// One volume.
    fn volume(&self, name: &Name) -> Result<Volume, PoolError>;

    /// The snapshots of a volume, the oldest first.
    fn snapshots(&self, volume: &Name) -> Result<Vec<Snapshot>, PoolError>;

    /// Creates a volume of zeroes.
    fn create(&self, name: &Name, new: &NewVolume) -> Result<Volume, PoolError>;

    /// Ends the filling of a volume that was created so: it has its content from now on.
    fn filled(&self, name: &Name) -> Result<(), PoolError>;

    /// Gives a volume another length. What is beyond a shorter one is lost.
    fn resize(&self, name: &Name, len_bytes: u64) -> Result<(), PoolError>;

    /// Gives a volume another name, with its snapshots.
    fn rename(&self, from: &Name, to: &Name) -> Result<(), PoolError>;

    /// Gives a volume these labels instead of those that it has.
    fn set_labels(&self, name: &Name, labels: &Labels) -> Result<(), PoolError>;

    /// Removes a volume that has no snapshots.
    fn remove(&self, name: &Name) -> Result<(), PoolError>;

    /// Prepares a snapshot of each of these volumes: does all that takes long and can be done before the instant.
    fn prepare(&self, group: &[SnapshotOf], labels: &Labels) -> Result<Box<dyn Snapshots + '_>, PoolError>;

    /// Removes a snapshot.
    fn remove_snapshot(&self, volume: &Name, snapshot: &Name) -> Result<(), PoolError>;

    /// Gives a volume the content and the length that a snapshot has, in place: whatever has it open sees that. It can
    /// be stopped only before it has changed anything.
    fn roll_back(&self, volume: &Name, snapshot: &Name, progress: Progress<'_>) -> Result<(), PoolError>;

    /// Creates a volume with the content of a snapshot, or of a volume as it is now. The length of `new` does not
    /// matter, and `is_full` is refused.
    fn clone_of(&self, origin: &Origin, name: &Name, new: &NewVolume) -> Result<Volume, PoolError>;

    /// Gives a clone blocks of its own, so that it depends on no origin.
    fn flatten(&self, name: &Name, progress: Progress<'_>) -> Result<(), PoolError>;

    /// The space of the pool.
    fn space(&self) -> Result<PoolSpace, PoolError>;

    /// The space of a volume, from all of its extents.
    fn volume_space(&self, name: &Name) -> Result<VolumeSpace, PoolError>;

    /// The ranges that may differ between a snapshot and a later state of its volume: another snapshot, or the present
    /// one. Without `since`, the ranges that are not known to be zeroes. In the order of their offsets, disjoint, and
    /// within the length of the later state; what lies beyond the length of the earlier one counts as changed.
    fn changes(&self, volume: &Name, since: Option<&Name>, until: Option<&Name>) -> Result<Vec<Change>, PoolError>;
}

/// Snapshots of a group that are prepared. Dropped before [`keep`](Self::keep), there are none.
pub trait Snapshots: Send {
    /// The volumes that are taken in parts, after the instant. [`take`](Self::take) takes all others.
    fn parts(&self) -> Vec<Part<'_>>;

    /// The instant of all of them. From before the call on, no write begins to what is not taken yet: until the return
    /// for volumes as a whole, and until they are taken for bytes of a [part](Self::parts). A write to a part that has
    /// begun before is in the snapshot or not.
    ///
    /// # Errors
    ///
    /// When one cannot be taken; then none is kept.
    fn take(&mut self) -> Result<(), PoolError>;

    /// Takes all of them with all of their parts. Between the call and its return nothing writes to the volumes.
    ///
    /// # Errors
    ///
    /// When one cannot be taken; then none is kept.
    fn take_whole(&mut self) -> Result<(), PoolError> {
        self.take()?;
        self.parts().iter().try_for_each(|part| part.take(0..part.len_bytes))
    }

    /// Keeps what was taken, all or none, on stable storage.
    ///
    /// # Errors
    ///
    /// When it cannot be kept; then none is.
    fn keep(self: Box<Self>) -> Result<Vec<Snapshot>, PoolError>;
}

/// A volume that is taken in parts.
pub struct Part<'s> {
    /// The volume.
    pub volume: &'s Name,
    /// The length of the volume in bytes.
    pub len_bytes: u64,
    pub(crate) take: Box<dyn Fn(Range<u64>) -> Result<(), PoolError> + Send + Sync + 's>,
}

impl Part<'_> {
    /// Takes a range of bytes, which is taken once. It begins and ends at multiples of 64 KiB, or ends where
    /// the volume does.
    ///
    /// # Errors
    ///
    /// When it cannot be taken; then none of the snapshots is kept.
    pub fn take(&self, range: Range<u64>) -> Result<(), PoolError> {
        (self.take)(range)
    }
}

/// Where the blocks of a volume or snapshot are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a raw image.
    File(PathBuf),
    /// In an image of Ceph, or a snapshot of one.
    Image(Box<RbdUrl>),
}

/// A volume that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    /// Bytes of the volume.
    pub len_bytes: u64,
    /// Whether it gets all of its space at once. Where the medium cannot, it is refused.
    pub is_full: bool,
    /// Whether it is to be filled before it is used. A filling that ends without [`Pool::filled`] leaves no volume
    /// behind when the pool is opened again.
    pub is_filling: bool,
    /// The serial number by which initiators know it, for life.
    pub serial: String,
    /// The labels.
    pub labels: Labels,
}

/// The source of a clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The volume.
    pub volume: Name,
    /// The snapshot; `None` for the content that the volume had when it was cloned.
    pub snapshot: Option<Name>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.snapshot {
            Some(snapshot) => write!(f, "{}@{snapshot}", self.volume),
            None => self.volume.fmt(f),
        }
    }
}

/// A volume of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The name.
    pub name: Name,
    /// The length in bytes.
    pub len_bytes: u64,
    /// The serial number by which initiators know it.
    pub serial: String,
    /// When it was created.
    pub created: SystemTime,
    /// The labels.
    pub labels: Labels,
    /// The origin of a clone, until it is flattened. The origin may have another name since, or be gone.
    pub origin: Option<Origin>,
    /// Whether it is being filled.
    pub is_filling: bool,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The name.
    pub name: Name,
    /// The length that the volume had, in bytes.
    pub len_bytes: u64,
    /// When it was taken.
    pub created: SystemTime,
    /// The labels.
    pub labels: Labels,
}

/// A snapshot that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOf {
    /// The volume.
    pub volume: Name,
    /// The name of the snapshot.
    pub snapshot: Name,
}

/// The space of a pool, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolSpace {
    /// All that it can hold.
    pub total_bytes: u64,
    /// Taken, by volumes or by others on the same medium.
    pub used_bytes: u64,
    /// Free.
    pub free_bytes: u64,
}

/// The space of a volume with its present content, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Occupied by it alone: what its removal frees at least.
    pub own_bytes: u64,
    /// Occupied together with snapshots, clones or other files. `None` where the medium does not tell.
    pub shared_bytes: Option<u64>,
}

/// A range that may differ between two states of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The range, in bytes.
    pub range: Range<u64>,
    /// Whether the later state has only zeroes there.
    pub is_zero: bool,
}
