//! Why a pool refuses or fails.

use std::io;

use crate::limits::{MAX_SNAPSHOTS, MAX_VOLUMES};
use crate::name::Name;

/// Says why a pool did not do what it was asked for. Nothing has changed then, except with
/// [`Unfinished`](Self::Unfinished) and perhaps [`Io`](Self::Io).
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No volume has this name.
    #[error("there is no volume {0}")]
    NoVolume(Name),
    /// The volume has no such snapshot.
    #[error("there is no snapshot {snapshot} of volume {volume}")]
    NoSnapshot {
        /// The volume.
        volume: Name,
        /// The snapshot that it has not.
        snapshot: Name,
    },
    /// A volume has the name already.
    #[error("there is a volume {0} already; choose another name")]
    VolumeExists(Name),
    /// The volume has such a snapshot already.
    #[error("volume {volume} has a snapshot {snapshot} already; choose another name")]
    SnapshotExists {
        /// The volume.
        volume: Name,
        /// The snapshot that it has.
        snapshot: Name,
    },
    /// A volume goes only without its snapshots.
    #[error("volume {volume} has snapshots ({count}); remove them first")]
    HasSnapshots {
        /// The volume.
        volume: Name,
        /// How many there are.
        count: usize,
    },
    /// The medium keeps the blocks of clones where those of their origin are.
    #[error("{what} has clones: {}; flatten or remove them first", join(.clones))]
    HasClones {
        /// The volume, or `VOLUME@SNAPSHOT`.
        what: String,
        /// The names of clones, or of some of them.
        clones: Vec<String>,
    },
    /// The volume is being filled, and has no whole content yet.
    #[error("volume {0} is being filled; wait for the end, or remove it or roll it back")]
    Filling(Name),
    /// A snapshot of the volume is being taken, which needs it as it is.
    #[error("a snapshot of volume {0} is being taken; try again when that is done")]
    BeingTaken(Name),
    /// Another user of the medium holds the volume.
    #[error("{0} is in use elsewhere: {1}")]
    Busy(Name, String),
    /// The file system cannot share blocks between files, and this crate copies none instead.
    #[error(
        "the file system has no reflinks, which snapshots and clones need; use XFS (mkfs.xfs -m reflink=1), btrfs, or ZFS 2.2 with block cloning"
    )]
    NoReflinks,
    /// The medium is full.
    #[error("the pool is full; remove volumes or snapshots, or add space")]
    Full,
    /// A bound of this crate.
    #[error("the pool has {MAX_VOLUMES} volumes, and takes no more")]
    TooManyVolumes,
    /// A bound of this crate.
    #[error("volume {0} has {MAX_SNAPSHOTS} snapshots, and takes no more; remove some")]
    TooManySnapshots(Name),
    /// A value does not fit.
    #[error("{0}")]
    Value(String),
    /// The caller has ended it; see [`Progress`](crate::Progress).
    #[error("it was ended before it was done")]
    Stopped,
    /// The medium has failed in the midst of a change that was already certain. The pool ends it before the next
    /// change, or when it is opened again. Until then a part of it may be missing.
    #[error("{what}: {source}; it is brought to its end before the next change, or when the pool is opened again")]
    Unfinished {
        /// The change.
        what: String,
        /// The error of the system or the cluster.
        source: io::Error,
    },
    /// The place of the pool cannot be used at all.
    #[error("{place}: {why}")]
    Unusable {
        /// The folder, or the pool of Ceph.
        place: String,
        /// The reason, and the remedy.
        why: String,
    },
    /// The medium has failed. A change that it was to keep may be there or not when the pool is opened again.
    #[error("{what}: {source}")]
    Io {
        /// The work that could not be done, with the file or image.
        what: String,
        /// The error of the system or the cluster.
        source: io::Error,
    },
}

fn join(names: &[String]) -> String {
    names.join(", ")
}
