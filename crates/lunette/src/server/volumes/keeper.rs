//! The keeper of a pool: a thread that takes the snapshots of its schedules, removes those that no schedule keeps, and
//! reads its numbers. It lets initiators know when the pool is low. A pool that does not answer holds up no other.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lunette_api::volumes::Labels;
use lunette_pools::schedule::due;
use lunette_pools::{Name, Pool, PoolError, PoolSpace, Snapshot, Volume};
use time::OffsetDateTime;

use super::shown::is_disk;
use super::{At, ServedVolumes, lock};
use crate::config::pools::PoolEntry;
use crate::config::schedules::ScheduleEntry;
use crate::disks::volume::{check_finished, is_unfinished};

/// The interval at which a keeper looks.
const INTERVAL: Duration = Duration::from_secs(10);

/// Seconds until a snapshot that could not be taken is tried again.
const RETRY_SECS: u64 = 60;

/// The label of a snapshot with the schedule that has taken it.
const SCHEDULE: &str = "lunette.schedule";

/// The label with the moment that the snapshot was due, in seconds since 1970.
const MOMENT: &str = "lunette.moment";

/// The numbers of pools, as their keepers have read them last.
#[derive(Default)]
pub(crate) struct Numbers {
    pools: Mutex<BTreeMap<Name, Kept>>,
    /// Counts the changes of the configuration, at each of which keepers look.
    round: (Mutex<u64>, Condvar),
}

/// A pool that has a keeper.
struct Kept {
    /// The round in which it got its keeper, which ends when another one has taken its place.
    since: u64,
    numbers: PoolNumbers,
}

/// The numbers of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PoolNumbers {
    /// Whether it can be used.
    pub(crate) is_up: bool,
    pub(crate) volumes: u64,
    pub(crate) committed_bytes: u64,
    pub(crate) space: PoolSpace,
    /// The moment of the last snapshot of each schedule, in seconds since 1970.
    pub(crate) taken: BTreeMap<Name, u64>,
    /// Snapshots by schedule that could not be taken.
    pub(crate) failures: u64,
    /// When those are tried again, in seconds since 1970.
    pub(crate) retries: BTreeMap<Name, u64>,
}

impl Numbers {
    /// The numbers of all pools that have a keeper.
    pub(crate) fn all(&self) -> BTreeMap<Name, PoolNumbers> {
        lock(&self.pools).iter().map(|(name, kept)| (name.clone(), kept.numbers.clone())).collect()
    }

    /// Applies `change` to the numbers of a pool, for the keeper that it has had since this round. Whether it has it
    /// still.
    fn of(&self, name: &Name, since: u64, change: impl FnOnce(&mut PoolNumbers)) -> bool {
        let mut pools = lock(&self.pools);
        let kept = pools.get_mut(name).filter(|kept| kept.since == since);
        kept.map(|kept| change(&mut kept.numbers)).is_some()
    }
}

impl ServedVolumes {
    /// Lets each pool of the configuration have a keeper, and the keepers look.
    pub(crate) fn keep_pools(&self) {
        let look = self.look();
        let since = {
            let mut round = lock(&self.numbers.round.0);
            *round += 1;
            *round
        };
        let mut pools = lock(&self.numbers.pools);
        pools.retain(|name, _| look.pools.iter().any(|pool| pool.name == *name));
        for pool in look.pools.iter() {
            if pools.contains_key(&pool.name) {
                continue;
            }
            let (volumes, name) = (self.clone(), pool.name.clone());
            let keeper = thread::Builder::new().name("lunette-pool".into());
            match keeper.spawn(move || volumes.keep_pool(&name, since)) {
                Ok(_) => drop(pools.insert(pool.name.clone(), Kept { since, numbers: PoolNumbers::default() })),
                Err(error) => tracing::error!(pool = %pool.name, %error, "no thread takes its snapshots"),
            }
        }
        drop(pools);
        self.numbers.round.1.notify_all();
    }

    /// Keeps a pool until the configuration is without it.
    fn keep_pool(&self, name: &Name, since: u64) {
        let mut was_up = true;
        loop {
            let round = *lock(&self.numbers.round.0);
            let look = self.look();
            let Some(pool) = look.pools.iter().find(|pool| pool.name == *name) else { return };
            let mut numbers = PoolNumbers::default();
            if !self.numbers.of(name, since, |known| numbers = known.clone()) {
                return;
            }
            let looked = self.look_at(pool, &mut numbers);
            numbers.is_up = looked.is_ok();
            if let (Err(why), true) = (looked, std::mem::replace(&mut was_up, numbers.is_up)) {
                tracing::error!(pool = %name, "the pool cannot be used: {why}");
            }
            self.numbers.of(name, since, |known| *known = numbers);
            let (rounds, changed) = &self.numbers.round;
            // It wakes earlier when the configuration has changed.
            drop(changed.wait_timeout_while(lock(rounds), INTERVAL, |now| *now == round));
        }
    }

