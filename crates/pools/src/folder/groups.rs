//! Snapshots of several volumes at one instant.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::files::Files;
use super::in_place::KeptInPlace;
use super::journal::Move;
use super::record::{self, SnapshotRecord};
use super::scratch::Scratch;
use super::volumes::no_reflinks_or_failed;
use super::{FolderPool, failed, layout};
use crate::check;
use crate::error::PoolError;
use crate::limits::{MAX_PART_BLOCK_BYTES, MAX_SNAPSHOT_WAIT, MAX_SNAPSHOTS};
use crate::pool::{Labels, Part, Snapshot, SnapshotOf, Snapshots};

/// Snapshots that are prepared: images without content, in a scratch.
#[derive(Debug)]
struct Group<'p, F: Files> {
    pool: &'p FolderPool<F>,
    scratch: Scratch<'p, F>,
    members: Vec<Member<F>>,
    labels: Labels,
    /// The instant, once it was.
    taken: Option<SystemTime>,
    _kept_in_place: KeptInPlace<'p>,
}

/// A volume of the group.
#[derive(Debug)]
struct Member<F: Files> {
    of: SnapshotOf,
    volume: F::Image,
    snapshot: F::Image,
    len_bytes: u64,
    is_in_parts: bool,
    /// Bytes that were taken.
    taken_bytes: AtomicU64,
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
        let volumes = group.iter().map(|of| of.volume.clone()).collect();
        let kept_in_place = self.in_place.keep(volumes, MAX_SNAPSHOT_WAIT)?;
        // A change that has not heard of that ends first.
        drop(self.begin()?);
        let volumes = {
            let _reading = self.reading();
            group.iter().map(|of| self.open_for_snapshot(of)).collect::<Result<Vec<_>, _>>()?
        };
        let scratch = self.scratch();
        self.files.make_folder(scratch.path()).map_err(failed)?;
        let mut members = Vec::with_capacity(group.len());
        for (number, (of, volume)) in group.iter().zip(volumes).enumerate() {
            let image = layout::image_in(scratch.path(), &number.to_string());
            let snapshot = self.files.make_image(&image, true).map_err(failed)?;
            members.push(Member::prepare(&self.files, of, volume, snapshot).map_err(failed)?);
        }
        let labels = labels.clone();
        Ok(Box::new(Group { pool: self, scratch, members, labels, taken: None, _kept_in_place: kept_in_place }))
    }

    fn open_for_snapshot(&self, of: &SnapshotOf) -> Result<F::Image, PoolError> {
        self.record_of_filled(&of.volume)?;
        self.check_takes_snapshot(of)?;
        self.image_of(&of.volume, None)
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
    fn parts(&self) -> Vec<Part<'_>> {
        let in_parts = self.members.iter().filter(|member| member.is_in_parts);
        in_parts.map(|member| member.part(&self.pool.files)).collect()
    }

    fn take(&mut self) -> Result<(), PoolError> {
        for member in self.members.iter().filter(|member| !member.is_in_parts) {
            member.take_whole(&self.pool.files)?;
        }
        self.taken = Some(SystemTime::now());
        Ok(())
    }

    fn keep(mut self: Box<Self>) -> Result<Vec<Snapshot>, PoolError> {
        let is_whole = |member: &Member<F>| member.taken_bytes.load(Ordering::Relaxed) == member.len_bytes;
        let Some(created) = self.taken.filter(|_| self.members.iter().all(is_whole)) else {
            return Err(PoolError::Value("a snapshot is kept after all of it was taken".into()));
        };
        let record = SnapshotRecord { created, labels: self.labels.clone() };
        let kept = self.flush(&record).map_err(failed)?;

        let mut state = self.pool.begin()?;
        let renamed = self.pool.rename_all(&mut state, self.moves(), "a snapshot");
        if let Err(PoolError::Unfinished { .. }) = renamed {
            self.scratch.leave();
        }
        renamed.map(|()| kept)
    }
}

impl<F: Files> Member<F> {
    fn prepare(files: &F, of: &SnapshotOf, volume: F::Image, snapshot: F::Image) -> io::Result<Self> {
        let len_bytes = files.len(&volume)?;
        let block_bytes = files.block_bytes(&volume)?;
        // ZFS shares whole records of the image alone, whose length it chooses when the image is made.
        let is_in_parts = block_bytes.is_power_of_two() && block_bytes <= MAX_PART_BLOCK_BYTES;
        if is_in_parts {
            files.set_len(&snapshot, len_bytes)?;
        }
        // What is flushed now need not be at the instant.
        files.flush(&volume)?;
        Ok(Self { of: of.clone(), volume, snapshot, len_bytes, is_in_parts, taken_bytes: AtomicU64::new(0) })
    }

    fn take_whole(&self, files: &F) -> Result<(), PoolError> {
        files.clone_into(&self.volume, &self.snapshot).map_err(no_reflinks_or_failed)?;
        self.taken_bytes.store(self.len_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn part<'s>(&'s self, files: &'s F) -> Part<'s> {
        let take = |range: Range<u64>| {
            let bytes = range.end.saturating_sub(range.start);
            files.clone_range(&self.volume, &self.snapshot, range).map_err(no_reflinks_or_failed)?;
            self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        };
        Part { volume: &self.of.volume, len_bytes: self.len_bytes, take: Box::new(take) }
    }
}

impl<F: Files> Group<'_, F> {
    /// Brings the scratch to stable storage, with the records of the snapshots.
    fn flush(&self, record: &SnapshotRecord) -> io::Result<Vec<Snapshot>> {
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
