//! The volumes of the server's pools, as the API sees them.
//!
//! A pool knows no logical units, and the device server knows no pools. This room joins them: a volume that is served
//! is not removed, its writes wait for its snapshots, and initiators learn of its new length or content.

mod change;
mod changes;
mod clones;
mod compare;
mod content;
mod fill;
mod keeper;
mod mark;
mod quota;
mod shown;
mod snapshot;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lunette_api::jobs::{Job, Jobs};
use lunette_api::volumes::{
    Changes, FillOrder, Filling, FillingEnd, FillingStep, NewVolume, Pool as ShownPool, Snapshot, SnapshotOrder,
    SnapshotPath, Taken, Volume, VolumeChange, VolumePath, Volumes,
};
use lunette_api::{Caller, Problem};
use lunette_device::LogicalUnit;
use lunette_pools::{Name, Pool, PoolError};
use lunette_target::Control;

use crate::config::pools::{self, PoolEntry};
use crate::disks::volume::{self, Shut, check_finished, open_pool};
use crate::server::served::ServedTarget;
use crate::server::unit::Disk;
pub(crate) use clones::{CloneKey, Template};
use keeper::Numbers;
pub(crate) use keeper::PoolNumbers;
use quota::Claims;
use snapshot::Pauses;
pub(crate) use snapshot::{PAUSE_BOUNDS_US, PauseCounts};

/// The longest that stores may take to end what they have begun, when a volume is to stand still.
const FREEZE_LIMIT: Duration = Duration::from_secs(5);

/// The volumes of a server.
#[derive(Clone)]
pub(crate) struct ServedVolumes {
    control: Control,
    jobs: Jobs,
    look: Arc<dyn Fn() -> Look + Send + Sync>,
    hold: Arc<Hold>,
    /// The volumes that are being removed, renamed or rolled back: they are not opened meanwhile.
    leaving: Arc<Mutex<BTreeSet<At>>>,
    /// The volumes whose copies of other disks threads see to their end.
    copying: Arc<Mutex<BTreeSet<At>>>,
    claims: Arc<Claims>,
    pauses: Arc<Pauses>,
    numbers: Arc<Numbers>,
}

/// Does work while no change is made to what is served: a unit that took the place of a frozen one would not stand
/// still.
type Hold = dyn Fn(&mut dyn FnMut()) + Send + Sync;

/// The state of the server at one moment.
pub(crate) struct Look {
    pub(crate) pools: Arc<[PoolEntry]>,
    pub(crate) targets: Arc<BTreeMap<String, ServedTarget>>,
    pub(crate) templates: Arc<[Template]>,
}

/// The numbers of pools and snapshots.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolumeCounts {
    pub(crate) pools: BTreeMap<Name, PoolNumbers>,
    pub(crate) pauses: PauseCounts,
}

/// A volume, by names that were checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct At {
    pool: Name,
    volume: Name,
}

/// A volume in a list of which each volume is in once, until it is dropped.
struct Listed {
    all: Arc<Mutex<BTreeSet<At>>>,
    at: At,
}

impl Listed {
    /// Lists a volume, unless it is.
    fn new(all: &Arc<Mutex<BTreeSet<At>>>, at: &At) -> Option<Self> {
        lock(all).insert(at.clone()).then(|| Self { all: Arc::clone(all), at: at.clone() })
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.at);
    }
}

impl Look {
    /// The pool of this name.
    fn pool(&self, name: &str) -> Result<&PoolEntry, Problem> {
        let found = self.pools.iter().find(|pool| pool.name.as_str() == name);
        found.ok_or_else(|| Problem::not_found(&format!("pool {name}")))
    }

