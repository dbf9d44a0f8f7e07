//! Who hears what happens to a logical unit: the nexuses that see it, and those that are gone for now.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lunette_scsi::AdditionalSense;

use crate::limits::MAX_ABSENT_NEXUSES;
use crate::nexus::ItNexus;
use crate::unit::itl_nexus::ItlNexus;

/// The nexuses that a logical unit knows. One lock is over all of them, for a nexus may come or go on one thread while another
/// one tells of an event: the event comes before or after, and is heard by whoever must hear of it.
#[derive(Default)]
pub(crate) struct AttachedNexuses(Mutex<Nexuses>);

#[derive(Default)]
struct Nexuses {
    attached: Vec<Weak<ItlNexus>>,
    /// `I_T` nexuses that were lost when they had been told everything, and for which nothing has happened since. When such a
    /// one comes back, it has missed nothing but its tasks: it finds I_T NEXUS LOSS OCCURRED (SAM-5 6.3.4). To all others
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED says that everything may be different.
    ///
    /// The difference matters to an initiator that has written without flushing: a lost connection costs it nothing, a
    /// power-on may have cost it what was in the cache.
    lost: BTreeSet<Arc<ItNexus>>,
}

impl Nexuses {
    fn attached(&self) -> impl Iterator<Item = Arc<ItlNexus>> {
        self.attached.iter().filter_map(Weak::upgrade)
    }
}

impl AttachedNexuses {
    /// A nexus sees the unit from now on, and finds the unit attention of one that is new to it.
    pub(crate) fn attach(&self, itl: &Arc<ItlNexus>) {
        let mut nexuses = self.lock();
        let is_returning = nexuses.lost.remove(&itl.it_nexus);
        let code = if is_returning { AdditionalSense::I_T_NEXUS_LOSS } else { AdditionalSense::POWER_ON_OR_RESET };
        itl.unit_attentions.raise(code);
        nexuses.attached.retain(|known| known.strong_count() > 0);
        nexuses.attached.push(Arc::downgrade(itl));
    }

    /// A nexus does not see the unit any more. False when another connection of it does.
    pub(crate) fn detach(&self, gone: &ItlNexus) -> bool {
        let mut nexuses = self.lock();
        if nexuses.attached().any(|itl| itl.nexus != gone.nexus && itl.it_nexus == gone.it_nexus) {
            return false;
        }
        // The loss of the nexus says that, too.
        gone.unit_attentions.clear(AdditionalSense::SOME_COMMANDS_CLEARED_BY_ISCSI_PROTOCOL_EVENT);
        // When there are too many, it is as if it had never been here.
        if gone.unit_attentions.is_empty() && nexuses.lost.len() < MAX_ABSENT_NEXUSES {
            nexuses.lost.insert(Arc::clone(&gone.it_nexus));
        }
        true
    }

    /// Something has happened that all nexuses must hear of: `tell` those that are present.
    pub(crate) fn notify_all(&self, notify: impl FnMut(Arc<ItlNexus>)) {
        let mut nexuses = self.lock();
        nexuses.lost.clear();
        nexuses.attached().for_each(notify);
    }

    /// Something has happened that this nexus must hear of: `tell` all its connections.
    pub(crate) fn notify(&self, nexus: &ItNexus, notify: impl FnMut(Arc<ItlNexus>)) {
        let mut nexuses = self.lock();
        nexuses.lost.remove(nexus);
        nexuses.attached().filter(|itl| *itl.it_nexus == *nexus).for_each(notify);
    }

    /// Something has happened that nexuses which are absent cannot be told of; others are told in another way.
    pub(crate) fn forget_lost(&self) {
        self.lock().lost.clear();
    }

    /// Those that are present.
    pub(crate) fn attached(&self) -> Vec<Arc<ItlNexus>> {
        self.lock().attached().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Nexuses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
