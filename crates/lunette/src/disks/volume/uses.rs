//! The volumes that this process has open, and those that may not be opened now.
//!
//! A volume is removed or renamed while nothing has it open, and is not opened meanwhile. The configuration tells that
//! too late: a disk is opened before the change that names it is made, and closed after the change that removes it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lunette_pools::{Location, Name};
use lunette_store::Store;

static USES: Mutex<Uses> = Mutex::new(Uses { open: Vec::new(), shut: Vec::new() });

struct Uses {
    open: Vec<(Volume, OpenStore)>,
    shut: Vec<Volume>,
}

/// A volume, wherever its pool is.
type Volume = (Location, Name);

/// The store of a volume that is open; `None` while it is being opened.
type OpenStore = Option<Weak<dyn Store>>;

/// Keeps a volume from being opened, until it is dropped.
pub(crate) struct Shut(Volume);

/// A volume that is being opened.
pub(super) struct Opening(Volume);

/// Keeps a volume from being opened. `None` when it is open, or others keep it.
pub(crate) fn shut(location: &Location, volume: &Name) -> Option<Shut> {
    let volume = (location.clone(), volume.clone());
    let mut uses = lock();
    uses.open.retain(|(_, store)| store.as_ref().is_none_or(|store| store.strong_count() > 0));
    if uses.open.iter().any(|(open, _)| *open == volume) || uses.shut.contains(&volume) {
        return None;
    }
    uses.shut.push(volume.clone());
    Some(Shut(volume))
}

impl Drop for Shut {
    fn drop(&mut self) {
        lock().shut.retain(|volume| *volume != self.0);
    }
}

/// Begins to open a volume. `None` when it is shut.
pub(super) fn begin(location: &Location, volume: &Name) -> Option<Opening> {
    let volume = (location.clone(), volume.clone());
    let mut uses = lock();
    if uses.shut.contains(&volume) {
        return None;
    }
    uses.open.push((volume.clone(), None));
    Some(Opening(volume))
}

impl Opening {
    /// Ends the opening: the volume is in use as long as `store` is held.
    pub(super) fn end(self, store: &Arc<dyn Store>) {
        lock().open.push((self.0.clone(), Some(Arc::downgrade(store))));
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut uses = lock();
        let opening = uses.open.iter().position(|(volume, store)| *volume == self.0 && store.is_none());
        opening.map(|index| uses.open.swap_remove(index));
    }
}

fn lock() -> MutexGuard<'static, Uses> {
    USES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use lunette_store::MemoryStore;

    use super::*;

    #[test]
    fn a_volume_is_shut_only_while_nothing_has_it_open() {
        let (location, volume): (Location, Name) = ("/uses".parse().unwrap(), "a".parse().unwrap());
        let opening = begin(&location, &volume).unwrap();
        assert!(shut(&location, &volume).is_none(), "it is being opened");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(4096).unwrap());
        opening.end(&store);
        assert!(shut(&location, &volume).is_none(), "it is open");
        drop(store);
        let kept = shut(&location, &volume).unwrap();
        assert!(begin(&location, &volume).is_none() && shut(&location, &volume).is_none());
        drop(kept);
        drop(begin(&location, &volume).unwrap());
        assert!(shut(&location, &volume).is_some(), "an opening that failed is no use");
    }
}
