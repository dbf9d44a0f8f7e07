//! The engine over a pool of Ceph: volumes are images of RBD.
//!
//! An image is found by its name, and its record is in its own metadata (`record`). Changes of several steps are
//! written down in the metadata of the pool first (`pending`), and `settle` ends or undoes what was interrupted. All of
//! it goes over one connection, whose operations have a limit of time.

mod changes;
mod claims;
mod cluster;
mod error;
mod group;
mod make;
#[cfg(test)]
mod model;
mod parallel;
mod pending;
mod record;
mod settle;
mod space;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lunette_rbd::{Images, PoolUrl, Relative};

use crate::check;
use crate::error::PoolError;
use crate::limits::MAX_VOLUMES;
use crate::name::Name;
use crate::pool::{
    Change, Labels, NewVolume, Origin, Place, Pool, PoolSpace, Progress, Snapshot, SnapshotOf, Snapshots, Volume,
    VolumeSpace,
};
use claims::{Claim, Claims};
use cluster::{Cluster, Image};
use error::{of_snapshot, of_volume};
use group::Group;
use pending::Pending;
use record::Record;

/// Threads that read volumes at the same time.
const READERS: usize = 8;

/// A pool of Ceph, or a namespace of one. Its images are the volumes, also those that other programs have made.
///
/// A snapshot waits for the monitors of the cluster: mostly for 0.1 s, and for up to a second when they have agreed on
/// something just before (`paxos_propose_interval`).
///
/// A volume that a store of this process serves can be managed meanwhile, by the store's own handle where a change
/// needs the lock of the image. When another client keeps the lock, a roll back is refused.
pub struct CephPool {
    url: PoolUrl,
    cluster: Box<dyn Cluster>,
    /// The volumes that changes hold.
    claims: Claims,
    /// The volumes whose blocks are worked on for long, beside short changes.
    works: Claims,
    /// The volumes that were created by this value to be filled.
    filling: Mutex<BTreeSet<Name>>,
}

impl CephPool {
    /// Connects to the cluster, and ends or undoes what was interrupted. An operation of the cluster may take as long
    /// as `limit`; [`MANAGE_LIMIT`](lunette_rbd::limits::MANAGE_LIMIT) suits.
    ///
    /// The cluster takes a client that has died for alive for up to half a minute. What was interrupted by that waits
    /// as long.
    ///
    /// # Errors
    ///
    /// [`PoolError::Unusable`] when there is no such pool, or no way to it.
    pub fn open(url: &PoolUrl, limit: Duration) -> Result<Self, PoolError> {
        let unusable = |why: String| PoolError::Unusable { place: url.to_string(), why };
        let images = Images::connect(url, limit).map_err(|error| unusable(error.to_string()))?;
        let pool = Self::over(url.clone(), Box::new(images));
        pool.recover().map_err(|error| unusable(format!("the images cannot be listed: {error}")))?;
        Ok(pool)
    }

    fn over(url: PoolUrl, cluster: Box<dyn Cluster>) -> Self {
        let (claims, works) = (Claims::default(), Claims::default());
        Self { url, cluster, claims, works, filling: Mutex::default() }
    }

