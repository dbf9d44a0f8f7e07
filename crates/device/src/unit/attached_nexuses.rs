//! The nexuses that a logical unit raises unit attentions for: the attached ones, and those that were lost for the time
//! being.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lunette_scsi::AdditionalSense;

use crate::limits::MAX_LOST_NEXUSES;
use crate::nexus::ItNexus;
use crate::unit::itl_nexus::ItlNexus;

/// The nexuses of a logical unit. One lock covers them all, because nexuses are attached on one thread while another
/// raises a unit attention: the event comes either before or after, and no nexus misses it.
#[derive(Default)]
pub(crate) struct AttachedNexuses(Mutex<Nexuses>);

#[derive(Default)]
struct Nexuses {
    attached: Vec<Weak<ItlNexus>>,
    /// `I_T` nexuses that were lost with no unit attention pending, and for which no event has happened since. A
    /// returning nexus of these has missed nothing but its tasks, so it finds I_T NEXUS LOSS OCCURRED (SAM-5 6.3.4).
    /// Every other nexus finds POWER ON, RESET, OR BUS DEVICE RESET OCCURRED: anything may have changed.
    ///
    /// The difference matters to an initiator that wrote without flushing: a lost connection costs it nothing, a power
    /// on may have lost the cache.
    lost: BTreeSet<Arc<ItNexus>>,
}

impl Nexuses {
    fn attached(&self) -> impl Iterator<Item = Arc<ItlNexus>> {
        self.attached.iter().filter_map(Weak::upgrade)
    }
}

impl AttachedNexuses {
    /// Attaches a nexus to the unit, and raises the unit attention of a new or returning nexus.
    pub(crate) fn attach(&self, itl: &Arc<ItlNexus>) {
        let mut nexuses = self.lock();
        let is_returning = nexuses.lost.remove(&itl.it_nexus);
        let code = if is_returning { AdditionalSense::I_T_NEXUS_LOSS } else { AdditionalSense::POWER_ON_OR_RESET };
        itl.unit_attentions.raise(code);
        nexuses.attached.retain(|known| known.strong_count() > 0);
        nexuses.attached.push(Arc::downgrade(itl));
    }

    /// Detaches a nexus from the unit. False when the nexus is still attached by another connection.
    pub(crate) fn detach(&self, gone: &ItlNexus) -> bool {
        let mut nexuses = self.lock();
        if nexuses.attached().any(|itl| itl.nexus != gone.nexus && itl.it_nexus == gone.it_nexus) {
            return false;
        }
        // I_T NEXUS LOSS covers it.
        gone.unit_attentions.clear(AdditionalSense::SOME_COMMANDS_CLEARED_BY_ISCSI_PROTOCOL_EVENT);
        // Beyond the limit, a returning nexus counts as new.
        if gone.unit_attentions.is_empty() && nexuses.lost.len() < MAX_LOST_NEXUSES {
            nexuses.lost.insert(Arc::clone(&gone.it_nexus));
        }
        true
    }

    /// Calls `notify` for every attached nexus, about an event that concerns all of them.
    pub(crate) fn notify_all(&self, notify: impl FnMut(Arc<ItlNexus>)) {
        let mut nexuses = self.lock();
        nexuses.lost.clear();
        nexuses.attached().for_each(notify);
    }

    /// Calls `notify` for all connections of one nexus, about an event that concerns only that nexus.
    pub(crate) fn notify(&self, nexus: &ItNexus, notify: impl FnMut(Arc<ItlNexus>)) {
        let mut nexuses = self.lock();
        nexuses.lost.remove(nexus);
        nexuses.attached().filter(|itl| *itl.it_nexus == *nexus).for_each(notify);
    }

    /// Forgets the lost nexuses, after an event that attached nexuses are notified of in another way.
    pub(crate) fn forget_lost(&self) {
        self.lock().lost.clear();
    }

    /// The nexuses that were lost and have missed nothing since.
    pub(crate) fn lost(&self) -> Vec<Arc<ItNexus>> {
        self.lock().lost.iter().cloned().collect()
    }

    /// Remembers nexuses that a predecessor has lost.
    pub(crate) fn inherit_lost(&self, lost: Vec<Arc<ItNexus>>) {
        self.lock().lost.extend(lost.into_iter().take(MAX_LOST_NEXUSES));
    }

    /// The attached nexuses.
    pub(crate) fn attached(&self) -> Vec<Arc<ItlNexus>> {
        self.lock().attached().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Nexuses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
