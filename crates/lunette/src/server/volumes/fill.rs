//! Volumes that a client fills: new ones, and those that get the changes up to a later snapshot of their origin.
//!
//! A volume in this state has a mark among its labels, so it survives a restart, and nothing opens the volume. The mark
//! goes when the snapshot of the new content is kept, or the content of before is back. So the volume is at no time
//! taken for whole while it is not.
//!
//! The client holds the lock of the image while it writes. That tells a filling that goes on from one that was cut off.

use std::ops::ControlFlow;

use lunette_api::Problem;
use lunette_api::volumes::{BaseSnapshot, FillOrder, Filling, FillingEnd, FillingStep, MovedSnapshot};
use lunette_pools::stream::is_identity;
use lunette_pools::{Name, NewVolume as Wanted, Place, Pool, PoolError, Snapshot, SnapshotOf, Volume};
use lunette_store::{FileStore, OpenOptions};

use super::change::drawn_serial;
use super::mark::{self, Mark};
use super::{At, ServedVolumes, compare, name, problem};
use crate::disks::volume::open_pool;

impl ServedVolumes {
    pub(super) fn begin_filling(&self, at: &At, order: &FillOrder) -> Result<Filling, Problem> {
        for id in order.snapshot.iter().map(|of| &of.id).chain(order.since.iter().map(|of| &of.id)) {
            if !is_identity(id) {
                return Err(Problem::invalid("the identity of a snapshot is 1 to 64 letters and digits"));
            }
        }
        let pool = self.pool(at.pool.as_str())?;
        let _leaving = self.leave(at)?;
        let there = Self::settled(&*pool, at)?;
        let mark = match (&order.since, &order.snapshot, there) {
            (None, _, None) => self.begin_new(&*pool, at, order),
            (None, _, Some(volume)) => Self::go_on_with_new(&*pool, at, order, &volume),
            (Some(since), Some(snapshot), Some(volume)) => {
                self.begin_changes(&*pool, at, order, (since, snapshot), &volume)
            }
            (Some(_), None, _) => Err(Problem::invalid("changes lead to a snapshot; write which")),
            (Some(_), _, None) => Err(problem(&PoolError::NoVolume(at.volume.clone()))),
        }?;
        let place = text_of(&pool.place(&at.volume, None));
        Ok(Filling { place, token: mark.token, done_bytes: mark.done_bytes })
    }

    /// The volume, if there is one. A filling of it that lacks only its end is ended.
    pub(super) fn settled(pool: &dyn Pool, at: &At) -> Result<Option<Volume>, Problem> {
        let read = || {
            let volume = match pool.volume(&at.volume) {
                Err(PoolError::NoVolume(_)) => return Ok(None),
                volume => volume?,
            };
            let Some(id) = Mark::of(&volume.labels).and_then(|mark| mark.id) else { return Ok(Some(volume)) };
            if find(&volume, &pool.snapshots(&at.volume)?, &id).is_none() {
                return Ok(Some(volume));
            }
            let labels = mark::without(volume.labels);
            pool.set_labels(&at.volume, &labels)?;
            Ok(Some(Volume { labels, ..volume }))
        };
        read().map_err(|error| problem(&error))
    }

    /// Creates a volume that is filled.
    fn begin_new(&self, pool: &dyn Pool, at: &At, order: &FillOrder) -> Result<Mark, Problem> {
        let mark = new_mark(order)?;
        let serial = match (&order.serial, &order.origin_serial) {
            (Some(serial), _) => serial.clone(),
            (None, Some(serial)) if !self.has_serial(serial) => serial.clone(),
            (None, _) => drawn_serial()?,
        };
        let wanted = Wanted {
            len_bytes: order.size_bytes,
            is_full: order.full,
            // An opening of the pool removes what is so: a receive that can go on must find what it has.
            is_filling: !order.resume,
            serial,
            labels: mark.among(order.labels.clone()),
        };
        pool.create(&at.volume, &wanted).map_err(|error| problem(&error))?;
        Ok(mark)
    }

    /// Goes on with a new volume, if it is the one that the client means.
    fn go_on_with_new(pool: &dyn Pool, at: &At, order: &FillOrder, volume: &Volume) -> Result<Mark, Problem> {
        let exists = || problem(&PoolError::VolumeExists(at.volume.clone()));
        let known = Mark::of(&volume.labels).filter(|known| known.since.is_none()).ok_or_else(exists)?;
        refuse_writer(pool, at)?;
        let mark = Mark { done_bytes: known.done_bytes, ..new_mark(order)? };
        let is_meant = known.id.is_some() && known.id == mark.id && volume.len_bytes == order.size_bytes;
        match order.resume {
            true if is_meant => put_mark(pool, at, volume, mark),
            true => Err(Problem::conflict(format!("volume {at} was begun with another content; remove it first"))),
            false => Err(Problem::conflict(format!(
                "volume {at} was begun and is not whole; go on with --resume, or remove it first"
            ))),
        }
    }

