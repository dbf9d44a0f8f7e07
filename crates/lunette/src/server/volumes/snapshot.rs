//! Snapshots of several volumes at one instant.

use std::collections::BTreeMap;
use std::sync::Mutex;

use lunette_api::Problem;
use lunette_api::volumes::{Labels, SnapshotOrder, Taken};
use lunette_pools::{Name, Snapshot, SnapshotOf, Snapshots};
use lunette_store::{Op, execute};

use super::{At, FREEZE_LIMIT, ServedVolumes, lock, name, problem, units_of};
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
        for (_, pool, group) in &opened {
            prepared.push(pool.prepare(group, labels).map_err(|error| problem(&error))?);
        }
        let pause_us = self.at_one_instant(volumes, &mut prepared)?;
        let mut kept: BTreeMap<(&Name, Name), Snapshot> = BTreeMap::new();
        for ((pool, _, group), snapshots) in opened.iter().zip(prepared) {
            let snapshots = match snapshots.keep() {
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

    /// Takes what is prepared while the disks of these volumes stand still. Gives the time that they did.
    fn at_one_instant(&self, volumes: &[At], prepared: &mut [Box<dyn Snapshots + '_>]) -> Result<u64, Problem> {
        let pause = self.held(|look| {
            let disks: Vec<&Disk> = volumes.iter().flat_map(|at| look.units(at)).collect();
            let frozen = self.control.freeze(&units_of(&disks), FREEZE_LIMIT);
            let frozen = frozen.map_err(|error| Problem::unavailable(error.to_string()))?;
            flush_encrypted(&disks)?;
            let taken = prepared.iter_mut().try_for_each(|snapshots| snapshots.take());
            let pause = (!disks.is_empty()).then(|| frozen.began().elapsed());
            taken.map_err(|error| problem(&error)).map(|()| pause)
        })?;
        // Without disks, nothing has waited.
        let Some(pause) = pause else { return Ok(0) };
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.pauses.count(pause_us);
        Ok(pause_us)
    }
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
