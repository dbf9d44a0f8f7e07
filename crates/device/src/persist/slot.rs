//! Named slots of the state store, each with one value.
//!
//! A change that must survive a restart is saved before it takes effect, so a command whose save fails changes nothing.
//! Its [`Turn`] lasts from the decision to the effect.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_state::{StateError, StateStore};

/// A named slot of the state store, which holds one value.
pub(crate) struct StateSlot {
    store: Arc<dyn StateStore>,
    name: String,
    /// Locked during a turn.
    turns: Mutex<()>,
}

/// The right to change the value of a slot. One holder at a time has it, and it waits for the medium.
pub(crate) struct Turn<'a> {
    slot: &'a StateSlot,
    _held: MutexGuard<'a, ()>,
}

/// A value to save, whose owner sees to the order of the changes.
pub(crate) struct PendingSave {
    pub(crate) slot: Arc<StateSlot>,
    pub(crate) bytes: Option<Vec<u8>>,
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
    Ok((Some(Arc::new(StateSlot { store: Arc::clone(store), name, turns: Mutex::default() })), saved_value))
}

impl StateSlot {
    /// Waits for the turns of other changes.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { slot: self, _held: self.turns.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Turn<'_> {
    /// Returns when the value is on stable storage; `None` removes it.
    pub(crate) fn save(&self, bytes: Option<&[u8]>) -> Result<(), StateError> {
        self.slot.store.save(&self.slot.name, bytes)
    }
}

impl PendingSave {
    /// Returns when the value is on stable storage.
    pub(crate) fn run(self) -> Result<(), StateError> {
        self.slot.turn().save(self.bytes.as_deref())
    }
}
