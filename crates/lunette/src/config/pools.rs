//! Pools of volumes: their names, and where they are.

use lunette_pools::{Location, Name};
use serde::Deserialize;

use super::mistakes::Step;
use super::schedules::{MAX_SCHEDULES, ScheduleEntry};
use super::{Config, LunEntry};
use crate::disks::Place;
use crate::disks::volume::VolumeName;
use crate::size::Size;
use crate::text;

/// The most pools of a server.
const MAX_POOLS: usize = 64;

/// A pool of volumes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolEntry {
    #[serde(deserialize_with = "text::read")]
    pub(crate) name: Name,
    #[serde(deserialize_with = "text::read")]
    pub(crate) place: Location,
    /// The free space below which the pool is low.
    pub(crate) low_space: Option<Size>,
    pub(crate) quota: Option<QuotaEntry>,
    #[serde(default, rename = "schedule")]
    pub(crate) schedules: Vec<ScheduleEntry>,
}

/// The bounds of clients that have volumes of a pool and are no administrators.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaEntry {
    /// The lengths that the volumes of each client with the role `operate` may have together.
    pub(crate) operate: Size,
}

impl Config {
    /// Finds the blocks of all volumes, whenever pools or disks have changed.
    pub(super) fn find_volumes(&mut self) {
        let Self { pools, targets, .. } = self;
        for entry in targets.iter_mut().flat_map(|target| &mut target.luns) {
            if let Place::Volume(volume) = &mut entry.disk.place {
                let pool = pools.iter().find(|pool| pool.name == volume.pool);
                volume.find(pool.map(|pool| (&pool.place, pool.low_space)));
            }
        }
    }
}

/// The volume below a logical unit, if it is one.
pub(crate) fn volume(entry: &LunEntry) -> Option<&VolumeName> {
    if let Place::Volume(volume) = &entry.disk.place { Some(volume) } else { None }
}

/// All mistakes of the pools: the place in the list, the key, and the reason.
pub(super) fn mistakes(config: &Config) -> Vec<(Vec<Step>, String)> {
    let mut found = Vec::new();
    if config.pools.len() > MAX_POOLS {
        found.push((vec![Step::Key("pool")], format!("a server has {MAX_POOLS} pools at most")));
    }
    for (index, pool) in config.pools.iter().enumerate() {
        let at = |key| vec![Step::Key("pool"), Step::Index(index), Step::Key(key)];
        let before = &config.pools[..index];
        if before.iter().any(|other| other.name == pool.name) {
            found.push((at("name"), format!("pool {} is there twice", pool.name)));
        }
        if let Some(other) = before.iter().find(|other| other.place == pool.place) {
            found.push((at("place"), format!("pool {}: it is the place of pool {}, too", pool.name, other.name)));
        }
        if pool.schedules.len() > MAX_SCHEDULES {
            found.push((at("schedule"), format!("pool {}: a pool has {MAX_SCHEDULES} schedules at most", pool.name)));
        }
        for (number, schedule) in pool.schedules.iter().enumerate() {
            let at = |key| [at("schedule"), vec![Step::Index(number), Step::Key(key)]].concat();
            let of_schedule = |why: &str| format!("pool {}: schedule {}: {why}", pool.name, schedule.name);
            if pool.schedules[..number].iter().any(|other| other.name == schedule.name) {
                found.push((at("name"), of_schedule("the name is there twice")));
            }
            found.extend(schedule.mistake().map(|(key, why)| (at(key), of_schedule(&why))));
        }
    }
    found
}

/// Why a logical unit cannot be of a volume, whatever its pool holds.
pub(super) fn wrong_volume(entry: &LunEntry) -> Option<String> {
    let volume = volume(entry)?;
    (!volume.is_found()).then(|| format!("there is no [[pool]] {}", volume.pool))
}
