//! The places of all files, relative to the folder of the pool.

use std::path::{Path, PathBuf};

use crate::name::Name;

/// The folder for what is no volume: the lock, the journal, and what is being made.
pub(super) const WORK: &str = ".lunette";

/// The lock in [`WORK`], which the process that uses the pool holds.
pub(super) const LOCK: &str = "lock";

/// The redo log in [`WORK`].
pub(super) const JOURNAL: &str = "journal";

/// The first letters of what is being made in [`WORK`].
pub(super) const SCRATCH: &str = "new-";

/// The image in the folder of a volume.
pub(super) const DISK: &str = "disk.img";

/// The record in the folder of a volume.
pub(super) const RECORD: &str = "volume.json";

/// The folder of the snapshots in that of a volume.
pub(super) const SNAPSHOTS: &str = "snapshots";

/// The folder of the pool.
pub(super) fn pool() -> PathBuf {
    PathBuf::new()
}

pub(super) fn work() -> PathBuf {
    WORK.into()
}

pub(super) fn journal() -> PathBuf {
    work().join(JOURNAL)
}

/// The folder of a volume.
pub(super) fn volume(name: &Name) -> PathBuf {
    name.as_str().into()
}

pub(super) fn disk(volume_name: &Name) -> PathBuf {
    volume(volume_name).join(DISK)
}

pub(super) fn record(volume_name: &Name) -> PathBuf {
    volume(volume_name).join(RECORD)
}

pub(super) fn snapshots(volume_name: &Name) -> PathBuf {
    volume(volume_name).join(SNAPSHOTS)
}

/// The image of a snapshot.
pub(super) fn snapshot(volume_name: &Name, snapshot: &Name) -> PathBuf {
    image_in(&snapshots(volume_name), snapshot.as_str())
}

pub(super) fn snapshot_record(volume_name: &Name, snapshot: &Name) -> PathBuf {
    record_in(&snapshots(volume_name), snapshot.as_str())
}

/// The snapshot that has a record of this file name.
pub(super) fn snapshot_of_record(file: &str) -> Option<Name> {
    file.strip_suffix(".json")?.parse().ok()
}

/// The image of a snapshot in a folder.
pub(super) fn image_in(folder: &Path, stem: &str) -> PathBuf {
    folder.join(format!("{stem}.img"))
}

/// The record of a snapshot in a folder.
pub(super) fn record_in(folder: &Path, stem: &str) -> PathBuf {
    folder.join(format!("{stem}.json"))
}

/// The folder that a file is in.
pub(super) fn parent(path: &Path) -> PathBuf {
    path.parent().map(Path::to_owned).unwrap_or_default()
}
