//! Snapshots of several volumes at one instant.

use std::time::SystemTime;

use super::files::Files;
use super::journal::Move;
use super::record::{self, SnapshotRecord, VolumeRecord};
use super::scratch::Scratch;
use super::volumes::no_reflinks_or_failed;
use super::{FolderPool, failed, layout};
use crate::check;
use crate::error::PoolError;
use crate::limits::MAX_SNAPSHOTS;
use crate::pool::{Labels, Snapshot, SnapshotOf, Snapshots};

/// Snapshots that are prepared: images without content, in a scratch.
#[derive(Debug)]
struct Group<'p, F: Files> {
    pool: &'p FolderPool<F>,
    scratch: Scratch<'p, F>,
    members: Vec<Member<F>>,
    labels: Labels,
    /// The instant, once it was.
    taken: Option<SystemTime>,
}

/// A volume of the group.
#[derive(Debug)]
struct Member<F: Files> {
    of: SnapshotOf,
    /// The record at the time of the preparation, by which the volume is recognized.
    record: VolumeRecord,
    volume: F::Image,
    snapshot: F::Image,
}

impl<F: Files> FolderPool<F> {
    pub(super) fn prepare_group<'p>(
        &'p self,
        group: &[SnapshotOf],
        labels: &Labels,
    ) -> Result<Box<dyn Snapshots + 'p>, PoolError> {
        check::group(group)?;
        check::labels(labels)?;
        self.need_reflinks()?;
        let volumes = {
            let _reading = self.reading();
            group.iter().map(|of| self.open_for_snapshot(of)).collect::<Result<Vec<_>, _>>()?
        };
        let scratch = self.scratch();
        self.files.make_folder(scratch.path()).map_err(failed)?;
        let mut members = Vec::with_capacity(group.len());
        for (number, (of, (record, volume))) in group.iter().zip(volumes).enumerate() {
            let image = layout::image_in(scratch.path(), &number.to_string());
            let snapshot = self.files.make_image(&image, true).map_err(failed)?;
            // What is flushed now need not be at the instant.
            self.files.flush(&volume).map_err(failed)?;
            members.push(Member { of: of.clone(), record, volume, snapshot });
        }
        Ok(Box::new(Group { pool: self, scratch, members, labels: labels.clone(), taken: None }))
    }

    fn open_for_snapshot(&self, of: &SnapshotOf) -> Result<(VolumeRecord, F::Image), PoolError> {
        let record = self.record_of_filled(&of.volume)?;
        self.check_takes_snapshot(of)?;
        Ok((record, self.image_of(&of.volume, None)?))
    }

    /// Refuses a snapshot whose name is taken, or one too many.
    fn check_takes_snapshot(&self, of: &SnapshotOf) -> Result<(), PoolError> {
        let SnapshotOf { volume, snapshot } = of.clone();
        let path = layout::snapshot_record(&volume, &snapshot);
        if self.files.kind(&path).map_err(failed)?.is_some() {
            return Err(PoolError::SnapshotExists { volume, snapshot });
        }
        if self.names_of_snapshots(&volume)?.len() >= MAX_SNAPSHOTS {
            return Err(PoolError::TooManySnapshots(volume));
        }
        Ok(())
    }
}

impl<F: Files> Snapshots for Group<'_, F> {
    fn take(&mut self) -> Result<(), PoolError> {
        for Member { volume, snapshot, .. } in &self.members {
            self.pool.files.clone_into(volume, snapshot).map_err(no_reflinks_or_failed)?;
        }
        self.taken = Some(SystemTime::now());
        Ok(())
    }

    fn keep(mut self: Box<Self>) -> Result<Vec<Snapshot>, PoolError> {
        let Some(created) = self.taken else {
            return Err(PoolError::Value("a snapshot is kept after it was taken".into()));
        };
        let record = SnapshotRecord { created, labels: self.labels.clone() };
        let kept = self.flush(&record).map_err(failed)?;

        let mut state = self.pool.begin()?;
        for Member { of, record, .. } in &self.members {
            if !self.pool.record(&of.volume)?.is_same_volume(record) {
                return Err(PoolError::NoVolume(of.volume.clone()));
            }
            self.pool.check_takes_snapshot(of)?;
        }
        let renamed = self.pool.rename_all(&mut state, self.moves(), "a snapshot");
        if let Err(PoolError::Unfinished { .. }) = renamed {
            self.scratch.leave();
        }
        renamed.map(|()| kept)
    }
}

impl<F: Files> Group<'_, F> {
    /// Brings the scratch to stable storage, with the records of the snapshots.
    fn flush(&self, record: &SnapshotRecord) -> std::io::Result<Vec<Snapshot>> {
        let (files, folder) = (&self.pool.files, self.scratch.path());
        let mut kept = Vec::with_capacity(self.members.len());
        for (number, Member { of, snapshot, .. }) in self.members.iter().enumerate() {
            files.flush(snapshot)?;
            files.write(&layout::record_in(folder, &number.to_string()), &record::to_text(record))?;
            let SnapshotRecord { created, labels } = record.clone();
            kept.push(Snapshot { name: of.snapshot.clone(), len_bytes: files.len(snapshot)?, created, labels });
        }
        files.sync(folder)?;
        Ok(kept)
    }

    fn moves(&self) -> Vec<Move> {
        let folder = self.scratch.path();
        let numbered = self.members.iter().enumerate();
        let moves = numbered.flat_map(|(number, Member { of: SnapshotOf { volume, snapshot }, .. })| {
            let stem = number.to_string();
            let image = (layout::image_in(folder, &stem), layout::snapshot(volume, snapshot));
            let record = (layout::record_in(folder, &stem), layout::snapshot_record(volume, snapshot));
            [image, record]
        });
        moves.map(|(from, to)| Move { from, to }).collect()
    }
}