    /// Prepares a volume for the changes since a snapshot: it has the content of that one afterwards, and the mark.
    fn begin_changes(
        &self,
        pool: &dyn Pool,
        at: &At,
        order: &FillOrder,
        (since, snapshot): (&BaseSnapshot, &MovedSnapshot),
        volume: &Volume,
    ) -> Result<Mark, Problem> {
        let refused = |error: PoolError| problem(&error);
        if volume.is_filling {
            return Err(refused(PoolError::Filling(at.volume.clone())));
        }
        // The mark keeps it from being opened later.
        let _shut = self.look().shut(at)?;
        let snapshots = pool.snapshots(&at.volume).map_err(refused)?;
        let to = name(&snapshot.name)?;
        if let Some(same) = find(volume, &snapshots, &snapshot.id) {
            return Err(Problem::conflict(format!("volume {at} has this snapshot already: {}", same.name)));
        }
        if snapshots.iter().any(|known| known.name == to) {
            return Err(refused(PoolError::SnapshotExists { volume: at.volume.clone(), snapshot: to }));
        }
        let base = find(volume, &snapshots, &since.id).ok_or_else(|| {
            Problem::conflict(format!(
                "volume {at} has not the snapshot {} that the changes are since ({}); send them since one that it has",
                since.name, since.id
            ))
        })?;
        let mark = new_mark(order)?;
        match Mark::of(&volume.labels) {
            Some(known) => {
                refuse_writer(pool, at)?;
                let is_meant = (&known.id, &known.since) == (&mark.id, &mark.since);
                if order.resume && is_meant && volume.len_bytes == order.size_bytes {
                    return put_mark(pool, at, volume, Mark { done_bytes: known.done_bytes, ..mark });
                }
                // Whatever it has is unfinished.
                roll_back(pool, at, base)?;
            }
            None => self.make_like(pool, at, volume, base, order.force)?,
        }
        let mark = put_mark(pool, at, volume, mark)?;
        if base.len_bytes != order.size_bytes {
            let resized = pool.resize(&at.volume, order.size_bytes);
            resized.map_err(|error| undone(pool, at, &mark, problem(&error)))?;
        }
        Ok(mark)
    }

    /// Sees to it that a volume has the content of its snapshot.
    fn make_like(
        &self,
        pool: &dyn Pool,
        at: &At,
        volume: &Volume,
        base: &Snapshot,
        force: bool,
    ) -> Result<(), Problem> {
        let refused = |error: PoolError| problem(&error);
        let changed = pool.changes(&at.volume, Some(&base.name), None).map_err(refused)?;
        if volume.len_bytes == base.len_bytes && compare::is_like(pool, at, &base.name, &changed)? {
            return Ok(());
        }
        if !force {
            return Err(Problem::conflict(format!(
                "volume {at} was changed since its snapshot {}; with --force it is rolled back, and what it has becomes a snapshot",
                base.name
            )));
        }
        self.take_before(at)?;
        roll_back(pool, at, base)
    }

    pub(super) fn keep_step(&self, at: &At, step: &FillingStep) -> Result<(), Problem> {
        let pool = self.pool(at.pool.as_str())?;
        let _leaving = self.leave(at)?;
        let (volume, mark) = filled_by(&*pool, at, &step.token)?;
        put_mark(&*pool, at, &volume, Mark { done_bytes: step.done_bytes, ..mark }).map(drop)
    }

    pub(super) fn finish(&self, at: &At, end: &FillingEnd) -> Result<(), Problem> {
        let refused = |error: PoolError| problem(&error);
        let pool = self.pool(at.pool.as_str())?;
        let _leaving = self.leave(at)?;
        let (volume, mark) = filled_by(&*pool, at, &end.token)?;
        if mark.id != end.snapshot.as_ref().map(|snapshot| snapshot.id.clone()) {
            return Err(Problem::conflict(format!("volume {at} is being filled for another snapshot")));
        }
        if volume.is_filling {
            pool.filled(&at.volume).map_err(refused)?;
        }
        if let Some(snapshot) = &end.snapshot {
            let mut labels = mark::of_users(snapshot.labels.clone());
            labels.insert(mark::ID.into(), snapshot.id.clone());
            let of = SnapshotOf { volume: at.volume.clone(), snapshot: name(&snapshot.name)? };
            let take = || {
                let mut prepared = pool.prepare(&[of], &labels)?;
                prepared.take_whole()?;
                prepared.keep()
            };
            match take() {
                Ok(_) => {}
                // A new volume is of use without a snapshot, too.
                Err(PoolError::NoReflinks) if mark.since.is_none() => {
                    tracing::warn!(volume = %at, "it is received without a snapshot: the file system has no reflinks");
                }
                Err(error) => return Err(refused(error)),
            }
        }
        pool.set_labels(&at.volume, &mark::without(volume.labels)).map_err(refused)
    }

