//! Named slots of the state store, each with the newest version of one value.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lunette_state::{StateError, StateStore};

/// A named slot of the state store, which holds the newest version of one value.
pub(crate) struct StateSlot {
    store: Arc<dyn StateStore>,
    name: String,
    /// The number of the last change, so that an older version is never saved over a newer one.
    last: AtomicU64,
    /// The newest version on stable storage. Locked while saving: one save at a time.
    saved: Mutex<u64>,
}

/// A change that must be on stable storage before it is acknowledged.
pub(crate) struct PendingSave {
    slot: Arc<StateSlot>,
    version: u64,
    bytes: Option<Vec<u8>>,
}

/// Opens a slot, and decodes the value that it holds. Without a store it returns neither.
pub(crate) fn open<T>(
    store: Option<&Arc<dyn StateStore>>,
    name: String,
    decode: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<(Option<Arc<StateSlot>>, Option<T>), StateError> {
    let Some(store) = store else { return Ok((None, None)) };
    let saved_value = match store.load(&name)? {
        Some(bytes) => Some(decode(&bytes).ok_or_else(|| StateError(format!("{name} has an unknown format")))?),
        None => None,
    };
    let (last, saved) = (AtomicU64::new(0), Mutex::new(0));
    Ok((Some(Arc::new(StateSlot { store: Arc::clone(store), name, last, saved })), saved_value))
}

impl StateSlot {
    /// Records a new version of the value; `None` removes it. The caller holds the lock of the state that it encodes,
    /// because the order of these calls is the order of the changes.
    pub(crate) fn update(self: &Arc<Self>, bytes: Option<Vec<u8>>) -> PendingSave {
        let version = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        PendingSave { slot: Arc::clone(self), version, bytes }
    }
}

impl PendingSave {
    /// Returns when this version, or a newer one, is on stable storage. It waits for the medium.
    pub(crate) fn run(self) -> Result<(), StateError> {
        let Self { slot, version, bytes } = self;
        let mut saved = slot.saved.lock().unwrap_or_else(PoisonError::into_inner);
        if *saved < version {
            slot.store.save(&slot.name, bytes.as_deref())?;
            *saved = version;
        }
        Ok(())
    }
}
