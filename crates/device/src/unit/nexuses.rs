//! Who hears what happens to a logical unit: the nexuses that see it, and those that are gone for now.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lunette_scsi::AdditionalSense;

use crate::limits::MAX_ABSENT_NEXUSES;
use crate::nexus::ItNexus;
use crate::unit::itl_nexus::Link;

/// The nexuses that a logical unit knows. One lock is over all of them, for a nexus may come or go on one thread while another
/// one tells of an event: the event comes before or after, and is heard by whoever must hear of it.
#[derive(Default)]
pub(crate) struct Audience(Mutex<Nexuses>);

#[derive(Default)]
struct Nexuses {
    present: Vec<Weak<Link>>,
    /// `I_T` nexuses that were lost when they had been told everything, and for which nothing has happened since. When such a
    /// one comes back, it has missed nothing but its tasks: it finds I_T NEXUS LOSS OCCURRED (SAM-5 6.3.4). To all others
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED says that everything may be different.
    ///
    /// The difference matters to an initiator that has written without flushing: a lost connection costs it nothing, a
    /// power-on may have cost it what was in the cache.
    absent: BTreeSet<Arc<ItNexus>>,
}

impl Nexuses {
    fn present(&self) -> impl Iterator<Item = Arc<Link>> {
        self.present.iter().filter_map(Weak::upgrade)
    }
}

impl Audience {
    /// A nexus sees the unit from now on, and finds the unit attention of one that is new to it.
    pub(crate) fn join(&self, link: &Arc<Link>) {
        let mut nexuses = self.lock();
        let comes_back = nexuses.absent.remove(&link.ports);
        let code = if comes_back { AdditionalSense::I_T_NEXUS_LOSS } else { AdditionalSense::POWER_ON_OR_RESET };
        link.attentions.raise(code);
        nexuses.present.retain(|known| known.strong_count() > 0);
        nexuses.present.push(Arc::downgrade(link));
    }

    /// A nexus does not see the unit any more. False when another connection of it does.
    pub(crate) fn leave(&self, gone: &Link) -> bool {
        let mut nexuses = self.lock();
        if nexuses.present().any(|link| link.nexus != gone.nexus && link.ports == gone.ports) {
            return false;
        }
        // The loss of the nexus says that, too.
        gone.attentions.clear(AdditionalSense::SOME_COMMANDS_CLEARED_BY_ISCSI_PROTOCOL_EVENT);
        // When there are too many, it is as if it had never been here.
        if gone.attentions.is_empty() && nexuses.absent.len() < MAX_ABSENT_NEXUSES {
            nexuses.absent.insert(Arc::clone(&gone.ports));
        }
        true
    }

    /// Something has happened that all nexuses must hear of: `tell` those that are present.
    pub(crate) fn tell_all(&self, tell: impl FnMut(Arc<Link>)) {
        let mut nexuses = self.lock();
        nexuses.absent.clear();
        nexuses.present().for_each(tell);
    }

    /// Something has happened that this nexus must hear of: `tell` all its connections.
    pub(crate) fn tell(&self, nexus: &ItNexus, tell: impl FnMut(Arc<Link>)) {
        let mut nexuses = self.lock();
        nexuses.absent.remove(nexus);
        nexuses.present().filter(|link| *link.ports == *nexus).for_each(tell);
    }

    /// Something has happened that nexuses which are absent cannot be told of; others are told in another way.
    pub(crate) fn forget_absent(&self) {
        self.lock().absent.clear();
    }

    /// Those that are present.
    pub(crate) fn present(&self) -> Vec<Arc<Link>> {
        self.lock().present().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Nexuses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
