//! Pools that are folders of a file system: a volume is a plain raw image, and shares its blocks with its snapshots and
//! clones by reflinks.
//!
//! ```text
//! /srv/tank/db/disk.img                 the volume
//! /srv/tank/db/volume.json              its record: serial, labels, ...
//! /srv/tank/db/snapshots/monday.img     a snapshot, which can only be read
//! /srv/tank/db/snapshots/monday.json    its record
//! /srv/tank/.lunette/                   the lock, the journal, and what is being made
//! ```
//!
//! A folder without a record is no volume, and is left alone. A record that is removed takes its volume away.
//!
//! The order of operations makes a change whole. What is new is made below `.lunette` and flushed; to give it its name
//! is the commit. A change of several names, and a roll back, go through the [`journal`]. The next opening ends what
//! the journal has, and removes the rest. The operations are behind [`files`], so that tests can cut the power after
//! each.

mod blocks;
mod difference;
mod files;
mod groups;
mod in_place;
mod journal;
mod layout;
mod open;
mod record;
mod scratch;
mod snapshots;
mod system;
mod volumes;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::PoolError;
use crate::name::Name;
use crate::pool::{
    Change, Labels, NewVolume, Origin, Place, Pool, PoolSpace, Progress, Snapshot, SnapshotOf, Snapshots, Volume,
    VolumeSpace,
};
use files::Files;
use in_place::InPlace;
use journal::{Journal, Move};
use system::System;

/// A pool in a folder, which this process has for itself.
///
/// ```no_run
/// use lunette_pools::{FolderPool, Pool};
///
/// let pool = FolderPool::open("/srv/tank".as_ref())?;
/// for volume in pool.volumes()?.0 {
///     println!("{}: {} bytes", volume.name, volume.len_bytes);
/// }
/// # Ok::<(), lunette_pools::PoolError>(())
/// ```
#[derive(Debug)]
pub struct FolderPool<F = System> {
    root: PathBuf,
    files: F,
    has_reflinks: bool,
    /// The number of what is made next.
    next_scratch: AtomicU64,
    /// Held from the checks of a change to its end.
    changes: Mutex<State>,
    /// The volumes whose snapshots are being taken.
    in_place: InPlace,
    /// Held while names change, so that readers see all of a change or nothing.
    names: RwLock<()>,
}

/// The state of the files between two changes.
#[derive(Debug, Default)]
struct State {
    /// Whether there may be a journal, after the file system has failed.
    has_journal: bool,
    /// The volume of that journal if it is a roll back, which is made again: what is written until then is lost.
    torn: Option<Name>,
}

