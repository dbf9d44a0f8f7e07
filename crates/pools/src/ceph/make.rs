//! New volumes, and the end of old ones.

use std::io;

use super::CephPool;
use super::cluster::Image;
use super::error::{of_snapshot, of_volume};
use super::pending::Pending;
use super::record::{self, Record};
use crate::check;
use crate::error::PoolError;
use crate::limits::MAX_VOLUMES;
use crate::name::Name;
use crate::pool::{NewVolume, Origin, Volume};

impl CephPool {
    pub(super) fn create_volume(&self, name: &Name, new: &NewVolume) -> Result<Volume, PoolError> {
        check::new_volume(new)?;
        if new.is_full {
            let why = "Ceph sets no space aside for a volume; create it without (provisioning thin)";
            return Err(PoolError::Value(why.into()));
        }
        let _claim = self.claim([name])?;
        self.refuse_name(name)?;
        self.make(name, None, new, || {
            let created = self.cluster.create(name.as_str(), new.len_bytes);
            created.map_err(|error| of_volume(name, "it cannot be created", error))?;
            self.adopt(name, new)
        })
    }

    pub(super) fn clone_volume(&self, origin: &Origin, name: &Name, new: &NewVolume) -> Result<Volume, PoolError> {
        check::clone(new)?;
        if origin.volume == *name {
            return Err(PoolError::VolumeExists(name.clone()));
        }
        let _claim = self.claim([name])?;
        let _origin_claim = self.claims.shared(&origin.volume)?;
        let (image, _) = self.open_filled(&origin.volume)?;
        self.refuse_name(name)?;
        let Some(snapshot) = &origin.snapshot else {
            return self
                .make(name, Some(&origin.volume), new, || self.clone_present(&*image, &origin.volume, name, new));
        };
        // A snapshot that is not there is found out before anything begins.
        drop(self.open_to_read(&origin.volume, Some(snapshot))?);
        self.make(name, None, new, || {
            let cloned = self.cluster.clone_image(origin.volume.as_str(), snapshot.as_str(), name.as_str());
            cloned.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => of_snapshot(&origin.volume, snapshot, "it cannot be cloned", error),
                _ => of_volume(name, "it cannot be made as a clone", error),
            })?;
            self.adopt(name, new)
        })
    }

    /// Clones a volume as it is now, by a snapshot that librbd keeps without a name for as long as the clone needs it.
    fn clone_present(&self, image: &dyn Image, origin: &Name, name: &Name, new: &NewVolume) -> Result<(), PoolError> {
        let snapshot = passing_snapshot(name);
        let failed =
            |error: io::Error| PoolError::Io { what: format!("volume {origin}: it cannot be cloned"), source: error };
        image.create_snapshot(&snapshot).map_err(failed)?;
        let cloned = self.cluster.clone_image(origin.as_str(), &snapshot, name.as_str());
        cloned.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => failed(error),
            _ => of_volume(name, "it cannot be made as a clone", error),
        })?;
        image.remove_snapshot(&snapshot).map_err(failed)?;
        self.adopt(name, new)
    }

    /// Makes a volume by `work`, which keeps its record last.
    fn make(
        &self,
        name: &Name,
        origin: Option<&Name>,
        new: &NewVolume,
        work: impl FnOnce() -> Result<(), PoolError>,
    ) -> Result<Volume, PoolError> {
        let change = Pending::Make { origin: origin.cloned() };
        if new.is_filling {
            self.change_for_later(name, &change, work)?;
            self.filling().insert(name.clone());
        } else {
            self.change(name, &change, work)?;
        }
        self.read(name)
    }

    /// Gives a new image its record, instead of what it may have from its origin.
    fn adopt(&self, name: &Name, new: &NewVolume) -> Result<(), PoolError> {
        let adopt = || {
            let image = self.cluster.open_to_change(name.as_str())?;
            for key in image.metadata(record::PREFIX)?.into_keys().filter(|key| key != record::VOLUME) {
                image.remove_metadata(&key)?;
            }
            Record::new(image.id()?, new).keep(&*image)
        };
        adopt().map_err(|source| PoolError::Io { what: format!("volume {name}: its record cannot be kept"), source })
    }

    /// Reads a volume that may be in the making, when it is whole.
    pub(super) fn read_made(&self, name: &Name) -> Result<Option<Volume>, PoolError> {
        let image = self.open_to_read(name, None)?;
        let failed = |error| of_volume(name, "it cannot be read", error);
        if Record::of(&*image).map_err(failed)?.is_none() {
            return Ok(None);
        }
        let volume = self.describe(name, &*image).map_err(failed)?;
        let is_given_up = volume.is_filling && !self.filling().contains(name);
        Ok(Some(volume).filter(|_| !is_given_up))
    }

    /// Fails when the pool takes no volume of this name.
    fn refuse_name(&self, name: &Name) -> Result<(), PoolError> {
        let names = self.names()?;
        match names.len() {
            _ if names.iter().any(|taken| taken == name.as_str()) => Err(PoolError::VolumeExists(name.clone())),
            MAX_VOLUMES.. => Err(PoolError::TooManyVolumes),
            _ => Ok(()),
        }
    }

    /// Fails when a volume cannot be removed. The id of its image otherwise.
    pub(super) fn refuse_removal(&self, name: &Name) -> Result<String, PoolError> {
        let image = self.open_to_read(name, None)?;
        let failed = |error| of_volume(name, "its snapshots cannot be listed", error);
        let count = image.snapshots().map_err(failed)?.len();
        if count > 0 {
            return Err(PoolError::HasSnapshots { volume: name.clone(), count });
        }
        self.refuse_clones(&*image, name, name.to_string())?;
        image.id().map_err(failed)
    }
}

/// The name of the snapshot of its origin by which a volume is cloned. It is no name of a user's snapshot.
pub(super) fn passing_snapshot(clone: &Name) -> String {
    format!(".lunette.clone.{clone}")
}