    fn look_at(&self, entry: &PoolEntry, numbers: &mut PoolNumbers) -> Result<(), String> {
        let pool = self.pool(entry.name.as_str()).map_err(|problem| problem.detail)?;
        for schedule in &entry.schedules {
            self.run(entry, &pool, schedule, numbers);
        }
        if entry.low_space.is_some() {
            for unit in self.look().units_of_pool(&entry.name) {
                unit.refresh_space();
            }
        }
        let (volumes, _) = pool.volumes().map_err(|error| error.to_string())?;
        self.tend_takeovers(entry, &*pool, &volumes);
        self.settle_fillings(entry, &*pool, &volumes);
        read(&*pool, &volumes, numbers).map_err(|error| error.to_string())
    }

    /// Ends the fillings that a server has not ended because it died.
    fn settle_fillings(&self, entry: &PoolEntry, pool: &dyn Pool, volumes: &[Volume]) {
        for volume in volumes.iter().filter(|volume| is_unfinished(&volume.labels)) {
            let at = At { pool: entry.name.clone(), volume: volume.name.clone() };
            // One that is being changed now is settled by whoever does that, or the next time.
            let settled = self.leave(&at).and_then(|_leaving| Self::settled(pool, &at));
            if let Err(why) = settled {
                tracing::debug!(volume = %at, "it stays unfinished: {why}");
            }
        }
    }

    /// Takes the snapshot of a schedule if one is due, and removes those that it does not keep.
    fn run(&self, entry: &PoolEntry, pool: &Arc<dyn Pool>, schedule: &ScheduleEntry, numbers: &mut PoolNumbers) {
        let (pool_name, name) = (&entry.name, &schedule.name);
        let taken = self.due_now(entry, &**pool, schedule, numbers);
        match taken {
            Ok(Some(0)) => tracing::warn!(pool = %pool_name, schedule = %name, "the schedule is for no volume"),
            Ok(Some(count)) => {
                tracing::info!(pool = %pool_name, schedule = %name, count, "snapshots taken by schedule");
            }
            Ok(None) => return,
            Err(why) => {
                numbers.failures += 1;
                numbers.retries.insert(name.clone(), now() + RETRY_SECS);
                tracing::error!(pool = %pool_name, schedule = %name, "no snapshots by schedule: {why}");
            }
        }
        if let Err(error) = remove_old(&**pool, schedule, |at, snapshot| {
            self.remove_snapshot_of(&At { pool: pool_name.clone(), volume: at.clone() }, snapshot)
        }) {
            tracing::warn!(pool = %pool_name, schedule = %name, "old snapshots stay: {error}");
        }
    }

    /// Takes the snapshots that are due. Gives of how many volumes; `None` when none is due.
    fn due_now(
        &self,
        entry: &PoolEntry,
        pool: &dyn Pool,
        schedule: &ScheduleEntry,
        numbers: &mut PoolNumbers,
    ) -> Result<Option<usize>, String> {
        let last = match numbers.taken.get(&schedule.name) {
            Some(last) => Some(*last),
            None => last_taken(pool, schedule).map_err(|error| error.to_string())?,
        };
        if let Some(last) = last {
            numbers.taken.insert(schedule.name.clone(), last);
        }
        let waits = numbers.retries.get(&schedule.name).is_some_and(|again| now() < *again);
        let Some(moment) = due(schedule.every.0, last, now()).filter(|_| !waits) else { return Ok(None) };
        let (volumes, _) = pool.volumes().map_err(|error| error.to_string())?;
        let chosen =
            volumes.into_iter().filter(|volume| check_finished(volume).is_ok() && schedule.is_for(&volume.name));
        let chosen: Vec<_> = chosen.map(|volume| volume.name).collect();
        self.take_all(entry, pool, schedule, moment, &chosen)?;
        numbers.taken.insert(schedule.name.clone(), moment);
        numbers.retries.remove(&schedule.name);
        Ok(Some(chosen.len()))
    }

