//! Pools of volumes as the API shows them, and the trait of a server that has some.
//!
//! Volumes are no objects of the configuration: they live in their pools, and a change of one is made there at once.
//! They belong to no target, so a client of some targets sees none.

mod moving;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::callers::Caller;
use crate::jobs::Job;
use crate::problem::Problem;
pub use moving::{BaseSnapshot, ChangedRange, Changes, FillOrder, Filling, FillingEnd, FillingStep, MovedSnapshot};

/// The words that users give a volume or snapshot, by their keys.
pub type Labels = BTreeMap<String, String>;

/// The pools of a server. All methods may wait for the medium.
///
/// A client that is no administrator changes the volumes that it owns alone, within the quota of their pool. The
/// methods refuse anything else.
pub trait Volumes: Send + Sync {
    /// All pools, in the order of the configuration, with the quota of this client.
    fn pools(&self, caller: &Caller) -> Vec<Pool>;

    /// All volumes of a pool, or of all pools that can be used.
    ///
    /// # Errors
    ///
    /// When there is no such pool, or it cannot be used.
    fn volumes(&self, pool: Option<&str>) -> Result<Vec<Volume>, Problem>;

    /// One volume, with the space that it occupies.
    ///
    /// # Errors
    ///
    /// When there is none, or its pool cannot be used.
    fn volume(&self, at: &VolumePath) -> Result<Volume, Problem>;

    /// The snapshots of a volume, the oldest first.
    ///
    /// # Errors
    ///
    /// When there is no such volume, or its pool cannot be used.
    fn snapshots(&self, at: &VolumePath) -> Result<Vec<Snapshot>, Problem>;

    /// Creates a volume, of zeroes or as a clone.
    ///
    /// # Errors
    ///
    /// Why it was not created.
    fn create(&self, at: &VolumePath, new: NewVolume, caller: &Caller) -> Result<Volume, Problem>;

    /// Changes a volume: all that is wanted, in the order of the fields, up to the first that fails.
    ///
    /// # Errors
    ///
    /// Why something was not changed.
    fn change(&self, at: &VolumePath, change: VolumeChange, caller: &Caller) -> Result<Volume, Problem>;

    /// Removes a volume that no logical unit uses and that has no snapshots.
    ///
    /// # Errors
    ///
    /// Why it was not removed.
    fn remove(&self, at: &VolumePath, caller: &Caller) -> Result<(), Problem>;

    /// Takes a snapshot of several volumes at one instant.
    ///
    /// # Errors
    ///
    /// Why none was taken.
    fn snapshot(&self, order: SnapshotOrder, caller: &Caller) -> Result<Taken, Problem>;

    /// Removes a snapshot that no logical unit uses.
    ///
    /// # Errors
    ///
    /// Why it was not removed.
    fn remove_snapshot(&self, at: &SnapshotPath, caller: &Caller) -> Result<(), Problem>;

    /// Starts to give a volume the content of a snapshot. Its content of before becomes a snapshot, too.
    ///
    /// # Errors
    ///
    /// When no job is taken.
    fn roll_back(&self, at: &SnapshotPath, caller: &Caller) -> Result<Arc<Job>, Problem>;

    /// Starts to give a clone blocks of its own.
    ///
    /// # Errors
    ///
    /// When no job is taken.
    fn flatten(&self, at: &VolumePath, caller: &Caller) -> Result<Arc<Job>, Problem>;

    /// The content of a snapshot, or what it changed since another one, from an offset on. The list is bounded.
    ///
    /// # Errors
    ///
    /// When there is no such snapshot, or its blocks cannot be listed.
    fn changes(&self, at: &SnapshotPath, since: Option<&str>, from: u64) -> Result<Changes, Problem>;

    /// Begins to fill a volume, a new one or with what was changed. Nothing opens it until the end.
    ///
    /// # Errors
    ///
    /// Why it cannot be filled; then it is as it was.
    fn fill(&self, at: &VolumePath, order: FillOrder, caller: &Caller) -> Result<Filling, Problem>;

    /// Keeps how far a filling is, from where another one may go on.
    ///
    /// # Errors
    ///
    /// When another client fills the volume, or none.
    fn keep_filling(&self, at: &VolumePath, step: FillingStep, caller: &Caller) -> Result<(), Problem>;

    /// Ends a filling: the volume has its content, and the snapshot of it.
    ///
    /// # Errors
    ///
    /// When another client fills the volume, or none, or the pool fails.
    fn end_filling(&self, at: &VolumePath, end: FillingEnd, caller: &Caller) -> Result<Volume, Problem>;