    /// The disks that are a volume or snapshots of it: the target, the number and the disk.
    fn disks<'l>(&'l self, at: &At) -> impl Iterator<Item = (&'l str, u16, &'l Disk)> {
        let disks = self
            .targets
            .iter()
            .flat_map(|(name, target)| target.disks.iter().map(move |(number, disk)| (name.as_str(), *number, disk)));
        disks.filter(|(.., disk)| {
            pools::volume(&disk.entry).is_some_and(|name| (&name.pool, &name.volume) == (&at.pool, &at.volume))
        })
    }

    /// The paths of the logical units that serve a volume, or a snapshot of it.
    fn luns(&self, at: &At, snapshot: Option<&Name>) -> Vec<String> {
        let of = |disk: &Disk| pools::volume(&disk.entry).and_then(|name| name.snapshot.clone());
        let disks = self.disks(at).filter(|(.., disk)| of(disk).as_ref() == snapshot);
        disks.map(|(target, number, _)| format!("targets/{target}/luns/{number}")).collect()
    }

    /// The logical units that write to a volume.
    fn units(&self, at: &At) -> Vec<&Disk> {
        let of_snapshot = |disk: &Disk| pools::volume(&disk.entry).is_some_and(|name| name.snapshot.is_some());
        self.disks(at).map(|(.., disk)| disk).filter(|disk| disk.is_open() && !of_snapshot(disk)).collect()
    }

    /// The logical units of the volumes and snapshots of a pool.
    fn units_of_pool(&self, name: &Name) -> Vec<Arc<LogicalUnit>> {
        let disks = self.targets.values().flat_map(|target| target.disks.values()).filter(|disk| disk.is_open());
        let of_pool = disks.filter(|disk| pools::volume(&disk.entry).is_some_and(|volume| volume.pool == *name));
        of_pool.map(|disk| Arc::clone(&disk.unit)).collect()
    }

    /// Keeps a volume and its snapshots from being opened, or tells which logical units use them.
    fn shut(&self, at: &At) -> Result<Shut, Problem> {
        if self.disks(at).any(|(.., disk)| disk.entry.is_given) {
            let why =
                format!("volume {at} is the clone of an initiator; try again when that has been gone for a minute");
            return Err(Problem::in_use(why));
        }
        let luns: Vec<_> =
            self.disks(at).map(|(target, number, _)| format!("targets/{target}/luns/{number}")).collect();
        check_none(&at.to_string(), &luns)?;
        let busy = || Problem::in_use(format!("volume {at} is being opened or closed; try again in a moment"));
        volume::shut(&self.pool(at.pool.as_str())?.place, &at.volume).ok_or_else(busy)
    }
}