    /// Takes the snapshots of a moment, except those that an earlier try has taken. A volume that fails keeps no other
    /// from its snapshot, unless all are taken together.
    fn take_all(
        &self,
        entry: &PoolEntry,
        pool: &dyn Pool,
        schedule: &ScheduleEntry,
        moment: u64,
        volumes: &[Name],
    ) -> Result<(), String> {
        let name = name_of(&schedule.name, moment);
        let labels = Labels::from([(SCHEDULE.into(), schedule.name.to_string()), (MOMENT.into(), moment.to_string())]);
        let mut missing = Vec::new();
        for volume in volumes {
            let snapshots = pool.snapshots(volume).map_err(|error| error.to_string())?;
            if !snapshots.iter().any(|snapshot| snapshot.name == name) {
                missing.push(At { pool: entry.name.clone(), volume: volume.clone() });
            }
        }
        let groups: Vec<&[At]> =
            if schedule.together && !missing.is_empty() { vec![&missing] } else { missing.chunks(1).collect() };
        let failures = groups.into_iter().filter_map(|group| self.take(group, &name, &labels).err());
        let failures: Vec<String> = failures.map(|problem| problem.detail).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }
}

/// The moment of the last snapshot of a schedule.
fn last_taken(pool: &dyn Pool, schedule: &ScheduleEntry) -> Result<Option<u64>, PoolError> {
    let mut last = None;
    for (_, snapshots) in snapshots_of(pool, schedule)? {
        last = last.max(snapshots.iter().map(|(moment, _)| *moment).max());
    }
    Ok(last)
}

/// A snapshot by schedule: its moment and its name.
type Taken = (u64, Name);

/// The snapshots of a schedule, by volume.
fn snapshots_of(pool: &dyn Pool, schedule: &ScheduleEntry) -> Result<Vec<(Name, Vec<Taken>)>, PoolError> {
    let moment = |snapshot: &Snapshot| {
        let is_own = snapshot.labels.get(SCHEDULE).is_some_and(|name| name == schedule.name.as_str());
        is_own.then(|| snapshot.labels.get(MOMENT)?.parse().ok()).flatten()
    };
    let (volumes, _) = pool.volumes()?;
    let of = |name: Name| {
        let all = pool.snapshots(&name)?;
        Ok((name, all.into_iter().filter_map(|snapshot| Some((moment(&snapshot)?, snapshot.name))).collect()))
    };
    volumes.into_iter().map(|volume| of(volume.name)).collect()
}

/// Removes the snapshots that a schedule does not keep. One that cannot go holds up no other.
fn remove_old(
    pool: &dyn Pool,
    schedule: &ScheduleEntry,
    mut remove: impl FnMut(&Name, &Name) -> Result<(), lunette_api::Problem>,
) -> Result<(), String> {
    let mut outcome = Ok(());
    for (volume, snapshots) in snapshots_of(pool, schedule).map_err(|error| error.to_string())? {
        let moments: Vec<u64> = snapshots.iter().map(|(moment, _)| *moment).collect();
        for index in schedule.keep.without(&moments) {
            if let Err(problem) = remove(&volume, &snapshots[index].1) {
                outcome = Err(problem.detail);
            }
        }
    }
    outcome
}

fn read(pool: &dyn Pool, volumes: &[Volume], numbers: &mut PoolNumbers) -> Result<(), PoolError> {
    let lens = || volumes.iter().filter(|volume| is_disk(volume)).map(|volume| volume.len_bytes);
    numbers.space = pool.space()?;
    numbers.volumes = lens().count() as u64;
    numbers.committed_bytes = lens().fold(0, u64::saturating_add);
    Ok(())
}

/// The name of the snapshots of a schedule at a moment: `NAME-20261129T180000Z`.
fn name_of(schedule: &Name, moment: u64) -> Name {
    let time = i64::try_from(moment).ok().and_then(|second| OffsetDateTime::from_unix_timestamp(second).ok());
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let ((year, month, day), (hour, minute, second)) = (time.to_calendar_date(), time.to_hms());
    let month = u8::from(month);
    let text = format!("{schedule}-{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z");
    text.parse().expect("a name of 40 letters leaves room for a time")
}

/// The present time, in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_by_schedule_is_named_after_its_moment() {
        let longest: Name = "s".repeat(40).parse().unwrap();
        assert_eq!(name_of(&"auto".parse().unwrap(), 1_796_000_400).as_str(), "auto-20261130T010000Z");
        assert!(name_of(&longest, u64::MAX).as_str().ends_with("-19700101T000000Z"));
    }
}
