//! The errors of the cluster, as errors of pools.

use std::io;

use crate::error::PoolError;
use crate::name::Name;

/// The error of a pool for one of the cluster, in work on a volume.
pub(super) fn of_volume(volume: &Name, what: &str, error: io::Error) -> PoolError {
    let busy = |why: &str| PoolError::Busy(volume.clone(), why.into());
    match error.kind() {
        io::ErrorKind::NotFound => PoolError::NoVolume(volume.clone()),
        io::ErrorKind::AlreadyExists => PoolError::VolumeExists(volume.clone()),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => PoolError::Full,
        io::ErrorKind::ResourceBusy => {
            busy("a client has it open, or a snapshot is protected; rbd status names clients")
        }
        io::ErrorKind::ReadOnlyFilesystem => busy("a client keeps its exclusive lock; rbd lock list names it"),
        _ => PoolError::Io { what: format!("volume {volume}: {what}"), source: error },
    }
}

/// The error of a pool for one of the cluster, in work on a snapshot of a volume that is there.
pub(super) fn of_snapshot(volume: &Name, snapshot: &Name, what: &str, error: io::Error) -> PoolError {
    let (volume, snapshot) = (volume.clone(), snapshot.clone());
    match error.kind() {
        io::ErrorKind::NotFound => PoolError::NoSnapshot { volume, snapshot },
        io::ErrorKind::AlreadyExists => PoolError::SnapshotExists { volume, snapshot },
        _ => of_volume(&volume, what, error),
    }
}

/// Whether the error says that nothing was begun, so that there is nothing to settle.
pub(super) fn is_refusal(error: &PoolError) -> bool {
    match error {
        PoolError::NoVolume(_)
        | PoolError::NoSnapshot { .. }
        | PoolError::VolumeExists(_)
        | PoolError::SnapshotExists { .. }
        | PoolError::HasSnapshots { .. }
        | PoolError::HasClones { .. }
        | PoolError::Busy(..) => true,
        PoolError::Filling(_)
        | PoolError::NoReflinks
        | PoolError::Full
        | PoolError::TooManyVolumes
        | PoolError::TooManySnapshots(_)
        | PoolError::Value(_)
        | PoolError::Stopped
        | PoolError::Unfinished { .. }
        | PoolError::Unusable { .. }
        | PoolError::BeingTaken(_)
        | PoolError::Io { .. } => false,
    }
}
