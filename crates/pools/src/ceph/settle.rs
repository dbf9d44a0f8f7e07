//! The end of changes: in order, or after a failure.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::cluster::Image;
use super::error::is_refusal;
use super::make::passing_snapshot;
use super::pending::{self, Pending};
use super::record::Record;
use super::{CephPool, parallel};
use crate::error::PoolError;
use crate::limits::MAX_GROUP;
use crate::name::Name;
use crate::pool::SnapshotOf;

/// The time that the opening of a pool waits until the cluster gives up a client that has died: 30 s
/// (`osd_client_watch_timeout`), and some more.
const DEAD_CLIENT_LIMIT: Duration = Duration::from_secs(45);

/// The time between two tries meanwhile.
const TRY_INTERVAL: Duration = Duration::from_secs(1);

/// The outcome of a change that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Ended,
    Undone,
}

impl CephPool {
    /// Makes a change of a volume in several steps. When `work` fails, the change is ended or undone at once, or
    /// written down for later.
    pub(super) fn change(
        &self,
        volume: &Name,
        change: &Pending,
        work: impl FnOnce() -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        self.change_for_later(volume, change, work)?;
        self.strike_out(volume);
        Ok(())
    }

    /// Makes a change of a volume that stays written down when `work` has succeeded.
    pub(super) fn change_for_later(
        &self,
        volume: &Name,
        change: &Pending,
        work: impl FnOnce() -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let unfinished = |source| PoolError::Unfinished { what: change.describe(volume), source };
        if let Err(source) = pending::begin(&*self.cluster, volume, change) {
            // It may be written down all the same.
            self.strike(volume).map_err(unfinished)?;
            return Err(PoolError::Io { what: change.describe(volume), source });
        }
        let Err(error) = work() else { return Ok(()) };
        let settled = if is_refusal(&error) { Ok(Settled::Undone) } else { self.settle(volume, change) };
        let settled = settled.map_err(unfinished)?;
        self.strike(volume).map_err(unfinished)?;
        match settled {
            Settled::Ended => Ok(()),
            Settled::Undone => Err(error),
        }
    }

    /// Strikes out a change that is done. One that stays finds nothing to do later.
    pub(super) fn strike_out(&self, volume: &Name) {
        if let Err(error) = self.strike(volume) {
            tracing::warn!(%error, %volume, "a change of a volume that is done stays written down");
        }
    }

    /// Strikes a change out. A volume that is being filled stays written down as one that is made.
    fn strike(&self, volume: &Name) -> io::Result<()> {
        if self.filling().contains(volume) {
            return pending::begin(&*self.cluster, volume, &Pending::Make { origin: None });
        }
        pending::end(&*self.cluster, volume)
    }