impl<F: Files> FolderPool<F> {
    /// Begins a change. There is one at a time, and a former one that was interrupted is ended first.
    fn begin(&self) -> Result<MutexGuard<'_, State>, PoolError> {
        let mut state = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if state.has_journal {
            self.end_interrupted().map_err(failed)?;
            // A journal that is gone may come back with the power, unless its folder is synchronized.
            self.files.sync(&layout::work()).map_err(failed)?;
            *state = State::default();
        }
        Ok(state)
    }

    /// Ends the roll back of a volume that was not made as a whole.
    fn end_roll_back(&self, volume: &Name) -> Result<(), PoolError> {
        let is_torn = {
            let state = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            state.torn.as_ref() == Some(volume)
        };
        if !is_torn {
            return Ok(());
        }
        let ended = self.begin().map(drop);
        ended.map_err(|error| unfinished(&format!("the roll back of volume {volume}"), io::Error::other(error)))
    }

    /// Ends the change that the journal has, if there is one.
    fn end_interrupted(&self) -> io::Result<()> {
        let Some(journal) = Journal::read(&self.files)? else { return Ok(()) };
        let _naming = self.naming();
        journal.apply(&self.files)?;
        Journal::forget(&self.files)
    }

    /// Writes the journal of a change.
    fn log(&self, state: &mut State, journal: &Journal) -> Result<(), PoolError> {
        let scratch = self.scratch();
        let Err(error) = journal.write(&self.files, scratch.path()) else { return Ok(()) };
        // It may have its name already.
        state.has_journal = true;
        let what = "the log of a change";
        match self.files.kind(&layout::journal()) {
            Ok(None) => {}
            _ if Journal::forget(&self.files).is_ok() => {}
            _ => return Err(unfinished(what, error)),
        }
        state.has_journal = false;
        Err(failed(error))
    }

    /// Gives files other names, all or none.
    fn rename_all(&self, state: &mut State, moves: Vec<Move>, what: &str) -> Result<(), PoolError> {
        let journal = Journal::Moves(moves);
        self.log(state, &journal)?;
        state.has_journal = true;
        let _naming = self.naming();
        let renamed = journal.apply(&self.files);
        let Journal::Moves(moves) = journal else { unreachable!("it was made above") };
        if let Err(error) = renamed {
            let is_undone = journal::take_back(&self.files, &moves).and_then(|()| Journal::forget(&self.files)).is_ok();
            state.has_journal = !is_undone;
            return Err(if is_undone { failed(error) } else { unfinished(what, error) });
        }
        // The change holds, even if its journal is still there; the next change ends it once more.
        state.has_journal = Journal::forget(&self.files).is_err();
        Ok(())
    }

    /// Gives a file or folder another name, on stable storage.
    fn move_to(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _naming = self.naming();
        self.files.rename(from, to)?;
        self.sync_both(from, to)
    }

    fn sync_both(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (layout::parent(from), layout::parent(to));
        self.files.sync(&to)?;
        if from == to { Ok(()) } else { self.files.sync(&from) }
    }

    /// Keeps all names as they are.
    fn reading(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets nothing look at names.
    fn naming(&self) -> RwLockWriteGuard<'_, ()> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Files> Pool for FolderPool<F> {
    fn place(&self, volume: &Name, snapshot: Option<&Name>) -> Place {
        let image = snapshot.map_or_else(|| layout::disk(volume), |snapshot| layout::snapshot(volume, snapshot));
        Place::File(self.root.join(image))
    }

    fn volumes(&self) -> Result<(Vec<Volume>, Vec<PoolError>), PoolError> {
        self.list_volumes()
    }

    fn volume(&self, name: &Name) -> Result<Volume, PoolError> {
        self.end_roll_back(name)?;
        let _reading = self.reading();
        self.read_volume(name)
    }

    fn snapshots(&self, volume: &Name) -> Result<Vec<Snapshot>, PoolError> {
        self.list_snapshots(volume)
    }

    fn create(&self, name: &Name, new: &NewVolume) -> Result<Volume, PoolError> {
        self.create_volume(name, new)
    }

    fn filled(&self, name: &Name) -> Result<(), PoolError> {
        self.change_record(name, |record| record.is_filling = false)
    }

    fn resize(&self, name: &Name, len_bytes: u64) -> Result<(), PoolError> {
        self.resize_volume(name, len_bytes)
    }

    fn rename(&self, from: &Name, to: &Name) -> Result<(), PoolError> {
        self.rename_volume(from, to)
    }

    fn set_labels(&self, name: &Name, labels: &Labels) -> Result<(), PoolError> {
        crate::check::labels(labels)?;
        self.change_record(name, |record| record.labels.clone_from(labels))
    }

    fn remove(&self, name: &Name) -> Result<(), PoolError> {
        self.remove_volume(name)
    }

    fn prepare(&self, group: &[SnapshotOf], labels: &Labels) -> Result<Box<dyn Snapshots + '_>, PoolError> {
        self.prepare_group(group, labels)
    }

    fn remove_snapshot(&self, volume: &Name, snapshot: &Name) -> Result<(), PoolError> {
        self.remove_snapshot_of(volume, snapshot)
    }

    fn roll_back(&self, volume: &Name, snapshot: &Name, progress: Progress<'_>) -> Result<(), PoolError> {
        self.roll_volume_back(volume, snapshot, progress)
    }

    fn clone_of(&self, origin: &Origin, name: &Name, new: &NewVolume) -> Result<Volume, PoolError> {
        self.clone_volume(origin, name, new)
    }

    fn flatten(&self, name: &Name, progress: Progress<'_>) -> Result<(), PoolError> {
        self.flatten_volume(name, progress)
    }

    fn space(&self) -> Result<PoolSpace, PoolError> {
        self.files.space().map_err(failed)
    }

    fn volume_space(&self, name: &Name) -> Result<VolumeSpace, PoolError> {
        self.space_of_volume(name)
    }

    fn changes(&self, volume: &Name, since: Option<&Name>, until: Option<&Name>) -> Result<Vec<Change>, PoolError> {
        self.changes_between(volume, since, until)
    }
}

/// The error of a change that has not happened.
fn failed(error: io::Error) -> PoolError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => PoolError::Full,
        _ => PoolError::Io { what: "the folder of the pool".into(), source: error },
    }
}

/// The error of a change that is in the journal.
fn unfinished(what: &str, source: io::Error) -> PoolError {
    PoolError::Unfinished { what: what.into(), source }
}

#[cfg(test)]
mod tests;
