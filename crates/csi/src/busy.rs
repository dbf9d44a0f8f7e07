//! Names that calls work on, so that no two of them change it at once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

/// The volumes and snapshots that are being changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Busy(Arc<Mutex<HashSet<String>>>);

/// A hold on one of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    all: Busy,
    name: String,
}

impl Busy {
    /// Holds `name`, or has the caller try again (CSI, "Concurrency").
    pub(crate) fn hold(&self, name: impl Into<String>) -> Result<Hold, Status> {
        let name = name.into();
        if self.names().insert(name.clone()) {
            return Ok(Hold { all: self.clone(), name });
        }
        Err(Status::aborted(format!("another call works on {name}; call again when that has ended")))
    }

    fn names(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.all.names().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_once_at_a_time() {
        let busy = Busy::default();
        let hold = busy.hold("tank/a").unwrap();
        assert_eq!(busy.hold("tank/a").unwrap_err().code(), tonic::Code::Aborted);
        busy.hold("tank/b").unwrap();
        drop(hold);
        busy.hold("tank/a").unwrap();
    }
}
