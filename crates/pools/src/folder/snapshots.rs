//! Snapshots that are there: listed, removed, and rolled back to.

use super::files::Files;
use super::journal::{Journal, Move};
use super::record::{self, SnapshotRecord};
use super::{FolderPool, State, failed, layout, unfinished};
use crate::error::PoolError;
use crate::name::Name;
use crate::pool::{Progress, Snapshot};

impl<F: Files> FolderPool<F> {
    pub(super) fn list_snapshots(&self, volume: &Name) -> Result<Vec<Snapshot>, PoolError> {
        let _reading = self.reading();
        self.record(volume)?;
        let names = self.names_of_snapshots(volume)?;
        let mut snapshots = Vec::with_capacity(names.len());
        for name in names {
            let SnapshotRecord { created, labels } = self.snapshot_record(volume, &name)?;
            let image = self.files.open_image(&layout::snapshot(volume, &name)).map_err(failed)?;
            let len_bytes = self.files.len(&image).map_err(failed)?;
            snapshots.push(Snapshot { name, len_bytes, created, labels });
        }
        snapshots.sort_unstable_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        Ok(snapshots)
    }

    pub(super) fn names_of_snapshots(&self, volume: &Name) -> Result<Vec<Name>, PoolError> {
        let files = self.files.names(&layout::snapshots(volume)).map_err(failed)?;
        Ok(files.iter().filter_map(|file| layout::snapshot_of_record(file)).collect())
    }

    pub(super) fn snapshot_record(&self, volume: &Name, snapshot: &Name) -> Result<SnapshotRecord, PoolError> {
        self.record(volume)?;
        let path = layout::snapshot_record(volume, snapshot);
        let Some(text) = self.files.read(&path).map_err(failed)? else {
            return Err(PoolError::NoSnapshot { volume: volume.clone(), snapshot: snapshot.clone() });
        };
        record::parse(&text).map_err(|why| self.unreadable(&path, why))
    }

    pub(super) fn remove_snapshot_of(&self, volume: &Name, snapshot: &Name) -> Result<(), PoolError> {
        let mut scratch = self.scratch();
        let mut state = self.begin()?;
        self.snapshot_record(volume, snapshot)?;
        self.files.make_folder(scratch.path()).map_err(failed)?;
        let image = (layout::snapshot(volume, snapshot), layout::image_in(scratch.path(), "0"));
        let record = (layout::snapshot_record(volume, snapshot), layout::record_in(scratch.path(), "0"));
        let moves = [image, record].map(|(from, to)| Move { from, to }).into();
        let renamed = self.rename_all(&mut state, moves, "the removal of a snapshot");
        if let Err(PoolError::Unfinished { .. }) = renamed {
            scratch.leave();
        }
        // The blocks are freed when the scratch is dropped, which is after the lock is.
        renamed
    }

    pub(super) fn roll_volume_back(
        &self,
        volume: &Name,
        snapshot: &Name,
        progress: Progress<'_>,
    ) -> Result<(), PoolError> {
        let mut state = self.begin()?;
        self.in_place.check_has_not(volume)?;
        self.record_of_filled(volume)?;
        self.need_reflinks()?;
        let image = self.image_of(volume, Some(snapshot))?;
        self.files.change_image(&layout::disk(volume)).map_err(failed)?;
        let len_bytes = self.files.len(&image).map_err(failed)?;
        if progress(0, len_bytes).is_break() {
            return Err(PoolError::Stopped);
        }
        let journal = Journal::RollBack { volume: volume.clone(), snapshot: snapshot.clone() };
        if let Err(error) = self.log(&mut state, &journal) {
            state.torn = state.has_journal.then(|| volume.clone());
            return Err(error);
        }
        *state = State { has_journal: true, torn: Some(volume.clone()) };
        // A journal that stays would take away what is written after it.
        let applied = journal.apply(&self.files).and_then(|()| Journal::forget(&self.files));
        applied.map_err(|error| unfinished(&format!("the roll back of volume {volume}"), error))?;
        *state = State::default();
        let _ = progress(len_bytes, len_bytes);
        Ok(())
    }
}
