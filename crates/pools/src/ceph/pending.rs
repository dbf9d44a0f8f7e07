//! Changes of several steps, written down in the metadata of the pool before they begin.
//!
//! A change that a failure interrupts stays written down. It is ended or undone before the next change, or when the
//! pool is opened again.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use crate::name::Name;
use crate::pool::SnapshotOf;

/// The beginning of the keys. The volume of the change follows.
const PREFIX: &str = "lunette.change.";

/// A change of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub(super) enum Pending {
    /// The volume is made, or filled. Undone, unless it is whole.
    Make {
        /// The volume that is cloned as it is now, by a snapshot that only the clone needs.
        origin: Option<Name>,
    },
    /// The volume is removed. Ended.
    Remove {
        /// The id of its image.
        image: String,
    },
    /// The volume gets another name. Ended or undone.
    Rename {
        /// The id of its image.
        image: String,
        /// The other name.
        to: Name,
    },
    /// The volume gets shorter. Ended.
    Shrink {
        /// The new length.
        len_bytes: u64,
    },
    /// The volume gets the content of a snapshot. Ended.
    RollBack {
        /// The snapshot.
        snapshot: Name,
    },
    /// Snapshots of the volume and of others are taken. Undone.
    Snapshots {
        /// The volumes, this one first, and the names of their snapshots.
        group: Vec<SnapshotOf>,
    },
}

impl Pending {
    /// The volumes that the change concerns.
    pub(super) fn volumes<'a>(&'a self, volume: &'a Name) -> Vec<&'a Name> {
        match self {
            Self::Make { origin: Some(origin) } => vec![volume, origin],
            Self::Rename { to, .. } => vec![volume, to],
            Self::Snapshots { group } => group.iter().map(|of| &of.volume).collect(),
            Self::Make { origin: None } | Self::Remove { .. } | Self::Shrink { .. } | Self::RollBack { .. } => {
                vec![volume]
            }
        }
    }

    /// The change of the volume in words, for errors.
    pub(super) fn describe(&self, volume: &Name) -> String {
        match self {
            Self::Make { .. } => format!("volume {volume} is made"),
            Self::Remove { .. } => format!("volume {volume} is removed"),
            Self::Rename { to, .. } => format!("volume {volume} is renamed to {to}"),
            Self::Shrink { len_bytes } => format!("volume {volume} is cut to {len_bytes} bytes"),
            Self::RollBack { snapshot } => format!("volume {volume} is rolled back to {snapshot}"),
            Self::Snapshots { group } => format!("snapshots are taken of {} volumes, of {volume} first", group.len()),
        }
    }

    /// Whether the content of the volume is neither the old nor the new one until the change is ended.
    pub(super) fn leaves_it_torn(&self) -> bool {
        matches!(self, Self::Remove { .. } | Self::Shrink { .. } | Self::RollBack { .. })
    }
}

/// Writes a change down.
pub(super) fn begin(cluster: &dyn Cluster, volume: &Name, change: &Pending) -> io::Result<()> {
    cluster.set_metadata(&key(volume), &serde_json::to_string(change).map_err(io::Error::other)?)
}

/// Strikes a change out.
pub(super) fn end(cluster: &dyn Cluster, volume: &Name) -> io::Result<()> {
    cluster.remove_metadata(&key(volume))
}

/// The changes that are written down, by their volumes.
pub(super) fn list(cluster: &dyn Cluster) -> io::Result<BTreeMap<Name, Pending>> {
    let mut list = BTreeMap::new();
    for (key, text) in cluster.metadata(PREFIX)? {
        let unreadable = |why: String| {
            io::Error::other(format!("the change {key} in the metadata of the pool is not of this program: {why}"))
        };
        let volume: Name =
            key[PREFIX.len()..].parse().map_err(|error: crate::NameError| unreadable(error.to_string()))?;
        list.insert(volume, serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?);
    }
    Ok(list)
}

fn key(volume: &Name) -> String {
    format!("{PREFIX}{volume}")
}
