//! Snapshots of a group of volumes.

use std::io;

use super::claims::Claim;
use super::cluster::Image;
use super::error::{of_snapshot, of_volume};
use super::pending::{self, Pending};
use super::{CephPool, parallel, record};
use crate::error::PoolError;
use crate::limits::{MAX_GROUP, MAX_SNAPSHOTS};
use crate::name::Name;
use crate::pool::{Labels, Part, Snapshot, SnapshotOf, Snapshots};

/// Snapshots that are prepared, or taken. They are undone when it is dropped before they are kept.
pub(super) struct Group<'a> {
    pool: &'a CephPool,
    members: Vec<Member>,
    labels: Labels,
    state: State,
    _claim: Claim<'a>,
}

struct Member {
    of: SnapshotOf,
    image: Box<dyn Image>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is to be undone but what is written down.
    Prepared,
    /// Some or all are taken.
    Taken,
    /// Nothing is left to do.
    Over,
}

impl<'a> Group<'a> {
    /// Opens the images, with their locks, so that the instant needs no more than the snapshots themselves. What is to
    /// be done is written down before, too.
    pub(super) fn prepare(
        pool: &'a CephPool,
        claim: Claim<'a>,
        group: &[SnapshotOf],
        labels: &Labels,
    ) -> Result<Self, PoolError> {
        let members = parallel::each(group, super::READERS, |of| Member::prepare(pool, of));
        let members = members.into_iter().collect::<Result<Vec<Member>, PoolError>>()?;
        let this = Self { pool, members, labels: labels.clone(), state: State::Prepared, _claim: claim };
        // When it fails, the drop strikes out what may be written down.
        let change = this.change();
        pending::begin(&*pool.cluster, this.first(), &change)
            .map_err(|source| PoolError::Io { what: change.describe(this.first()), source })?;
        Ok(this)
    }

    /// The volume under whose name the snapshots are written down.
    fn first(&self) -> &Name {
        &self.members[0].of.volume
    }

    /// The change as it is written down.
    fn change(&self) -> Pending {
        Pending::Snapshots { group: self.members.iter().map(|member| member.of.clone()).collect() }
    }

    /// Keeps the labels of all, and reads what was taken.
    fn finish(&self) -> Result<Vec<Snapshot>, PoolError> {
        parallel::each(&self.members, MAX_GROUP, |member| member.finish(&self.labels)).into_iter().collect()
    }

    /// Removes what was taken, and strikes the rest out.
    fn undo(&mut self) -> io::Result<()> {
        if self.state == State::Taken {
            let group: Vec<SnapshotOf> = self.members.iter().map(|member| member.of.clone()).collect();
            self.pool.undo_snapshots(&group)?;
        }
        pending::end(&*self.pool.cluster, self.first())?;
        self.state = State::Over;
        Ok(())
    }

    /// The error for the caller, when the rest is undone, or cannot be.
    fn undone_after(&mut self, error: PoolError) -> PoolError {
        let undone = self.undo();
        // What cannot be undone now stays written down.
        self.state = State::Over;
        match undone {
            Ok(()) => error,
            Err(source) => PoolError::Unfinished { what: format!("{error}; its snapshots are undone"), source },
        }
    }
}

impl Snapshots for Group<'_> {
    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn take(&mut self) -> Result<(), PoolError> {
        self.state = State::Taken;
        // As many threads as snapshots: the monitors number in one round what is asked of them at once.
        let taken = parallel::each(&self.members, MAX_GROUP, Member::take);
        let taken: Result<Vec<()>, PoolError> = taken.into_iter().collect();
        taken.map(|_| ()).map_err(|error| self.undone_after(error))
    }

    fn keep(mut self: Box<Self>) -> Result<Vec<Snapshot>, PoolError> {
        if self.state != State::Taken {
            return Err(PoolError::Value("the snapshots were not taken, so none is kept; take them first".into()));
        }
        let snapshots = self.finish().map_err(|error| self.undone_after(error))?;
        // They are kept when they are no longer written down as something to undo.
        let kept = pending::end(&*self.pool.cluster, self.first());
        self.state = State::Over;
        kept.map(|()| snapshots)
            .map_err(|source| PoolError::Unfinished { what: self.change().describe(self.first()), source })
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if self.state == State::Over {
            return;
        }
        if let Err(error) = self.undo() {
            let volume = self.first();
            tracing::warn!(%error, %volume, "snapshots that are not kept cannot be removed yet");
        }
    }
}

impl Member {
    fn prepare(pool: &CephPool, of: &SnapshotOf) -> Result<Self, PoolError> {
        let (image, _) = pool.open_filled(&of.volume)?;
        let snapshots = image.snapshots();
        let snapshots = snapshots.map_err(|error| of_volume(&of.volume, "its snapshots cannot be listed", error))?;
        if snapshots.iter().any(|taken| taken.name == of.snapshot.as_str()) {
            return Err(PoolError::SnapshotExists { volume: of.volume.clone(), snapshot: of.snapshot.clone() });
        }
        if snapshots.len() >= MAX_SNAPSHOTS {
            return Err(PoolError::TooManySnapshots(of.volume.clone()));
        }
        if let Err(error) = image.lock_if_free() {
            tracing::debug!(%error, volume = %of.volume, "the lock of an image is taken when its snapshot is");
        }
        Ok(Self { of: of.clone(), image })
    }

    fn take(&self) -> Result<(), PoolError> {
        self.image.create_snapshot(self.of.snapshot.as_str()).map_err(|error| self.failed(error))
    }

    fn finish(&self, labels: &Labels) -> Result<Snapshot, PoolError> {
        let finish = || {
            let snapshots = self.image.snapshots()?;
            let taken = snapshots.into_iter().find(|taken| taken.name == self.of.snapshot.as_str());
            let taken = taken.ok_or(io::ErrorKind::NotFound)?;
            record::keep_labels(&*self.image, taken.id, labels)?;
            let name = self.of.snapshot.clone();
            Ok(Snapshot { name, len_bytes: taken.len_bytes, created: taken.created, labels: labels.clone() })
        };
        finish().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> PoolError {
        of_snapshot(&self.of.volume, &self.of.snapshot, "its snapshot cannot be taken", error)
    }
}
