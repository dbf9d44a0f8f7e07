//! When the configuration was read, for metrics.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The last attempt to read the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reload {
    pub(super) is_successful: bool,
    /// When one succeeded last.
    pub(super) last_success: SystemTime,
}

static LAST: Mutex<Option<Reload>> = Mutex::new(None);

/// The configuration was read at the start or again, and was applied or not.
pub(crate) fn note_reload(is_successful: bool) {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let now = SystemTime::now();
    let before = last.map_or(now, |reload| reload.last_success);
    *last = Some(Reload { is_successful, last_success: if is_successful { now } else { before } });
}

/// The last attempt, where there is a configuration file.
pub(super) fn last_reload() -> Option<Reload> {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_the_time_of_the_last_success() {
        note_reload(true);
        let first = last_reload().unwrap();
        note_reload(false);
        assert_eq!(last_reload(), Some(Reload { is_successful: false, ..first }));
        note_reload(true);
        assert!(last_reload().unwrap().last_success >= first.last_success);
    }
}
