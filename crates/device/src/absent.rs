//! The nexuses that a logical unit knows and that are gone for now.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::MAX_ABSENT_NEXUSES;
use crate::nexus::ItNexus;

/// `I_T` nexuses that were lost when they had been told everything, and for which nothing has happened since. When such a one
/// comes back, it has missed nothing but its tasks: it finds I_T NEXUS LOSS OCCURRED (SAM-5 6.3.4). To all others POWER ON,
/// RESET, OR BUS DEVICE RESET OCCURRED says that everything may be different.
///
/// The difference matters to an initiator that has written without flushing: a lost connection costs it nothing, a power-on
/// may have cost it what was in the cache.
#[derive(Debug, Default)]
pub(crate) struct Absent(Mutex<BTreeSet<Arc<ItNexus>>>);

impl Absent {
    /// A nexus is lost that has nothing more to hear. When there are too many it is as if it had never been here.
    pub(crate) fn add(&self, nexus: &Arc<ItNexus>) {
        let mut known = self.lock();
        if known.len() < MAX_ABSENT_NEXUSES {
            known.insert(Arc::clone(nexus));
        }
    }

    /// A nexus begins. Whether it only comes back.
    pub(crate) fn take(&self, nexus: &ItNexus) -> bool {
        self.lock().remove(nexus)
    }

    /// Something has happened that all nexuses must hear of, and these cannot.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Arc<ItNexus>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
