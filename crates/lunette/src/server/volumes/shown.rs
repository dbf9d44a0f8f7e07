//! Pools, volumes and snapshots as documents.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use lunette_api::volumes::{Pool as ShownPool, Snapshot as ShownSnapshot, Volume as ShownVolume};
use lunette_api::{Caller, Problem};
use lunette_pools::{PoolError, PoolSpace, Snapshot, Volume};

use super::quota::Bound;
use super::takeover::taking_over;
use super::{At, Look, ServedVolumes, mark, problem};
use crate::config::pools::PoolEntry;
use crate::disks::volume::takeover::map_of;
use crate::disks::volume::{is_unfinished, open_pool};

impl ServedVolumes {
    pub(super) fn shown_pools(&self, caller: &Caller) -> Vec<ShownPool> {
        self.look().pools.iter().map(|entry| shown_pool(entry, caller)).collect()
    }

    /// The volumes of a pool, or of all that can be used.
    pub(super) fn shown_volumes(&self, pool: Option<&str>) -> Result<Vec<ShownVolume>, Problem> {
        let look = self.look();
        let mut shown = Vec::new();
        let wanted: Vec<&PoolEntry> = match pool {
            Some(name) => vec![look.pool(name)?],
            None => look.pools.iter().collect(),
        };
        for entry in wanted {
            match open_pool(&entry.place).and_then(|open| open.volumes()) {
                Ok((volumes, unread)) => {
                    for error in unread {
                        tracing::warn!(pool = %entry.name, "a volume is left out: {error}");
                    }
                    shown.extend(volumes.into_iter().filter(is_disk).map(|volume| look.shown(entry, volume)));
                }
                Err(error) if pool.is_some() => return Err(problem(&error)),
                // The list of pools tells why.
                Err(_) => {}
            }
        }
        Ok(shown)
    }

    pub(super) fn shown_volume(&self, at: &At) -> Result<ShownVolume, Problem> {
        let look = self.look();
        let entry = look.pool(at.pool.as_str())?;
        let read = || {
            let open = open_pool(&entry.place)?;
            Ok((open.volume(&at.volume)?, open.volume_space(&at.volume)?))
        };
        let (volume, space) = read().map_err(|error: PoolError| problem(&error))?;
        let shown = look.shown(entry, volume);
        Ok(ShownVolume { own_bytes: Some(space.own_bytes), shared_bytes: space.shared_bytes, ..shown })
    }

    pub(super) fn shown_snapshots(&self, at: &At) -> Result<Vec<ShownSnapshot>, Problem> {
        let (look, pool) = (self.look(), self.pool(at.pool.as_str())?);
        let snapshots = pool.snapshots(&at.volume).map_err(|error| problem(&error))?;
        Ok(snapshots.into_iter().map(|snapshot| look.shown_snapshot(at, snapshot)).collect())
    }
}

impl Look {
    fn shown(&self, entry: &PoolEntry, volume: Volume) -> ShownVolume {
        let taking_over = taking_over(entry, &volume.labels);
        let at = At { pool: entry.name.clone(), volume: volume.name };
        ShownVolume {
            luns: self.luns(&at, None),
            pool: at.pool.into(),
            name: at.volume.into(),
            size_bytes: volume.len_bytes,
            serial: volume.serial,
            created: seconds(volume.created),
            filling: volume.is_filling || is_unfinished(&volume.labels),
            taking_over,
            labels: mark::without(volume.labels),
            origin: volume.origin.map(|origin| origin.to_string()),
            own_bytes: None,
            shared_bytes: None,
        }
    }

    pub(super) fn shown_snapshot(&self, at: &At, snapshot: Snapshot) -> ShownSnapshot {
        ShownSnapshot {
            luns: self.luns(at, Some(&snapshot.name)),
            pool: at.pool.to_string(),
            volume: at.volume.to_string(),
            name: snapshot.name.into(),
            size_bytes: snapshot.len_bytes,
            created: seconds(snapshot.created),
            labels: snapshot.labels,
        }
    }
}

fn shown_pool(entry: &PoolEntry, caller: &Caller) -> ShownPool {
    let read = || {
        let open = open_pool(&entry.place)?;
        let (volumes, _) = open.volumes()?;
        Ok((volumes.into_iter().filter(is_disk).collect(), open.space()?))
    };
    let (volumes, space, trouble) = match read() {
        Ok((volumes, space)) => (volumes, space, None),
        Err(error) => (Vec::new(), PoolSpace::default(), Some(PoolError::to_string(&error))),
    };
    let bound = Bound::of(caller, entry).ok().flatten();
    ShownPool {
        quota_bytes: bound.as_ref().map(|bound| bound.quota_bytes),
        quota_used_bytes: bound.map(|bound| bound.used(&volumes, &BTreeMap::new())),
        name: entry.name.to_string(),
        place: entry.place.to_string(),
        is_low: trouble.is_none() && entry.low_space.is_some_and(|least| space.free_bytes < least.0),
        trouble,
        volumes: volumes.len() as u64,
        committed_bytes: volumes.iter().map(|volume| volume.len_bytes).fold(0, u64::saturating_add),
        total_bytes: space.total_bytes,
        used_bytes: space.used_bytes,
        free_bytes: space.free_bytes,
    }
}

/// Whether a volume is more than the map of another one.
pub(super) fn is_disk(volume: &Volume) -> bool {
    map_of(&volume.labels).is_none()
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
