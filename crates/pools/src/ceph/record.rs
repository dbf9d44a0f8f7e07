//! The records of a volume and of its snapshots, in the metadata of their image.

use std::io;

use lunette_rbd::ImageSnapshot;
use serde::{Deserialize, Serialize};

use super::cluster::Image;
use crate::name::Name;
use crate::pool::{Labels, NewVolume, Snapshot};

/// The beginning of all keys in the metadata of images.
pub(super) const PREFIX: &str = "lunette.";

/// The key of the [`Record`].
pub(super) const VOLUME: &str = "lunette.volume";

/// The version that this program writes and reads.
const VERSION: u32 = 1;

/// The record of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    /// The id of the image. A copy of the image has the metadata, too, and is another volume.
    image: String,
    pub(super) serial: String,
    pub(super) labels: Labels,
    pub(super) is_filling: bool,
}

/// The record of a snapshot. The time and the length are Ceph's.
#[derive(Debug, Serialize, Deserialize)]
struct SnapshotRecord {
    version: u32,
    labels: Labels,
}

/// The version alone, of a record that may be of any.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Record {
    /// The record of a new volume.
    pub(super) fn new(image: String, new: &NewVolume) -> Self {
        let NewVolume { len_bytes: _, is_full: _, is_filling, serial, labels } = new.clone();
        Self { version: VERSION, image, serial, labels, is_filling }
    }

    /// The record of an image that this program has not made: its serial number is the id of the image.
    fn of_others(image: String) -> Self {
        Self { version: VERSION, serial: image.clone(), image, labels: Labels::new(), is_filling: false }
    }

    /// The record of an image, if it has one of its own.
    pub(super) fn of(image: &dyn Image) -> io::Result<Option<Self>> {
        let (id, text) = (image.id()?, image.metadata_of(VOLUME)?);
        let record: Option<Self> = text.map(|text| decode(VOLUME, &text)).transpose()?;
        Ok(record.filter(|record| record.image == id))
    }

    /// The record of an image, or what stands for one that it has not.
    pub(super) fn of_any(image: &dyn Image) -> io::Result<Self> {
        Self::of(image)?.map_or_else(|| image.id().map(Self::of_others), Ok)
    }

    /// Keeps the record.
    pub(super) fn keep(&self, image: &dyn Image) -> io::Result<()> {
        image.set_metadata(VOLUME, &encode(self)?)
    }
}

/// Keeps the labels of a snapshot, by its id: a later snapshot of the name has another one.
pub(super) fn keep_labels(image: &dyn Image, id: u64, labels: &Labels) -> io::Result<()> {
    if labels.is_empty() {
        return Ok(());
    }
    image.set_metadata(&labels_key(id), &encode(&SnapshotRecord { version: VERSION, labels: labels.clone() })?)
}

/// Forgets the labels of a snapshot that is gone.
pub(super) fn forget_labels(image: &dyn Image, id: u64) -> io::Result<()> {
    image.remove_metadata(&labels_key(id))
}

/// The snapshots of an image, the oldest first, with their labels. Those whose names are none of ours are left out.
pub(super) fn snapshots(image: &dyn Image) -> io::Result<Vec<(u64, Snapshot)>> {
    let (snapshots, mut records) = (image.snapshots()?, image.metadata(SNAPSHOT)?);
    let named = snapshots.into_iter().filter_map(|snapshot| Some((snapshot.name.parse::<Name>().ok()?, snapshot)));
    let mut found = Vec::new();
    for (name, ImageSnapshot { id, len_bytes, created, .. }) in named {
        let key = labels_key(id);
        let record: Option<SnapshotRecord> = records.remove(&key).map(|text| decode(&key, &text)).transpose()?;
        let labels = record.map(|record| record.labels).unwrap_or_default();
        found.push((id, Snapshot { name, len_bytes, created, labels }));
    }
    Ok(found)
}

/// The beginning of the keys of snapshots.
const SNAPSHOT: &str = "lunette.snapshot.";

fn labels_key(id: u64) -> String {
    format!("{SNAPSHOT}{id}")
}

fn encode(record: &impl Serialize) -> io::Result<String> {
    serde_json::to_string(record).map_err(io::Error::other)
}

fn decode<T: for<'de> Deserialize<'de>>(key: &str, text: &str) -> io::Result<T> {
    let unreadable = |error: serde_json::Error| {
        io::Error::other(format!("its metadata {key} cannot be read: {error}; remove it with rbd image-meta remove"))
    };
    let Versioned { version } = serde_json::from_str(text).map_err(unreadable)?;
    if version != VERSION {
        return Err(io::Error::other(format!(
            "its metadata {key} has version {version}, and this program reads version {VERSION}; use the program that wrote it"
        )));
    }
    serde_json::from_str(text).map_err(unreadable)
}
