//! Something that happens once, and that others wait for.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Set once; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    pub(crate) fn set(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for at most `limit`. Whether it is set.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let set = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(set, limit, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
