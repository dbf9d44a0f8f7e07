//! The interface of a pool in Ceph that the engine needs, so that a model can stand in its place.

use std::collections::BTreeMap;
use std::io;
use std::ops::{ControlFlow, Range};
use std::time::SystemTime;

use lunette_rbd::{ImageName, ImageSnapshot, Images, ManagedImage, PoolRoom, Relative};

/// The images of a pool, as [`Images`] has them.
pub(super) trait Cluster: Send + Sync {
    fn list(&self) -> io::Result<Vec<ImageName>>;
    fn open(&self, image: &str, snapshot: Option<&str>) -> io::Result<Box<dyn Image>>;
    fn open_to_change(&self, image: &str) -> io::Result<Box<dyn Image>>;
    fn create(&self, image: &str, len_bytes: u64) -> io::Result<()>;
    fn clone_image(&self, origin: &str, snapshot: &str, image: &str) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn release_name(&self, image: &str, id: &str) -> io::Result<()>;
    fn remove(&self, image: &str) -> io::Result<()>;
    fn metadata(&self, prefix: &str) -> io::Result<BTreeMap<String, String>>;
    fn set_metadata(&self, key: &str, value: &str) -> io::Result<()>;
    fn remove_metadata(&self, key: &str) -> io::Result<()>;
    fn room(&self) -> io::Result<Option<PoolRoom>>;
}

/// An image, as [`ManagedImage`] has it.
pub(super) trait Image: Send + Sync {
    fn id(&self) -> io::Result<String>;
    fn len_bytes(&self) -> io::Result<u64>;
    fn created(&self) -> io::Result<SystemTime>;
    fn has_fast_diff(&self) -> io::Result<bool>;
    fn resize(&self, len_bytes: u64) -> io::Result<()>;
    fn lock_if_free(&self) -> io::Result<()>;
    fn roll_back(&self, snapshot: &str, told: &mut dyn FnMut(u64, u64)) -> io::Result<()>;
    fn flatten(&self, told: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> io::Result<()>;
    fn differences(
        &self,
        since: Option<&str>,
        range: Range<u64>,
        with_origin: bool,
        whole_objects: bool,
        found: &mut (dyn FnMut(u64, u64, bool) + Send),
    ) -> io::Result<()>;
    fn metadata_of(&self, key: &str) -> io::Result<Option<String>>;
    fn metadata(&self, prefix: &str) -> io::Result<BTreeMap<String, String>>;
    fn set_metadata(&self, key: &str, value: &str) -> io::Result<()>;
    fn remove_metadata(&self, key: &str) -> io::Result<()>;
    fn snapshots(&self) -> io::Result<Vec<ImageSnapshot>>;
    fn lengths(&self) -> io::Result<BTreeMap<u64, u64>>;
    fn create_snapshot(&self, snapshot: &str) -> io::Result<()>;
    fn remove_snapshot(&self, snapshot: &str) -> io::Result<()>;
    fn origin(&self) -> io::Result<Option<Relative>>;
    fn clones(&self) -> io::Result<Vec<Relative>>;
}

impl Cluster for Images {
    fn list(&self) -> io::Result<Vec<ImageName>> {
        self.list()
    }

    fn open(&self, image: &str, snapshot: Option<&str>) -> io::Result<Box<dyn Image>> {
        Ok(Box::new(self.open(image, snapshot)?))
    }

    fn open_to_change(&self, image: &str) -> io::Result<Box<dyn Image>> {
        Ok(Box::new(self.open_to_change(image)?))
    }

    fn create(&self, image: &str, len_bytes: u64) -> io::Result<()> {
        self.create(image, len_bytes)
    }

    fn clone_image(&self, origin: &str, snapshot: &str, image: &str) -> io::Result<()> {
        self.clone_image(origin, snapshot, image)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.rename(from, to)
    }

    fn release_name(&self, image: &str, id: &str) -> io::Result<()> {
        self.release_name(image, id)
    }

    fn remove(&self, image: &str) -> io::Result<()> {
        self.remove(image)
    }

    fn metadata(&self, prefix: &str) -> io::Result<BTreeMap<String, String>> {
        self.metadata(prefix)
    }

    fn set_metadata(&self, key: &str, value: &str) -> io::Result<()> {
        self.set_metadata(key, value)
    }

    fn remove_metadata(&self, key: &str) -> io::Result<()> {
        self.remove_metadata(key)
    }

    fn room(&self) -> io::Result<Option<PoolRoom>> {
        self.room()
    }
}

impl Image for ManagedImage {
    fn id(&self) -> io::Result<String> {
        self.id()
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.len_bytes()
    }

    fn created(&self) -> io::Result<SystemTime> {
        self.created()
    }

    fn has_fast_diff(&self) -> io::Result<bool> {
        self.has_fast_diff()
    }

    fn resize(&self, len_bytes: u64) -> io::Result<()> {
        self.resize(len_bytes)
    }

    fn lock_if_free(&self) -> io::Result<()> {
        self.lock_if_free()
    }

    fn roll_back(&self, snapshot: &str, told: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        self.roll_back(snapshot, told)
    }

    fn flatten(&self, told: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> io::Result<()> {
        self.flatten(told)
    }

    fn differences(
        &self,
        since: Option<&str>,
        range: Range<u64>,
        with_origin: bool,
        whole_objects: bool,
        found: &mut (dyn FnMut(u64, u64, bool) + Send),
    ) -> io::Result<()> {
        self.differences(since, range, with_origin, whole_objects, found)
    }

    fn metadata_of(&self, key: &str) -> io::Result<Option<String>> {
        self.metadata_of(key)
    }

    fn metadata(&self, prefix: &str) -> io::Result<BTreeMap<String, String>> {
        self.metadata(prefix)
    }

    fn set_metadata(&self, key: &str, value: &str) -> io::Result<()> {
        self.set_metadata(key, value)
    }

    fn remove_metadata(&self, key: &str) -> io::Result<()> {
        self.remove_metadata(key)
    }

    fn snapshots(&self) -> io::Result<Vec<ImageSnapshot>> {
        self.snapshots()
    }

    fn lengths(&self) -> io::Result<BTreeMap<u64, u64>> {
        self.lengths()
    }

    fn create_snapshot(&self, snapshot: &str) -> io::Result<()> {
        self.create_snapshot(snapshot)
    }

    fn remove_snapshot(&self, snapshot: &str) -> io::Result<()> {
        self.remove_snapshot(snapshot)
    }

    fn origin(&self) -> io::Result<Option<Relative>> {
        self.origin()
    }

    fn clones(&self) -> io::Result<Vec<Relative>> {
        self.clones()
    }
}