    /// Undoes a filling: a new volume is removed, and another one has the content of before.
    ///
    /// # Errors
    ///
    /// When another client fills the volume, or none, or the pool fails.
    fn undo_filling(&self, at: &VolumePath, token: &str, caller: &Caller) -> Result<(), Problem>;
}

/// The names of a volume and its pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct VolumePath {
    /// The pool
    pub pool: String,
    /// The volume
    pub volume: String,
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volumes/{}/{}", self.pool, self.volume)
    }
}

/// The names of a snapshot, its volume and its pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct SnapshotPath {
    /// The pool
    pub pool: String,
    /// The volume
    pub volume: String,
    /// The snapshot
    pub snapshot: String,
}

impl fmt::Display for SnapshotPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volumes/{}/{}/snapshots/{}", self.pool, self.volume, self.snapshot)
    }
}

/// A pool of volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// The name of the pool.
    #[schema(example = "tank")]
    pub name: String,
    /// The folder, or the pool in Ceph.
    #[schema(example = "/srv/tank")]
    pub place: String,
    /// Why it cannot be used, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// How many volumes it has.
    pub volumes: u64,
    /// The lengths of all volumes together. More than there is space is over-commitment.
    pub committed_bytes: u64,
    /// All space.
    pub total_bytes: u64,
    /// The space that is taken, by volumes or by others on the same medium.
    pub used_bytes: u64,
    /// The space that is free.
    pub free_bytes: u64,
    /// Whether less is free than the configuration wants.
    pub is_low: bool,
    /// The lengths that the volumes of this client may have together; null for a client without a quota.
    pub quota_bytes: Option<u64>,
    /// The lengths that its volumes have together; null for a client without a quota.
    pub quota_used_bytes: Option<u64>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// The pool.
    #[schema(example = "tank")]
    pub pool: String,
    /// The name of the volume.
    #[schema(example = "db")]
    pub name: String,
    /// The length.
    pub size_bytes: u64,
    /// The serial number by which initiators know it, for life.
    pub serial: String,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// The words that users gave it.
    pub labels: Labels,
    /// The snapshot or volume that it is a clone of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "golden@v3")]
    pub origin: Option<String>,
    /// Whether it is being filled.
    pub filling: bool,
    /// The disk that it takes over, until all of it is copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taking_over: Option<TakingOver>,
    /// The logical units that serve it.
    #[schema(example = json!(["targets/iqn.2026-11.org.example:db/luns/0"]))]
    pub luns: Vec<String>,
    /// The bytes that it alone occupies. Lists do not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_bytes: Option<u64>,
    /// The bytes that it occupies together with snapshots and clones, where the medium tells. Lists do not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
}

/// A disk that a volume takes over: reads go through to it, and its blocks are copied in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TakingOver {
    /// The disk.
    #[schema(example = "iscsi://192.0.2.9/iqn.2026-11.org.example:old/0")]
    pub source: String,
    /// The bytes that are copied.
    pub done_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
    /// Why nothing is copied now. It is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// The pool.
    pub pool: String,
    /// The volume.
    pub volume: String,
    /// The name of the snapshot.
    #[schema(example = "monday")]
    pub name: String,
    /// The length that the volume had.
    pub size_bytes: u64,
    /// When it was taken, in seconds since 1970.
    pub created: u64,
    /// The words that users gave it.
    pub labels: Labels,
    /// The logical units that serve it.
    pub luns: Vec<String>,
}

/// A volume that is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// The length; for a clone, that of its origin unless it is to be longer; with a source, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The volume or snapshot of the same pool that it is to be a clone of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "golden@v3")]
    pub clone_of: Option<String>,
    /// The disk that it is to take over, as a LUN names it: a path, or the URL of a disk of another server
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "iscsi://192.0.2.9/iqn.2026-11.org.example:old/0")]
    pub source: Option<String>,
    /// Whether it gets all of its space at once.
    #[serde(default)]
    pub full: bool,
    /// The serial number; without it, one is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The words that users give it.
    #[serde(default)]
    pub labels: Labels,
}

/// A change of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeChange {
    /// The labels, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    /// The length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether it may become shorter, and lose what is beyond.
    #[serde(default)]
    pub force: bool,
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A snapshot that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotOrder {
    /// The volumes, each with its pool.
    #[schema(example = json!(["tank/db", "tank/log"]))]
    pub volumes: Vec<String>,
    /// The name of the snapshot of each.
    #[schema(example = "monday")]
    pub name: String,
    /// The words that users give it.
    #[serde(default)]
    pub labels: Labels,
}

/// Snapshots that were taken at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Taken {
    /// The snapshots, in the order of the volumes.
    pub snapshots: Vec<Snapshot>,
    /// The longest time that a request to the disks waited, in microseconds.
    pub pause_us: u64,
}