    fn filling(&self) -> MutexGuard<'_, BTreeSet<Name>> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds volumes for a change alone. What was interrupted before is ended or undone first.
    fn claim<'a>(&self, names: impl IntoIterator<Item = &'a Name>) -> Result<Claim<'_>, PoolError> {
        self.settle_all()?;
        self.claims.alone(names)
    }

    /// Opens the image of a volume to change it, with its record.
    fn open_to_change(&self, volume: &Name) -> Result<(Box<dyn Image>, Record), PoolError> {
        let opened = self.cluster.open_to_change(volume.as_str());
        let image = opened.map_err(|error| of_volume(volume, "it cannot be opened", error))?;
        let record = Record::of_any(&*image).map_err(|error| of_volume(volume, "its record cannot be read", error))?;
        Ok((image, record))
    }

    /// Opens the image of a volume that has its content, to change it.
    fn open_filled(&self, volume: &Name) -> Result<(Box<dyn Image>, Record), PoolError> {
        let (image, record) = self.open_to_change(volume)?;
        if record.is_filling { Err(PoolError::Filling(volume.clone())) } else { Ok((image, record)) }
    }

    /// The image of a volume, to read what is known of it, or of a snapshot of a volume that is there.
    fn open_to_read(&self, volume: &Name, snapshot: Option<&Name>) -> Result<Box<dyn Image>, PoolError> {
        let what = "it cannot be opened";
        let opened = self.cluster.open(volume.as_str(), snapshot.map(Name::as_str));
        opened.map_err(|error| match snapshot {
            Some(snapshot) => of_snapshot(volume, snapshot, what, error),
            None => of_volume(volume, what, error),
        })
    }

    fn read(&self, name: &Name) -> Result<Volume, PoolError> {
        let image = self.open_to_read(name, None)?;
        self.describe(name, &*image).map_err(|error| of_volume(name, "it cannot be read", error))
    }

    fn describe(&self, name: &Name, image: &dyn Image) -> io::Result<Volume> {
        let record = Record::of_any(image)?;
        Ok(Volume {
            name: name.clone(),
            len_bytes: image.len_bytes()?,
            created: image.created()?,
            origin: image.origin()?.and_then(|origin| self.origin_of(&origin)),
            serial: record.serial,
            labels: record.labels,
            is_filling: record.is_filling,
        })
    }

    /// The origin, if it is a volume of this pool.
    fn origin_of(&self, origin: &Relative) -> Option<Origin> {
        let is_here = self.is_here(origin) && !origin.is_in_trash;
        let volume = origin.image.parse().ok().filter(|_| is_here)?;
        Some(Origin { volume, snapshot: origin.snapshot.as_ref().and_then(|name| name.parse().ok()) })
    }

    fn is_here(&self, relative: &Relative) -> bool {
        relative.pool == self.url.pool && relative.namespace == self.url.namespace.as_deref().unwrap_or_default()
    }

    /// Fails when an image, or a snapshot of it that is open, has clones.
    fn refuse_clones(&self, image: &dyn Image, volume: &Name, what: String) -> Result<(), PoolError> {
        let clones = image.clones().map_err(|error| of_volume(volume, "its clones cannot be listed", error))?;
        if clones.is_empty() {
            return Ok(());
        }
        Err(PoolError::HasClones { what, clones: clones.iter().map(|clone| self.name_of(clone)).collect() })
    }

    /// The name of a clone, with what tells where it is when it is elsewhere.
    fn name_of(&self, clone: &Relative) -> String {
        let Relative { pool, namespace, image, is_in_trash, .. } = clone;
        let place = match (self.is_here(clone), namespace.is_empty()) {
            (true, _) => String::new(),
            (false, true) => format!("{pool}/"),
            (false, false) => format!("{pool}/{namespace}/"),
        };
        format!("{place}{image}{}", if *is_in_trash { " (in the trash)" } else { "" })
    }

    /// The error for a volume that a change has left torn, and that none goes on with.
    fn refuse_torn(&self, name: &Name, change: &Pending) -> Result<(), PoolError> {
        if !change.leaves_it_torn() || self.claims.has(name) {
            return Ok(());
        }
        let source = io::Error::other("it was interrupted");
        Err(PoolError::Unfinished { what: change.describe(name), source })
    }

    fn pending(&self) -> Result<BTreeMap<Name, Pending>, PoolError> {
        let what = || format!("pool {}: the changes that were interrupted cannot be read", self.url);
        pending::list(&*self.cluster).map_err(|source| PoolError::Io { what: what(), source })
    }

    fn names(&self) -> Result<Vec<String>, PoolError> {
        let what = || format!("pool {}: the images cannot be listed", self.url);
        let images = self.cluster.list().map_err(|source| PoolError::Io { what: what(), source })?;
        let mut names: Vec<String> = images.into_iter().map(|image| image.name).collect();
        names.sort();
        Ok(names)
    }
}

impl Pool for CephPool {
    fn place(&self, volume: &Name, snapshot: Option<&Name>) -> Place {
        Place::Image(Box::new(self.url.image(volume.as_str(), snapshot.map(Name::as_str))))
    }

