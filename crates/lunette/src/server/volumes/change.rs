//! Volumes that come, change and go.

use lunette_api::Problem;
use lunette_api::volumes::{NewVolume, VolumeChange};
use lunette_pools::{Name, NewVolume as Wanted, Origin, Pool, PoolError};
use lunette_store::Store;
use lunette_target::Growth;

use super::fill::check_is_no_base;
use super::snapshot::flush_encrypted;
use super::{At, Look, ServedVolumes, check_none, mark, name, problem};
use crate::disks::volume::takeover::BLOCK_BYTES;

impl ServedVolumes {
    pub(super) fn create_volume(&self, at: &At, new: NewVolume) -> Result<(), Problem> {
        let pool = self.pool(at.pool.as_str())?;
        let refused = |error: PoolError| problem(&error);
        let origin = new.clone_of.as_deref().map(origin).transpose()?;
        if let Some(source) = &new.source {
            if origin.is_some() {
                return Err(Problem::invalid("write clone_of or source, not both"));
            }
            return self.take_over(at, source, &new);
        }
        let wanted = Wanted {
            len_bytes: new.size_bytes.unwrap_or(0),
            is_full: new.full,
            is_filling: false,
            serial: match new.serial {
                Some(serial) => serial,
                None => drawn_serial()?,
            },
            labels: mark::without(new.labels),
        };
        match (origin, new.size_bytes) {
            (None, None) => {
                Err(Problem::invalid("write size_bytes, clone_of for a clone, or source to take a disk over"))
            }
            (None, Some(_)) => pool.create(&at.volume, &wanted).map(drop).map_err(refused),
            (Some(origin), size) => self.clone_volume(&*pool, at, &origin, &wanted, size),
        }
    }

    /// Clones a volume or snapshot. A clone that cannot have the length that is wanted goes again.
    pub(super) fn clone_volume(
        &self,
        pool: &dyn Pool,
        at: &At,
        origin: &Origin,
        wanted: &Wanted,
        len_bytes: Option<u64>,
    ) -> Result<(), Problem> {
        let _leaving = self.leave(at)?;
        if origin.snapshot.is_none() {
            let live = At { pool: at.pool.clone(), volume: origin.volume.clone() };
            self.check_finished(&live)?;
            flush_encrypted(&self.look().units(&live))?;
        }
        let blocks = pool.volume(&origin.volume).map_err(|error| problem(&error))?.labels.remove_entry(BLOCK_BYTES);
        let labels = blocks.into_iter().chain(wanted.labels.clone()).collect();
        let wanted = Wanted { labels, ..wanted.clone() };
        let volume = pool.clone_of(origin, &at.volume, &wanted).map_err(|error| problem(&error))?;
        let resized = match len_bytes {
            Some(wish) if wish < volume.len_bytes => {
                Err(Problem::invalid(format!("the origin has {} bytes; a clone is not shorter", volume.len_bytes)))
            }
            Some(wish) if wish > volume.len_bytes => pool.resize(&at.volume, wish).map_err(|error| problem(&error)),
            _ => return Ok(()),
        };
        if resized.is_err() {
            pool.remove(&at.volume).map_err(|error| problem(&error))?;
        }
        resized
    }

    /// Changes a volume. Gives its names, of which one may be another.
    pub(super) fn change_volume(&self, mut at: At, change: VolumeChange) -> Result<At, Problem> {
        let pool = self.pool(at.pool.as_str())?;
        if let Some(labels) = change.labels {
            // The marks among them are not changed meanwhile.
            let _leaving = self.leave(&at)?;
            let marked = pool.volume(&at.volume).map(|volume| mark::kept(&volume.labels, labels));
            marked.and_then(|labels| pool.set_labels(&at.volume, &labels)).map_err(|error| problem(&error))?;
        }
        if let Some(size) = change.size_bytes {
            self.resize(&*pool, &at, size, change.force)?;
        }
        if let Some(to) = change.name {
            let to = name(&to)?;
            let _leaving = self.leave(&at)?;
            self.check_finished(&at)?;
            let look = self.look();
            look.check_is_no_origin(&at, None)?;
            let _shut = look.shut(&at)?;
            pool.rename(&at.volume, &to).map_err(|error| problem(&error))?;
            at.volume = to;
        }
        Ok(at)
    }

    fn resize(&self, pool: &dyn Pool, at: &At, len_bytes: u64, force: bool) -> Result<(), Problem> {
        let _leaving = self.leave(at)?;
        self.check_finished(at)?;
        let refused = |error: PoolError| problem(&error);
        let now = pool.volume(&at.volume).map_err(refused)?.len_bytes;
        if len_bytes == now {
            return Ok(());
        }
        if len_bytes < now {
            if !force {
                let why = format!("volume {at} has {now} bytes, and would lose what is beyond {len_bytes}; force that");
                return Err(Problem::conflict(why));
            }
            let _shut = self.look().shut(at)?;
            return pool.resize(&at.volume, len_bytes).map_err(refused);
        }
        pool.resize(&at.volume, len_bytes).map_err(refused)?;
        self.serve_len(&self.look(), at, len_bytes)
    }

    /// Lets initiators know the length that the file of a volume has. An image in Ceph tells by itself.
    pub(super) fn serve_len(&self, look: &Look, at: &At, len_bytes: u64) -> Result<(), Problem> {
        let growth: Vec<_> = look
            .units(at)
            .into_iter()
            .filter_map(|disk| {
                let (unit, file) = (disk.unit.clone(), disk.store.plain_file()?.clone());
                if file.geometry().len_bytes == len_bytes {
                    return None;
                }
                Some(Growth { unit, grow: Box::new(move || file.serve_len(len_bytes)) })
            })
            .collect();
        if growth.is_empty() {
            return Ok(());
        }
        self.control.grow(growth).map_err(|error| Problem::unavailable(error.to_string()))
    }

    pub(super) fn remove_volume(&self, at: &At) -> Result<(), Problem> {
        let pool = self.pool(at.pool.as_str())?;
        let _leaving = self.leave(at)?;
        let look = self.look();
        look.check_is_no_origin(at, None)?;
        let _shut = look.shut(at)?;
        let map = self.stop_takeover(&*pool, at)?;
        pool.remove(&at.volume)
            .and_then(|()| map.map_or(Ok(()), |map| pool.remove(&map)))
            .map_err(|error| problem(&error))
    }

    pub(super) fn remove_snapshot_of(&self, at: &At, snapshot: &Name) -> Result<(), Problem> {
        let pool = self.pool(at.pool.as_str())?;
        let _leaving = self.leave(at)?;
        let look = self.look();
        check_none(&format!("{at}@{snapshot}"), &look.luns(at, Some(snapshot)))?;
        look.check_is_no_origin(at, Some(snapshot))?;
        check_is_no_base(&*pool, at, snapshot)?;
        pool.remove_snapshot(&at.volume, snapshot).map_err(|error| problem(&error))
    }
}

/// The source of a clone, as `VOLUME[@SNAPSHOT]`.
pub(super) fn origin(text: &str) -> Result<Origin, Problem> {
    let (volume, snapshot) = match text.split_once('@') {
        Some((volume, snapshot)) => (volume, Some(snapshot)),
        None => (text, None),
    };
    Ok(Origin { volume: name(volume)?, snapshot: snapshot.map(name).transpose()? })
}

/// A serial number that no other volume has.
pub(super) fn drawn_serial() -> Result<String, Problem> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::internal(format!("the system gives no random numbers: {error}")))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}