    pub(super) fn give_up(&self, at: &At, token: &str) -> Result<(), Problem> {
        let pool = self.pool(at.pool.as_str())?;
        let _leaving = self.leave(at)?;
        let (_, mark) = filled_by(&*pool, at, token)?;
        if mark.since.is_some() {
            refuse_writer(&*pool, at)?;
        }
        undo(&*pool, at, &mark)
    }

    pub(super) fn has_serial(&self, serial: &str) -> bool {
        let look = self.look();
        let listed = look.pools.iter().filter_map(|entry| open_pool(&entry.place).and_then(|pool| pool.volumes()).ok());
        listed.flat_map(|(volumes, _)| volumes).any(|volume| volume.serial == serial)
    }
}

/// The mark that an order gives a volume.
fn new_mark(order: &FillOrder) -> Result<Mark, Problem> {
    let id = order.snapshot.as_ref().map(|snapshot| snapshot.id.clone());
    let since = order.since.as_ref().map(|since| since.id.clone());
    Ok(Mark { token: drawn_serial()?, id, since, done_bytes: 0 })
}

fn put_mark(pool: &dyn Pool, at: &At, volume: &Volume, mark: Mark) -> Result<Mark, Problem> {
    let marked = pool.set_labels(&at.volume, &mark.among(volume.labels.clone()));
    marked.map(|()| mark).map_err(|error| problem(&error))
}

/// The volume, and its mark, if it is filled by the client with this proof.
fn filled_by(pool: &dyn Pool, at: &At, token: &str) -> Result<(Volume, Mark), Problem> {
    let volume = pool.volume(&at.volume).map_err(|error| problem(&error))?;
    let other = || Problem::conflict(format!("volume {at} is not being filled by this command any more"));
    let mark = Mark::of(&volume.labels).filter(|mark| mark.token == token).ok_or_else(other)?;
    Ok((volume, mark))
}

/// Takes a filling back.
fn undo(pool: &dyn Pool, at: &At, mark: &Mark) -> Result<(), Problem> {
    let refused = |error: PoolError| problem(&error);
    let Some(since) = &mark.since else { return pool.remove(&at.volume).map_err(refused) };
    let volume = pool.volume(&at.volume).map_err(refused)?;
    let snapshots = pool.snapshots(&at.volume).map_err(refused)?;
    let gone = || {
        let why = format!("the snapshot that volume {at} had the content of is gone; roll it back to another");
        Problem::conflict(why)
    };
    let base = find(&volume, &snapshots, since).ok_or_else(gone)?;
    roll_back(pool, at, base)?;
    pool.set_labels(&at.volume, &mark::without(volume.labels)).map_err(refused)
}

/// Takes a filling back that could not begin, and gives the reason of that.
fn undone(pool: &dyn Pool, at: &At, mark: &Mark, why: Problem) -> Problem {
    if let Err(error) = undo(pool, at, mark) {
        tracing::warn!(volume = %at, %error, "it stays unfinished; roll it back");
    }
    why
}

fn roll_back(pool: &dyn Pool, at: &At, snapshot: &Snapshot) -> Result<(), Problem> {
    let rolled_back = pool.roll_back(&at.volume, &snapshot.name, &mut |_, _| ControlFlow::Continue(()));
    rolled_back.map_err(|error| problem(&error))
}

/// Refuses to touch an image that another process writes to. Ceph refuses by itself.
pub(super) fn refuse_writer(pool: &dyn Pool, at: &At) -> Result<(), Problem> {
    let Place::File(path) = pool.place(&at.volume, None) else { return Ok(()) };
    let options = OpenOptions { any_length: true, ..OpenOptions::default() };
    match FileStore::open(&path, &options) {
        Ok(_) => Ok(()),
        Err(error) => Err(Problem::in_use(format!("volume {at} is being filled: {error}"))),
    }
}

/// Refuses to remove the snapshot to which an unfinished volume goes back.
pub(super) fn check_is_no_base(pool: &dyn Pool, at: &At, snapshot: &Name) -> Result<(), Problem> {
    let refused = |error: PoolError| problem(&error);
    let volume = pool.volume(&at.volume).map_err(refused)?;
    let Some(since) = Mark::of(&volume.labels).and_then(|mark| mark.since) else { return Ok(()) };
    let snapshots = pool.snapshots(&at.volume).map_err(refused)?;
    let base = find(&volume, &snapshots, &since);
    if base.is_some_and(|base| base.name == *snapshot) {
        let why =
            format!("volume {at} is being filled with changes since {snapshot}; wait for the end, or roll it back");
        return Err(Problem::conflict(why));
    }
    Ok(())
}

/// The snapshot of this identity.
pub(super) fn find<'s>(volume: &Volume, snapshots: &'s [Snapshot], id: &str) -> Option<&'s Snapshot> {
    snapshots.iter().find(|snapshot| mark::identity(&volume.serial, snapshot) == id)
}

/// A place of blocks, as the client opens it.
pub(super) fn text_of(place: &Place) -> String {
    match place {
        Place::File(path) => path.display().to_string(),
        Place::Image(url) => url.to_string(),
    }
}
