//! Snapshots of several volumes at one instant.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lunette_api::Problem;
use lunette_api::volumes::{Labels, SnapshotOrder, Taken};
use lunette_pools::{Name, Part, PoolError, Snapshot, SnapshotOf, Snapshots};
use lunette_store::filters::{ClosedGate, Turns};
use lunette_store::{Op, execute};

use super::{At, FREEZE_LIMIT, ServedVolumes, lock, name, problem, units_of};
use crate::disks::volume;
use crate::server::unit::Disk;

/// The upper bounds of the classes of pauses, in microseconds.
pub(crate) const PAUSE_BOUNDS_US: [u64; 8] = [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 200_000, 1_000_000];

/// How long requests to disks have waited for snapshots.
#[derive(Default)]
pub(crate) struct Pauses(Mutex<PauseCounts>);

/// Pauses, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PauseCounts {
    /// The pauses up to each bound, and those beyond the last.
    pub(crate) classes: [u64; PAUSE_BOUNDS_US.len() + 1],
    /// All of them together, in microseconds.
    pub(crate) total_us: u64,
}

impl Pauses {
    fn count(&self, pause_us: u64) {
        let mut counts = lock(&self.0);
        let class = PAUSE_BOUNDS_US.iter().position(|bound| pause_us <= *bound).unwrap_or(PAUSE_BOUNDS_US.len());
        counts.classes[class] += 1;
        counts.total_us = counts.total_us.saturating_add(pause_us);
    }

    pub(crate) fn counts(&self) -> PauseCounts {
        lock(&self.0).clone()
    }
}

impl ServedVolumes {
    pub(super) fn take_snapshot(&self, order: &SnapshotOrder) -> Result<Taken, Problem> {
        let snapshot = name(&order.name)?;
        let volumes = order.volumes.iter().map(|text| At::parse(text)).collect::<Result<Vec<_>, _>>()?;
        if volumes.is_empty() {
            return Err(Problem::invalid("volumes is empty; write POOL/VOLUME of one at least"));
        }
        let (taken, pause_us) = self.take(&volumes, &snapshot, &order.labels)?;
        let look = self.look();
        let shown = taken.into_iter().map(|(at, snapshot)| look.shown_snapshot(&at, snapshot)).collect();
        Ok(Taken { snapshots: shown, pause_us })
    }

    /// Takes a snapshot of each of these volumes at one instant. Gives them in the order of the volumes, with the time
    /// that requests to their disks waited.
    pub(super) fn take(
        &self,
        volumes: &[At],
        snapshot: &Name,
        labels: &Labels,
    ) -> Result<(Vec<(At, Snapshot)>, u64), Problem> {
        volumes.iter().try_for_each(|at| self.check_finished(at))?;
        let mut groups: BTreeMap<&Name, Vec<SnapshotOf>> = BTreeMap::new();
        for At { pool, volume } in volumes {
            let of = SnapshotOf { volume: volume.clone(), snapshot: snapshot.clone() };
            groups.entry(pool).or_default().push(of);
        }
        let opened = groups.iter().map(|(pool, group)| Ok((*pool, self.pool(pool.as_str())?, group)));
        let opened = opened.collect::<Result<Vec<_>, Problem>>()?;
        let mut prepared = Vec::new();
        for (name, pool, group) in &opened {
            let snapshots = pool.prepare(group, labels).map_err(|error| problem(&error))?;
            prepared.push(Prepared { pool: name, snapshots });
        }
        let begun = self.at_one_instant(volumes, &mut prepared)?;
        let longest_wait = take_parts(begun.closed, &prepared)?;
        // One that is being filled now may have been written to past its gate.
        volumes.iter().try_for_each(|at| self.check_finished(at))?;
        let pause_us = begun.pause.map_or(0, |pause| self.count_pause(pause + longest_wait));
        let mut kept: BTreeMap<(&Name, Name), Snapshot> = BTreeMap::new();
        for ((pool, _, group), snapshots) in opened.iter().zip(prepared) {
            let snapshots = match snapshots.snapshots.keep() {
                Ok(snapshots) => snapshots,
                Err(error) => {
                    // All or none: those of other pools go again.
                    for (pool, volume) in kept.keys() {
                        let _ = self.pool(pool.as_str())?.remove_snapshot(volume, snapshot);
                    }
                    return Err(problem(&error));
                }
            };
            kept.extend(group.iter().zip(snapshots).map(|(of, snapshot)| ((*pool, of.volume.clone()), snapshot)));
        }
        let taken = volumes.iter().filter_map(|at| {
            let snapshot = kept.remove(&(&at.pool, at.volume.clone()))?;
            Some((at.clone(), snapshot))
        });
        Ok((taken.collect(), pause_us))
    }

