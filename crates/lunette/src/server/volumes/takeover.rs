//! Volumes that take another disk over. A thread for each waits until all is copied, and makes it a volume like others.

use std::thread;
use std::time::Duration;

use lunette_api::Problem;
use lunette_api::volumes::{NewVolume, TakingOver};
use lunette_pools::limits::BLOCK_BYTES;
use lunette_pools::{Labels, Location, Name, NewVolume as Wanted, Pool, PoolError, Volume};
use lunette_takeover::{MAX_LEN_BYTES, map_len};

use super::change::drawn_serial;
use super::{At, Listed, Look, ServedVolumes, mark, problem};
use crate::config::pools::PoolEntry;
use crate::disks::Place;
use crate::disks::volume::takeover::{self, TakeoverMark, Taking};
use crate::failure::Failure;

/// The interval at which a copy is looked at, and after which a source that cannot be opened is tried again.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time that threads have to end a copy when its volume is removed.
const STOP_LIMIT: Duration = Duration::from_secs(5);

impl ServedVolumes {
    /// Creates a volume that takes over the disk `text`.
    pub(super) fn take_over(&self, at: &At, text: &str, new: &NewVolume) -> Result<(), Problem> {
        let refused = |failure: Failure| Problem::invalid(failure.to_string());
        if new.full {
            let why = "a volume that takes a disk over gets its space as it is copied; leave out full";
            return Err(Problem::invalid(why));
        }
        let place = takeover::source(text).map_err(refused)?;
        let pool = self.pool(at.pool.as_str())?;
        let _leaving = self.leave(at)?;
        self.look().check_is_free(text, place.plain_identity().as_deref())?;
        let source = takeover::open_source(&place).map_err(|failure| Problem::conflict(failure.to_string()))?;
        let geometry = source.store.geometry();
        // The shortest block that an NBD server takes says nothing of the content.
        let block_bytes = if let Place::Nbd(_) = place { BLOCK_BYTES } else { geometry.granularity_bytes };
        if geometry.len_bytes > MAX_LEN_BYTES {
            let why = format!("{text} has {} bytes, and {MAX_LEN_BYTES} at most are taken over", geometry.len_bytes);
            return Err(Problem::invalid(why));
        }
        let wanted = wanted(new, geometry.len_bytes, block_bytes)?;
        let map: Name = format!("map-{}", drawn_serial()?).parse().expect("letters, digits and a dash");
        let identity = source.identity.clone();
        let mark = TakeoverMark { source: text.to_owned(), source_bytes: geometry.len_bytes, map, identity };
        make(&*pool, at, &mark, wanted).map_err(|error| problem(&error))?;
        let location = &self.look().pool(at.pool.as_str())?.place.clone();
        let taking = Taking { pool: &*pool, location, volume: &at.volume, mark: &mark };
        if let Err(failure) = taking.keep_open(Some(source)) {
            let _shut = self.look().shut(at)?;
            if takeover::close(location, &mark, STOP_LIMIT) {
                let removed = pool.remove(&at.volume).and_then(|()| pool.remove(&mark.map));
                removed.map_err(|error| problem(&error))?;
            }
            return Err(Problem::conflict(failure.to_string()));
        }
        self.keep_copying(at);
        Ok(())
    }

    /// Goes on with the volumes of a pool that take disks over, and removes maps that none of them needs.
    pub(super) fn tend_takeovers(&self, entry: &PoolEntry, pool: &dyn Pool, volumes: &[Volume]) {
        for volume in volumes {
            if takeover::takes_over(&volume.labels) {
                self.keep_copying(&At { pool: entry.name.clone(), volume: volume.name.clone() });
            } else if let Some(of) = takeover::map_of(&volume.labels).and_then(|of| of.parse::<Name>().ok()) {
                let of = At { pool: entry.name.clone(), volume: of };
                if let Err(why) = self.remove_orphan(pool, &volume.name, &of) {
                    tracing::debug!(map = %volume.name, volume = %of, "the map stays: {why}");
                }
            }
        }
    }

    /// Removes a map if the volume that it was made for needs it no more. A volume that cannot be read may need it.
    fn remove_orphan(&self, pool: &dyn Pool, map: &Name, of: &At) -> Result<(), String> {
        // No volume is being made for it.
        let _leaving = self.leave(of).map_err(|problem| problem.detail)?;
        let mark = match pool.volume(&of.volume) {
            Ok(volume) => TakeoverMark::of(&volume.labels),
            Err(PoolError::NoVolume(_)) => None,
            Err(error) => return Err(error.to_string()),
        };
        match mark {
            Some(mark) if mark.map == *map => Ok(()),
            _ => pool.remove(map).map_err(|error| error.to_string()),
        }
    }

    /// Lets a thread see a copy to its end, unless one does.
    fn keep_copying(&self, at: &At) {
        let Some(copying) = Listed::new(&self.copying, at) else { return };
        let volumes = self.clone();
        let run = move || volumes.copy(&copying.at);
        if let Err(error) = thread::Builder::new().name("lunette-takeover".into()).spawn(run) {
            tracing::error!(volume = %at, %error, "no thread ends the copy");
        }
    }

    /// Waits until a volume has all of the disk that it takes over, or is gone.
    fn copy(&self, at: &At) {
        let (mut last, mut known) = (None, None);
        loop {
            match self.copy_once(at, &mut known) {
                Ok(true) => break,
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
        if let Some((location, mark)) = known {
            takeover::close(&location, &mark, STOP_LIMIT);
        }
    }

    /// Waits for a while. Whether there is nothing more to do. `known` is what is open.
    fn copy_once(&self, at: &At, known: &mut Option<(Location, TakeoverMark)>) -> Result<bool, String> {
        let look = self.look();
        let Ok(entry) = look.pool(at.pool.as_str()) else { return Ok(true) };
        let pool = self.pool(at.pool.as_str()).map_err(|problem| problem.detail)?;
        let volume = match pool.volume(&at.volume) {
            Err(PoolError::NoVolume(_)) => return Ok(true),
            volume => volume.map_err(|error| error.to_string())?,
        };
        let mark = TakeoverMark::of(&volume.labels);
        // It may be another volume of the name.
        if known.as_ref().is_some_and(|(_, known)| Some(known) != mark.as_ref()) {
            return Ok(true);
        }
        let Some(mark) = mark else { return Ok(true) };
        *known = Some((entry.place.clone(), mark.clone()));
        let taking = Taking { pool: &*pool, location: &entry.place, volume: &at.volume, mark: &mark };
        let Some(taken) = taking.keep_open(None).map_err(|failure| failure.to_string())? else { return Ok(true) };
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
        let _ = takeover::close(&entry.place, mark, STOP_LIMIT);
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
        if !takeover::close(&self.look().pool(at.pool.as_str())?.place, &mark, STOP_LIMIT) {
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
    Ok(Wanted { len_bytes, is_full: false, is_filling: true, serial, labels })
}

/// Makes the volume and its map. A crash leaves both, or a map that goes when the pool is looked at.
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
pub(super) fn taking_over(entry: &PoolEntry, labels: &Labels) -> Option<TakingOver> {
    let mark = TakeoverMark::of(labels)?;
    let status = takeover::status(&entry.place, &mark);
    Some(TakingOver {
        source: mark.source,
        done_bytes: status.done_bytes,
        total_bytes: status.all_bytes,
        trouble: status.trouble,
    })
}
