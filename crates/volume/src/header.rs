//! The header of an open volume, on the unit and in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_quanta::{Header, KeyRing};
use lunette_store::Store;

use crate::VolumeError;
use crate::find::{find, write_header};
use crate::unit::Unit;

/// The header as this client knows it. Changes take turns, because they write to the unit.
pub(crate) struct OpenHeader {
    here: Mutex<Header>,
    changing: Mutex<()>,
}

impl OpenHeader {
    pub(crate) fn new(header: Header) -> Self {
        Self { here: Mutex::new(header), changing: Mutex::new(()) }
    }

    /// The header as it is now.
    pub(crate) fn get(&self) -> Header {
        *lock(&self.here)
    }

    /// Changes the header, on the unit and here, unless the volume is read-only. What another client has written to it
    /// meanwhile counts. `keys` gives the keys that sign it, and `then` comes before the next change.
    ///
    /// # Errors
    ///
    /// [`VolumeError::OtherCipher`], [`VolumeError::OldKeys`], and failures to write the header, which stays then.
    pub(crate) fn change<T>(
        &self,
        unit: &Arc<dyn Store>,
        read_only: bool,
        keys: impl FnOnce() -> KeyRing,
        change: impl Fn(Header) -> Header,
        then: impl FnOnce(KeyRing) -> T,
    ) -> Result<T, VolumeError> {
        let _alone = lock(&self.changing);
        let (keys, here) = (keys(), self.get());
        if keys.cipher() != here.cipher {
            return Err(VolumeError::OtherCipher { keys: keys.cipher(), volume: here.cipher });
        }
        if keys.newest_epoch() < here.newest_epoch {
            return Err(VolumeError::OldKeys { keys: keys.newest_epoch(), volume: here.newest_epoch });
        }
        if !read_only && change(here) != here {
            let present = find(unit)?.authenticate(&keys)?;
            let mut changed = change(present);
            if changed != present {
                changed.generation += 1;
                write_header(&Unit::new(unit), &changed, &keys)?;
            }
            *lock(&self.here) = changed;
        }
        Ok(then(keys))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