    /// The instant of what is prepared. Disks stand still for it that are taken as a whole, and those that keep
    /// something above their files.
    fn at_one_instant(&self, volumes: &[At], prepared: &mut [Prepared<'_>]) -> Result<Begun, Problem> {
        self.held(|look| {
            let is_in_parts = |at: &At| {
                let of_pool = prepared.iter().filter(|prepared| *prepared.pool == at.pool);
                of_pool.flat_map(|prepared| prepared.snapshots.parts()).any(|part| *part.volume == at.volume)
            };
            let disks: Vec<(bool, &Disk)> = volumes
                .iter()
                .flat_map(|at| look.units(at).into_iter().map(|disk| (is_in_parts(at), disk)).collect::<Vec<_>>())
                .collect();
            // A block that is no power of two lies in two pieces, and may not be cut.
            let has_odd_blocks = |disk: &Disk| disk.entry.quantum.is_some();
            let stands_still = |(is_in_parts, disk): &(bool, &Disk)| {
                !is_in_parts || disk.entry.disk.keys.is_some() || has_odd_blocks(disk)
            };
            let still: Vec<&Disk> = disks.iter().filter(|disk| stands_still(disk)).map(|(_, disk)| *disk).collect();
            let frozen = self.control.freeze(&units_of(&still), FREEZE_LIMIT);
            let frozen = frozen.map_err(|error| Problem::unavailable(error.to_string()))?;
            flush_encrypted(&still)?;
            let mut closed = Vec::new();
            for Prepared { pool, snapshots } in &*prepared {
                let place = &look.pool(pool.as_str())?.place;
                for part in snapshots.parts() {
                    let gate = volume::gate(place, part.volume).close(part.len_bytes);
                    closed.push(gate.ok_or_else(|| problem(&PoolError::BeingTaken(part.volume.clone())))?);
                }
            }
            let taken = prepared.iter_mut().try_for_each(|prepared| prepared.snapshots.take());
            taken.map_err(|error| problem(&error))?;
            // Without disks, nothing waits.
            let pause = if still.is_empty() { Duration::ZERO } else { frozen.began().elapsed() };
            Ok(Begun { closed, pause: (!disks.is_empty()).then_some(pause) })
        })
    }

    /// Counts the time that requests have waited for a snapshot. Gives it in microseconds.
    fn count_pause(&self, pause: Duration) -> u64 {
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.pauses.count(pause_us);
        pause_us
    }
}

/// Snapshots of volumes of one pool that are prepared.
struct Prepared<'p> {
    pool: &'p Name,
    snapshots: Box<dyn Snapshots + 'p>,
}

/// Snapshots whose instant was.
struct Begun {
    /// The gates of the volumes that are taken in parts, in their order.
    closed: Vec<ClosedGate>,
    /// The time that disks stood still; `None` when no disk is one of the volumes.
    pause: Option<Duration>,
}

/// Takes the parts that are behind these gates, in their order. Those of one pool take turns. Gives the longest time
/// that a request has waited.
fn take_parts(closed: Vec<ClosedGate>, prepared: &[Prepared<'_>]) -> Result<Duration, Problem> {
    let has_failed = AtomicBool::new(false);
    let fail = |error: PoolError| {
        has_failed.store(true, Ordering::Relaxed);
        error
    };
    let take = |gate: ClosedGate, part: &Part<'_>, turns: &Turns| {
        let taken = gate.see_to_all(turns, |bytes| {
            if has_failed.load(Ordering::Relaxed) { Err(PoolError::Stopped) } else { part.take(bytes) }
        });
        taken.map_err(fail)
    };
    let turns: Vec<Turns> = prepared.iter().map(|_| Turns::default()).collect();
    let of_pools = prepared.iter().zip(&turns);
    let parts =
        of_pools.flat_map(|(prepared, turns)| prepared.snapshots.parts().into_iter().map(move |part| (part, turns)));
    let taken: Vec<Result<Duration, PoolError>> = thread::scope(|scope| {
        let begun = closed.into_iter().zip(parts).map(|(gate, (part, turns))| {
            // Each has a thread, so that a request to one disk does not wait for others.
            let thread = thread::Builder::new().name("lunette-snapshot".into());
            let begun = thread.spawn_scoped(scope, move || take(gate, &part, turns));
            begun.map_err(|source| fail(PoolError::Io { what: "a thread for a snapshot".into(), source }))
        });
        let begun: Vec<_> = begun.collect();
        let ended = begun.into_iter().map(|thread| thread?.join().unwrap_or_else(|_| Err(fail(PoolError::Stopped))));
        ended.collect()
    });
    longest(taken).map_err(|error| problem(&error))
}

/// The longest wait, or the error that has stopped all others.
fn longest(waits: Vec<Result<Duration, PoolError>>) -> Result<Duration, PoolError> {
    let mut longest = Duration::ZERO;
    let mut is_stopped = false;
    for wait in waits {
        match wait {
            Ok(wait) => longest = longest.max(wait),
            Err(PoolError::Stopped) => is_stopped = true,
            Err(error) => return Err(error),
        }
    }
    if is_stopped { Err(PoolError::Stopped) } else { Ok(longest) }
}

/// Brings to their files what encrypted disks keep above them.
pub(super) fn flush_encrypted(disks: &[&Disk]) -> Result<(), Problem> {
    for disk in disks.iter().filter(|disk| disk.entry.disk.keys.is_some()) {
        if let Some(opened) = disk.store.opened() {
            let flushed = execute(&*opened.store, Op::Flush).result;
            flushed.map_err(|error| Problem::internal(format!("{}: {error}", disk.entry.disk)))?;
        }
    }
    Ok(())
}