/// Refuses what cannot be done while logical units use a volume or snapshot.
fn check_none(what: &str, luns: &[String]) -> Result<(), Problem> {
    if luns.is_empty() {
        return Ok(());
    }
    Err(Problem::in_use(format!("volume {what} is served by {}; remove these first", luns.join(", "))))
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

impl At {
    /// The names of a path, checked.
    fn of(path: &VolumePath) -> Result<Self, Problem> {
        Ok(Self { pool: name(&path.pool)?, volume: name(&path.volume)? })
    }

    /// The path of a volume, as `POOL/VOLUME`.
    fn parse(text: &str) -> Result<Self, Problem> {
        let (pool, volume) = text.split_once('/').ok_or_else(|| {
            Problem::invalid(format!("{:?} names no volume; write POOL/VOLUME", crate::text::start(text)))
        })?;
        Ok(Self { pool: name(pool)?, volume: name(volume)? })
    }
}

/// The names of the path of a snapshot, checked.
fn of_snapshot(path: &SnapshotPath) -> Result<(At, Name), Problem> {
    Ok((At { pool: name(&path.pool)?, volume: name(&path.volume)? }, name(&path.snapshot)?))
}

/// A name that was checked.
fn name(text: &str) -> Result<Name, Problem> {
    text.parse().map_err(|error: lunette_pools::NameError| Problem::invalid(error.to_string()))
}

/// A failure of a pool as clients of the API see it.
fn problem(error: &PoolError) -> Problem {
    let text = error.to_string();
    match error {
        PoolError::NoVolume(_) | PoolError::NoSnapshot { .. } => {
            Problem::not_found(text.strip_prefix("there is no ").unwrap_or(&text))
        }
        PoolError::Value(_) => Problem::invalid(text),
        PoolError::Unusable { .. } => Problem::unavailable(text),
        PoolError::Io { .. } => Problem::internal(text),
        _ => Problem::conflict(text),
    }
}

impl ServedVolumes {
    /// `hold` does work while no change is made to what is served.
    pub(crate) fn new(
        control: Control,
        jobs: Jobs,
        look: impl Fn() -> Look + Send + Sync + 'static,
        hold: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static,
    ) -> Self {
        Self {
            control,
            jobs,
            look: Arc::new(look),
            hold: Arc::new(hold),
            leaving: Arc::default(),
            copying: Arc::default(),
            claims: Arc::default(),
            pauses: Arc::default(),
            numbers: Arc::default(),
        }
    }

    fn look(&self) -> Look {
        (self.look)()
    }

    /// Does work while no change is made to what is served.
    fn held<T>(&self, work: impl FnOnce(Look) -> T) -> T {
        let (mut work, mut done) = (Some(work), None);
        (self.hold)(&mut || done = work.take().map(|work| work(self.look())));
        done.expect("the work is done once")
    }

    /// The pool of this name, open.
    fn pool(&self, name: &str) -> Result<Arc<dyn Pool>, Problem> {
        open_pool(&self.look().pool(name)?.place).map_err(|error| problem(&error))
    }

    /// Refuses what a volume cannot do before it has its whole content.
    fn check_finished(&self, at: &At) -> Result<(), Problem> {
        let volume = self.pool(at.pool.as_str())?.volume(&at.volume);
        volume.and_then(|volume| check_finished(&volume)).map_err(|error| problem(&error))
    }

    /// Keeps a volume from being opened or changed otherwise.
    fn leave(&self, at: &At) -> Result<Listed, Problem> {
        let changed = || format!("volume {at} is being changed already; wait until that is done");
        Listed::new(&self.leaving, at).ok_or_else(|| Problem::conflict(changed()))
    }

    /// The numbers of the pools, for metrics.
    pub(crate) fn counts(&self) -> VolumeCounts {
        VolumeCounts { pools: self.numbers.all(), pauses: self.pauses.counts() }
    }
}

impl Volumes for ServedVolumes {
    fn pools(&self, caller: &Caller) -> Vec<ShownPool> {
        self.shown_pools(caller)
    }

    fn volumes(&self, pool: Option<&str>) -> Result<Vec<Volume>, Problem> {
        self.shown_volumes(pool)
    }

    fn volume(&self, at: &VolumePath) -> Result<Volume, Problem> {
        self.shown_volume(&At::of(at)?)
    }

    fn snapshots(&self, at: &VolumePath) -> Result<Vec<Snapshot>, Problem> {
        self.shown_snapshots(&At::of(at)?)
    }

    fn create(&self, at: &VolumePath, mut new: NewVolume, caller: &Caller) -> Result<Volume, Problem> {
        let at = At::of(at)?;
        let _claim = self.claim_new(caller, &at, &mut new)?;
        self.create_volume(&at, new)?;
        self.shown_volume(&at)
    }

    fn change(&self, at: &VolumePath, mut change: VolumeChange, caller: &Caller) -> Result<Volume, Problem> {
        let at = At::of(at)?;
        let _claim = self.claim_change(caller, &at, &mut change)?;
        let at = self.change_volume(at, change)?;
        self.shown_volume(&at)
    }

    fn remove(&self, at: &VolumePath, caller: &Caller) -> Result<(), Problem> {
        let at = At::of(at)?;
        let _claim = self.claim(caller, &at)?;
        self.remove_volume(&at)
    }

    fn snapshot(&self, order: SnapshotOrder, caller: &Caller) -> Result<Taken, Problem> {
        let _claims = self.claim_all(caller, &order)?;
        self.take_snapshot(&order)
    }

    fn remove_snapshot(&self, at: &SnapshotPath, caller: &Caller) -> Result<(), Problem> {
        let (at, snapshot) = of_snapshot(at)?;
        let _claim = self.claim(caller, &at)?;
        self.remove_snapshot_of(&at, &snapshot)
    }

    fn roll_back(&self, at: &SnapshotPath, caller: &Caller) -> Result<Arc<Job>, Problem> {
        let (at, snapshot) = of_snapshot(at)?;
        let claim = self.claim_rollback(caller, &at, &snapshot)?;
        self.begin_rollback(at, snapshot, caller, claim)
    }

    fn flatten(&self, at: &VolumePath, caller: &Caller) -> Result<Arc<Job>, Problem> {
        let at = At::of(at)?;
        let _claim = self.claim(caller, &at)?;
        self.begin_flatten(at, caller)
    }

    fn changes(&self, at: &SnapshotPath, since: Option<&str>, from: u64) -> Result<Changes, Problem> {
        let (at, snapshot) = of_snapshot(at)?;
        self.list_changes(&at, &snapshot, since.map(name).transpose()?.as_ref(), from)
    }

    fn fill(&self, at: &VolumePath, mut order: FillOrder, caller: &Caller) -> Result<Filling, Problem> {
        let at = At::of(at)?;
        let _claim = self.claim_filling(caller, &at, &mut order)?;
        self.begin_filling(&at, &order)
    }

    fn keep_filling(&self, at: &VolumePath, step: FillingStep, caller: &Caller) -> Result<(), Problem> {
        let at = At::of(at)?;
        let _claim = self.claim(caller, &at)?;
        self.keep_step(&at, &step)
    }

    fn end_filling(&self, at: &VolumePath, end: FillingEnd, caller: &Caller) -> Result<Volume, Problem> {
        let at = At::of(at)?;
        let _claim = self.claim(caller, &at)?;
        self.finish(&at, &end)?;
        self.shown_volume(&at)
    }

    fn undo_filling(&self, at: &VolumePath, token: &str, caller: &Caller) -> Result<(), Problem> {
        let at = At::of(at)?;
        let _claim = self.claim_undo(caller, &at)?;
        self.give_up(&at, token)
    }
}

/// The logical units of disks.
fn units_of(disks: &[&Disk]) -> Vec<Arc<LogicalUnit>> {
    disks.iter().map(|disk| Arc::clone(&disk.unit)).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