    /// Ends or undoes what was interrupted before the pool was opened. Waits for clients that have died with it.
    pub(super) fn recover(&self) -> io::Result<()> {
        self.cluster.list()?;
        let deadline = Instant::now() + DEAD_CLIENT_LIMIT;
        loop {
            let pending = pending::list(&*self.cluster)?;
            let failed = pending.into_iter().filter_map(|(volume, change)| self.try_to_settle(&volume, &change));
            // One after the other: what they wait for ends at the same time.
            let failed: Vec<io::Error> = failed.collect();
            let is_used = |error: &io::Error| {
                matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::ReadOnlyFilesystem)
            };
            if !failed.iter().any(is_used) || Instant::now() > deadline {
                return Ok(());
            }
            thread::sleep(TRY_INTERVAL);
        }
    }

    /// Ends or undoes what was interrupted, volumes apart that changes hold.
    pub(super) fn settle_all(&self) -> Result<(), PoolError> {
        for (volume, change) in self.pending()? {
            let is_filled = matches!(change, Pending::Make { .. }) && self.filling().contains(&volume);
            if !is_filled && let Ok(_claim) = self.claims.alone(change.volumes(&volume)) {
                self.try_to_settle(&volume, &change);
            }
        }
        Ok(())
    }

    /// Settles a change, and strikes it out. The error, which is logged, when it stays.
    fn try_to_settle(&self, volume: &Name, change: &Pending) -> Option<io::Error> {
        let settled = self.settle(volume, change).and_then(|settled| {
            self.strike(volume)?;
            Ok(settled)
        });
        let change = change.describe(volume);
        match settled {
            Ok(Settled::Ended) => tracing::info!("{change}: it was interrupted, and is ended now"),
            Ok(Settled::Undone) => tracing::info!("{change}: it was interrupted, and is undone now"),
            Err(error) => {
                tracing::warn!(%error, "{change}: it was interrupted, and cannot be ended yet");
                return Some(error);
            }
        }
        None
    }

    /// Ends or undoes a change, which stays written down.
    fn settle(&self, volume: &Name, change: &Pending) -> io::Result<Settled> {
        match change {
            Pending::Make { origin } => self.settle_making(volume, origin.as_ref()),
            Pending::Remove { image } => self.settle_removal(volume, image),
            Pending::Rename { image, to } => self.settle_renaming(volume, to, image),
            Pending::Shrink { len_bytes } => self.settle_content(volume, |image| image.resize(*len_bytes)),
            Pending::RollBack { snapshot } => {
                self.settle_content(volume, |image| image.roll_back(snapshot.as_str(), &mut |_, _| ()))
            }
            Pending::Snapshots { group } => self.undo_snapshots(group).map(|()| Settled::Undone),
        }
    }

    /// A volume that has its record and its content is whole. Any other one goes.
    fn settle_making(&self, volume: &Name, origin: Option<&Name>) -> io::Result<Settled> {
        if let Some(origin) = origin {
            let snapshot = passing_snapshot(volume);
            if let Some(image) = found(self.cluster.open_to_change(origin.as_str()))? {
                found(image.remove_snapshot(&snapshot))?;
            }
        }
        let Some(image) = found(self.cluster.open(volume.as_str(), None))? else {
            // Perhaps its header is not there yet, or no longer.
            let left = self.cluster.list()?.into_iter().find(|image| image.name == volume.as_str());
            self.remove_rest(volume, left.as_ref().map(|image| &*image.id))?;
            return Ok(Settled::Undone);
        };
        match Record::of(&*image)? {
            Some(record) if !record.is_filling => return Ok(Settled::Ended),
            Some(_) => {}
            None if is_untouched(&*image)? => {}
            None => {
                tracing::warn!(%volume, "an image has the name of a volume that was to be made; it stays");
                return Ok(Settled::Undone);
            }
        }
        let id = image.id()?;
        drop(image);
        self.remove_rest(volume, Some(&id))?;
        Ok(Settled::Undone)
    }

    fn settle_removal(&self, volume: &Name, id: &str) -> io::Result<Settled> {
        let images = self.cluster.list()?;
        // What is left of it may have no name any more. Another image of the name is not meant.
        if images.iter().all(|image| image.name != volume.as_str() || image.id == id) {
            self.remove_rest(volume, Some(id))?;
        }
        self.filling().remove(volume);
        Ok(Settled::Ended)
    }

    /// Removes an image, or what is left of it, and frees its name.
    fn remove_rest(&self, volume: &Name, id: Option<&str>) -> io::Result<()> {
        found(self.cluster.remove(volume.as_str()))?;
        id.map_or(Ok(()), |id| self.cluster.release_name(volume.as_str(), id))
    }

    fn settle_renaming(&self, from: &Name, to: &Name, id: &str) -> io::Result<Settled> {
        let images = self.cluster.list()?;
        let is_renamed = images.iter().any(|image| image.id == id && image.name == to.as_str());
        let (wrong, settled) = if is_renamed { (from, Settled::Ended) } else { (to, Settled::Undone) };
        self.cluster.release_name(wrong.as_str(), id)?;
        Ok(settled)
    }

    fn settle_content(&self, volume: &Name, work: impl FnOnce(&dyn Image) -> io::Result<()>) -> io::Result<Settled> {
        if let Some(image) = found(self.cluster.open_to_change(volume.as_str()))? {
            work(&*image)?;
        }
        Ok(Settled::Ended)
    }

    /// Removes the snapshots of a group, as far as they were taken.
    pub(super) fn undo_snapshots(&self, group: &[SnapshotOf]) -> io::Result<()> {
        let undo = |of: &SnapshotOf| {
            let Some(image) = found(self.cluster.open_to_change(of.volume.as_str()))? else { return Ok(()) };
            found(image.remove_snapshot(of.snapshot.as_str())).map(|_| ())
        };
        parallel::each(group, MAX_GROUP, undo).into_iter().collect()
    }
}

/// Whether an image has neither data of its own nor snapshots.
fn is_untouched(image: &dyn Image) -> io::Result<bool> {
    let mut has_data = false;
    image.differences(None, 0..image.len_bytes()?, false, true, &mut |_, _, has_space| has_data |= has_space)?;
    Ok(!has_data && image.snapshots()?.is_empty())
}

/// The value, if it is there.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
