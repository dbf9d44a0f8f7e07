//! Volumes that take another disk over. A thread for each waits until all is copied, and makes it a volume like others.

use std::thread;
use std::time::Duration;

use lunette_api::Problem;
use lunette_api::volumes::{NewVolume, TakingOver};
use lunette_pools::limits::BLOCK_BYTES;
use lunette_pools::{Labels, Name, NewVolume as Wanted, Pool, PoolError, Volume};
use lunette_takeover::{MAX_LEN_BYTES, map_len};

use super::change::drawn_serial;
use super::{At, Look, ServedVolumes, lock, mark, problem};
use crate::config::pools::PoolEntry;
use crate::disks::volume::takeover::{self, TakeoverMark};
use crate::failure::Failure;

/// The interval at which a copy is looked at, and after which a source that cannot be opened is tried again.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time that threads have to end a copy when its volume is removed.
const STOP_LIMIT: Duration = Duration::from_secs(5);

impl ServedVolumes {
    /// Creates a volume that takes over the disk `text`.
    pub(super) fn take_over(&self, at: &At, text: &str, new: &NewVolume) -> Result<(), Problem> {
        let refused = |failure: Failure| Problem::invalid(failure.to_string());
        let place = takeover::source(text).map_err(refused)?;
        let pool = self.pool(at.pool.as_str())?;
        let _leaving = self.leave(at)?;
        self.look().check_is_free(text, place.plain_identity().as_deref())?;
        let source = takeover::open_source(&place).map_err(|failure| Problem::conflict(failure.to_string()))?;
        let geometry = source.store.geometry();
        if geometry.len_bytes > MAX_LEN_BYTES {
            let why = format!("{text} has {} bytes, and {MAX_LEN_BYTES} at most are taken over", geometry.len_bytes);
            return Err(Problem::invalid(why));
        }
        let wanted = wanted(new, geometry.len_bytes, geometry.granularity_bytes)?;
        let map: Name = format!("map-{}", drawn_serial()?).parse().expect("letters, digits and a dash");
        let mark = TakeoverMark { source: text.to_owned(), source_bytes: geometry.len_bytes, map };
        make(&*pool, at, &mark, wanted).map_err(|error| problem(&error))?;
        let location = &self.look().pool(at.pool.as_str())?.place.clone();
        if let Err(failure) = takeover::keep_open(&*pool, location, &at.volume, &mark, Some(source)) {
            let _ = takeover::forget(location, &at.volume, STOP_LIMIT);
            let removed = pool.remove(&at.volume).and_then(|()| pool.remove(&mark.map));
            removed.map_err(|error| problem(&error))?;
            return Err(Problem::conflict(failure.to_string()));
        }
        self.keep_copying(at);
        Ok(())
    }

    /// Goes on with the volumes of a pool that take disks over, and removes maps that none of them needs.
    pub(super) fn tend_takeovers(&self, entry: &PoolEntry, pool: &dyn Pool) -> Result<(), PoolError> {
        let (volumes, _) = pool.volumes()?;
        for volume in &volumes {
            if takeover::takes_over(&volume.labels) {
                self.keep_copying(&At { pool: entry.name.clone(), volume: volume.name.clone() });
            } else if is_orphan(volume, &volumes) {
                pool.remove(&volume.name)?;
            }
        }
        Ok(())
    }

    /// Lets a thread see a copy to its end, unless one does.
    fn keep_copying(&self, at: &At) {
        if !lock(&self.copying).insert(at.clone()) {
            return;
        }
        let (volumes, copied) = (self.clone(), at.clone());
        let run = move || {
            volumes.copy(&copied);
            lock(&volumes.copying).remove(&copied);
        };
        if let Err(error) = thread::Builder::new().name("lunette-takeover".into()).spawn(run) {
            tracing::error!(volume = %at, %error, "no thread ends the copy");
            lock(&self.copying).remove(at);
        }
    }

    /// Waits until a volume has all of the disk that it takes over, or is gone.
    fn copy(&self, at: &At) {
        let mut last = None;
        loop {
            match self.copy_once(at) {
                Ok(true) => return,
                Ok(false) => last = None,
                Err(why) if last.as_ref() == Some(&why) => {}
                Err(why) => {
                    tracing::warn!(volume = %at, "the copy waits: {why}");
                    last = Some(why);
                }
            }
            if last.is_some() {
                thread::sleep(INTERVAL);
            }
        }
    }

    /// Waits for a while. Whether there is nothing more to do.
    fn copy_once(&self, at: &At) -> Result<bool, String> {
        let look = self.look();
        let Ok(entry) = look.pool(at.pool.as_str()) else { return Ok(true) };
        let pool = self.pool(at.pool.as_str()).map_err(|problem| problem.detail)?;
        let volume = match pool.volume(&at.volume) {
            Err(PoolError::NoVolume(_)) => return Ok(true),
            volume => volume.map_err(|error| error.to_string())?,
        };
        let Some(mark) = TakeoverMark::of(&volume.labels) else { return Ok(true) };
        let open = takeover::keep_open(&*pool, &entry.place, &at.volume, &mark, None);
        let Some(taken) = open.map_err(|failure| failure.to_string())? else { return Ok(false) };
        taken.wait(INTERVAL);
        let status = taken.status();
        if !status.is_whole {
            return status.trouble.map_or(Ok(false), Err);
        }
        drop(taken);
        self.end_takeover(entry, &*pool, at, &mark).map(|()| true)
    }