    fn volumes(&self) -> Result<(Vec<Volume>, Vec<PoolError>), PoolError> {
        let (pending, mut left_out, mut names) = (self.pending()?, Vec::new(), Vec::new());
        for name in self.names()? {
            match name.parse::<Name>() {
                Ok(name) => names.push(name),
                Err(error) => left_out.push(PoolError::Value(error.to_string())),
            }
        }
        if names.len() > MAX_VOLUMES {
            names.truncate(MAX_VOLUMES);
            left_out.push(PoolError::TooManyVolumes);
        }
        let read = |name: &Name| match pending.get(name) {
            // It has no record before it is whole.
            Some(Pending::Make { .. }) => self.read_made(name),
            Some(change) => self.refuse_torn(name, change).and_then(|()| self.read(name)).map(Some),
            None => self.read(name).map(Some),
        };
        let mut volumes = Vec::new();
        for found in parallel::each(&names, READERS, read) {
            match found {
                Ok(volume) => volumes.extend(volume),
                // It was removed meanwhile.
                Err(PoolError::NoVolume(_)) => {}
                Err(error) => left_out.push(error),
            }
        }
        Ok((volumes, left_out))
    }

    fn volume(&self, name: &Name) -> Result<Volume, PoolError> {
        match self.pending()?.get(name) {
            Some(Pending::Make { .. }) => self.read_made(name)?.ok_or_else(|| PoolError::NoVolume(name.clone())),
            Some(change) => self.refuse_torn(name, change).and_then(|()| self.read(name)),
            None => self.read(name),
        }
    }

    fn snapshots(&self, volume: &Name) -> Result<Vec<Snapshot>, PoolError> {
        let image = self.open_to_read(volume, None)?;
        let snapshots = record::snapshots(&*image);
        let snapshots = snapshots.map_err(|error| of_volume(volume, "its snapshots cannot be read", error))?;
        Ok(snapshots.into_iter().map(|(_, snapshot)| snapshot).collect())
    }

    fn create(&self, name: &Name, new: &NewVolume) -> Result<Volume, PoolError> {
        self.create_volume(name, new)
    }

    fn filled(&self, name: &Name) -> Result<(), PoolError> {
        let _claim = self.claim([name])?;
        let (image, mut record) = self.open_to_change(name)?;
        record.is_filling = false;
        record.keep(&*image).map_err(|error| of_volume(name, "its record cannot be kept", error))?;
        self.filling().remove(name);
        self.strike_out(name);
        Ok(())
    }

    fn resize(&self, name: &Name, len_bytes: u64) -> Result<(), PoolError> {
        check::len(len_bytes)?;
        let _claim = self.claim([name])?;
        let (image, _) = self.open_filled(name)?;
        let failed = |error| of_volume(name, "it cannot get another length", error);
        if len_bytes < image.len_bytes().map_err(failed)? {
            return self.change(name, &Pending::Shrink { len_bytes }, || image.resize(len_bytes).map_err(failed));
        }
        image.resize(len_bytes).map_err(failed)
    }

