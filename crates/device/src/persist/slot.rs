//! What a logical unit keeps on stable storage, one value by name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lunette_state::{StateError, StateStore};

/// Keeps the newest state of one thing.
pub(crate) struct StateSlot {
    store: Arc<dyn StateStore>,
    name: String,
    /// Counts the changes, so that an older state is never saved over a newer one.
    last: AtomicU64,
    /// The newest change that is on stable storage. Held while saving: one save at a time.
    saved: Mutex<u64>,
}

/// A change that has to be on stable storage before it is acknowledged.
pub(crate) struct PendingSave {
    slot: Arc<StateSlot>,
    version: u64,
    bytes: Option<Vec<u8>>,
}

/// A keeper, and what `decode` made of the bytes that it has kept. Without a store there is neither.
pub(crate) fn open<T>(
    store: Option<&Arc<dyn StateStore>>,
    name: String,
    decode: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<(Option<Arc<StateSlot>>, Option<T>), StateError> {
    let Some(store) = store else { return Ok((None, None)) };
    let kept = match store.load(&name)? {
        Some(bytes) => Some(decode(&bytes).ok_or_else(|| StateError(format!("{name} has an unknown format")))?),
        None => None,
    };
    let (last, saved) = (AtomicU64::new(0), Mutex::new(0));
    Ok((Some(Arc::new(StateSlot { store: Arc::clone(store), name, last, saved })), kept))
}

impl StateSlot {
    /// The state is `bytes` from now on; `None` when there is nothing to keep. To be called under the lock of that state, for
    /// the order of these calls is the order of the changes.
    pub(crate) fn update(self: &Arc<Self>, bytes: Option<Vec<u8>>) -> PendingSave {
        let version = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        PendingSave { slot: Arc::clone(self), version, bytes }
    }
}

impl PendingSave {
    /// Returns when this state, or a newer one, is on stable storage. Waits for the medium.
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
