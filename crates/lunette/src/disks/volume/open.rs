//! The pools that this process has open, and the volumes in them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_pools::{Location, Pool, PoolError};
use lunette_store::OpenOptions;

use super::super::kind::{Facts, Opened};
use super::gates::behind_gate;
use super::takeover::{self, TakeoverMark, Taking};
use super::{VolumeName, check_finished, uses};
use crate::failure::Failure;

/// A pool, or `None` before it is opened. It is locked while it is being opened, so it is opened once.
type Slot = Arc<Mutex<Option<Arc<dyn Pool>>>>;

/// The pools, open until the configuration is without them. One process may use a pool, through one value.
static POOLS: Mutex<Vec<(Location, Slot)>> = Mutex::new(Vec::new());

/// The pool of this location. The call waits for its medium when nothing has opened the pool yet.
pub(crate) fn open_pool(location: &Location) -> Result<Arc<dyn Pool>, PoolError> {
    let slot = slot(location);
    let mut pool = lock(&slot);
    match &*pool {
        Some(pool) => Ok(Arc::clone(pool)),
        None => location.open().inspect(|opened| *pool = Some(Arc::clone(opened))),
    }
}

/// Closes all pools but these, as soon as nothing uses them any more.
pub(crate) fn retain_pools<'a>(locations: impl Iterator<Item = &'a Location>) {
    let locations: Vec<_> = locations.collect();
    takeover::retain(&locations);
    lock(&POOLS).retain(|(location, _)| locations.contains(&location));
}

fn slot(location: &Location) -> Slot {
    let mut pools = lock(&POOLS);
    if let Some((_, slot)) = pools.iter().find(|(known, _)| known == location) {
        return Arc::clone(slot);
    }
    let slot = Slot::default();
    pools.push((location.clone(), Arc::clone(&slot)));
    slot
}

/// Opens a volume or snapshot. Its blocks are those of a file or an image, which does the rest.
pub(super) fn open(name: &VolumeName, options: &OpenOptions) -> Result<Opened, Failure> {
    let failed = |error: PoolError| Failure::disk(format!("{name}: {error}"));
    let Some(found) = &name.found else {
        return Err(Failure::Usage(format!("{name}: volumes are for the configuration of a server")));
    };
    let pool = open_pool(&found.pool).map_err(failed)?;
    let Some(opening) = uses::begin(&found.pool, &name.volume) else {
        return Err(Failure::disk(format!("{name}: it is being removed or renamed")));
    };
    let mut volume = pool.volume(&name.volume).map_err(failed)?;
    let mut taken = None;
    if let (None, Some(mark), false) = (&name.snapshot, TakeoverMark::of(&volume.labels), volume.is_filling) {
        let taking = Taking { pool: &*pool, location: &found.pool, volume: &name.volume, mark: &mark };
        taken = taking.serve(options)?;
        volume = pool.volume(&name.volume).map_err(failed)?;
    }
    let opened = match (taken, &name.snapshot) {
        (Some(taken), _) => taken,
        (None, None) => {
            check_finished(&volume).map_err(failed)?;
            behind_gate(&found.pool, &name.volume, found.blocks.open(options)?)
        }
        (None, Some(_)) => found.blocks.open(&OpenOptions { read_only: true, ..*options })?,
    };
    opening.end(&opened.store);
    let serial = Some(name.serial(&volume.serial));
    let facts = Facts { serial, least_block: takeover::block_bytes(&volume.labels), ..opened.facts.clone() };
    Ok(Opened { facts, ..opened })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