    /// Makes a volume that has all of the other disk one like others.
    fn end_takeover(&self, entry: &PoolEntry, pool: &dyn Pool, at: &At, mark: &TakeoverMark) -> Result<(), String> {
        let _leaving = self.leave(at).map_err(|problem| problem.detail)?;
        let text = |error: PoolError| error.to_string();
        let labels = pool.volume(&at.volume).map_err(text)?.labels;
        pool.set_labels(&at.volume, &TakeoverMark::without(labels)).map_err(text)?;
        tracing::info!(volume = %at, source = mark.source, "it has all of the disk that it took over");
        let _ = takeover::forget(&entry.place, &at.volume, STOP_LIMIT);
        // A map that cannot go now is an orphan, which goes later.
        pool.remove(&mark.map).or_else(|error| {
            tracing::debug!(volume = %at, %error, "its map stays for now");
            Ok(())
        })
    }

    /// Ends the copy of a volume that is being removed. Gives the map that goes after it.
    pub(super) fn stop_takeover(&self, pool: &dyn Pool, at: &At) -> Result<Option<Name>, Problem> {
        let labels = pool.volume(&at.volume).map_err(|error| problem(&error))?.labels;
        if let Some(of) = takeover::map_of(&labels).and_then(|of| of.parse::<Name>().ok()) {
            let uses = pool.volume(&of).ok().and_then(|of| TakeoverMark::of(&of.labels));
            if uses.is_some_and(|mark| mark.map == at.volume) {
                return Err(Problem::in_use(format!("{at} tells what {of} has of the disk that it takes over")));
            }
        }
        let Some(mark) = TakeoverMark::of(&labels) else { return Ok(None) };
        if !takeover::forget(&self.look().pool(at.pool.as_str())?.place, &at.volume, STOP_LIMIT) {
            return Err(Problem::in_use(format!("a read of {} has not ended; try again in a moment", mark.source)));
        }
        Ok(Some(mark.map))
    }
}

/// The volume that is wanted for a disk of this length.
fn wanted(new: &NewVolume, source_bytes: u64, block_bytes: u32) -> Result<Wanted, Problem> {
    let least = source_bytes.next_multiple_of(BLOCK_BYTES.into());
    let len_bytes = new.size_bytes.unwrap_or(least);
    if len_bytes < least {
        return Err(Problem::invalid(format!("the source has {source_bytes} bytes; a volume over it is not shorter")));
    }
    let mut labels = mark::without(new.labels.clone());
    if block_bytes > BLOCK_BYTES {
        labels.entry(takeover::BLOCK_BYTES.into()).or_insert_with(|| block_bytes.to_string());
    }
    let serial = new.serial.clone().map_or_else(drawn_serial, Ok)?;
    Ok(Wanted { len_bytes, is_full: new.full, is_filling: true, serial, labels })
}

/// Makes the volume and its map. Neither is there after a crash, or both.
fn make(pool: &dyn Pool, at: &At, mark: &TakeoverMark, wanted: Wanted) -> Result<(), PoolError> {
    let map = Wanted {
        len_bytes: map_len(mark.source_bytes),
        is_full: false,
        is_filling: true,
        serial: mark.map.to_string(),
        labels: takeover::map_labels(&at.volume),
    };
    pool.create(&mark.map, &map)?;
    let volume = Wanted { labels: mark.among(wanted.labels), ..wanted };
    let made = pool.create(&at.volume, &volume).and_then(|_| {
        // A map without a volume is an orphan; a volume without a map would be lost.
        let filled = pool.filled(&mark.map).and_then(|()| pool.filled(&at.volume));
        filled.or_else(|error| pool.remove(&at.volume).and(Err(error)))
    });
    made.or_else(|error| pool.remove(&mark.map).and(Err(error)))
}

/// Whether a volume is the map of none that takes a disk over.
fn is_orphan(map: &Volume, all: &[Volume]) -> bool {
    let Some(of) = takeover::map_of(&map.labels) else { return false };
    let uses = |volume: &Volume| TakeoverMark::of(&volume.labels).is_some_and(|mark| mark.map == map.name);
    !map.is_filling && !all.iter().any(|volume| volume.name.as_str() == of && uses(volume))
}

impl Look {
    /// Refuses a disk that a LUN of this server may write to.
    fn check_is_free(&self, text: &str, identity: Option<&str>) -> Result<(), Problem> {
        for (target, served) in self.targets.iter() {
            for (number, disk) in &served.disks {
                let same = disk.entry.disk.place.plain_identity().is_some_and(|known| Some(&*known) == identity);
                if same && !disk.entry.read_only {
                    let lun = format!("targets/{target}/luns/{number}");
                    return Err(Problem::in_use(format!("{text} is served by {lun}; remove that first")));
                }
            }
        }
        Ok(())
    }
}

/// How far a volume is with the disk that it takes over, if it does.
pub(super) fn taking_over(entry: &PoolEntry, volume: &Name, labels: &Labels) -> Option<TakingOver> {
    let mark = TakeoverMark::of(labels)?;
    let status = takeover::status(&entry.place, volume, &mark);
    Some(TakingOver {
        source: mark.source,
        done_bytes: status.done_bytes,
        total_bytes: status.all_bytes,
        trouble: status.trouble,
    })
}