    fn rename(&self, from: &Name, to: &Name) -> Result<(), PoolError> {
        let exists = || PoolError::VolumeExists(to.clone());
        if from == to {
            return self.read(from).and_then(|_| Err(exists()));
        }
        let _claim = self.claim([from, to])?;
        let id = {
            let (image, _) = self.open_filled(from)?;
            image.id().map_err(|error| of_volume(from, "its id cannot be read", error))?
        };
        if self.names()?.iter().any(|name| name == to.as_str()) {
            return Err(exists());
        }
        self.change(from, &Pending::Rename { image: id, to: to.clone() }, || {
            let renamed = self.cluster.rename(from.as_str(), to.as_str());
            renamed.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => exists(),
                _ => of_volume(from, "it cannot get another name", error),
            })
        })
    }

    fn set_labels(&self, name: &Name, labels: &Labels) -> Result<(), PoolError> {
        check::labels(labels)?;
        let _claim = self.claim([name])?;
        let (image, mut record) = self.open_to_change(name)?;
        record.labels.clone_from(labels);
        record.keep(&*image).map_err(|error| of_volume(name, "its labels cannot be kept", error))
    }

    fn remove(&self, name: &Name) -> Result<(), PoolError> {
        let _claim = self.claim([name])?;
        let _work = self.works.alone([name])?;
        let id = self.refuse_removal(name)?;
        self.change(name, &Pending::Remove { image: id }, || {
            let removed = self.cluster.remove(name.as_str());
            removed.map_err(|error| match error.kind() {
                io::ErrorKind::DirectoryNotEmpty => PoolError::HasSnapshots { volume: name.clone(), count: 1 },
                _ => of_volume(name, "it cannot be removed", error),
            })?;
            self.filling().remove(name);
            Ok(())
        })
    }

    fn prepare(&self, group: &[SnapshotOf], labels: &Labels) -> Result<Box<dyn Snapshots + '_>, PoolError> {
        check::group(group)?;
        check::labels(labels)?;
        let claim = self.claim(group.iter().map(|of| &of.volume))?;
        Ok(Box::new(Group::prepare(self, claim, group, labels)?))
    }

    fn remove_snapshot(&self, volume: &Name, snapshot: &Name) -> Result<(), PoolError> {
        let _claim = self.claim([volume])?;
        let (image, _) = self.open_to_change(volume)?;
        let taken = self.open_to_read(volume, Some(snapshot))?;
        self.refuse_clones(&*taken, volume, format!("{volume}@{snapshot}"))?;
        drop(taken);
        let failed = |error| of_snapshot(volume, snapshot, "a snapshot cannot be removed", error);
        let known = image.snapshots().map_err(failed)?;
        image.remove_snapshot(snapshot.as_str()).map_err(failed)?;
        for gone in known.into_iter().filter(|known| known.name == snapshot.as_str()) {
            if let Err(error) = record::forget_labels(&*image, gone.id) {
                tracing::warn!(%error, %volume, %snapshot, "the labels of a snapshot that is gone remain");
            }
        }
        Ok(())
    }

    fn roll_back(&self, volume: &Name, snapshot: &Name, progress: Progress<'_>) -> Result<(), PoolError> {
        let _claim = self.claim([volume])?;
        let _work = self.works.alone([volume])?;
        let (image, _) = self.open_filled(volume)?;
        let failed = |error| of_snapshot(volume, snapshot, "it cannot be rolled back", error);
        let len_bytes = self.open_to_read(volume, Some(snapshot))?.len_bytes().map_err(failed)?;
        if progress(0, len_bytes).is_break() {
            return Err(PoolError::Stopped);
        }
        // A part of the blocks would be the snapshot's if it ended before.
        let mut told = |done, total| _ = progress(done, total);
        self.change(volume, &Pending::RollBack { snapshot: snapshot.clone() }, || {
            image.roll_back(snapshot.as_str(), &mut told).map_err(failed)
        })
    }

    fn clone_of(&self, origin: &Origin, name: &Name, new: &NewVolume) -> Result<Volume, PoolError> {
        self.clone_volume(origin, name, new)
    }

    fn flatten(&self, name: &Name, progress: Progress<'_>) -> Result<(), PoolError> {
        self.settle_all()?;
        let _work = self.works.alone([name])?;
        let (image, _) = self.open_filled(name)?;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::Interrupted => PoolError::Stopped,
            _ => of_volume(name, "it cannot get blocks of its own", error),
        };
        if image.origin().map_err(failed)?.is_none() {
            return Ok(());
        }
        let len_bytes = image.len_bytes().map_err(failed)?;
        match progress(0, len_bytes) {
            ControlFlow::Continue(()) => image.flatten(progress).map_err(failed),
            ControlFlow::Break(()) => Err(PoolError::Stopped),
        }
    }

    fn space(&self) -> Result<PoolSpace, PoolError> {
        space::of_pool(&*self.cluster).map_err(|source| PoolError::Io { what: format!("pool {}", self.url), source })
    }

    fn volume_space(&self, name: &Name) -> Result<VolumeSpace, PoolError> {
        let image = self.open_to_read(name, None)?;
        space::of_volume(&*image).map_err(|error| of_volume(name, "its extents cannot be read", error))
    }

    fn changes(&self, volume: &Name, since: Option<&Name>, until: Option<&Name>) -> Result<Vec<Change>, PoolError> {
        self.list_changes(volume, since, until)
    }
}

impl fmt::Debug for CephPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CephPool").field("url", &self.url).finish_non_exhaustive()
    }
}
