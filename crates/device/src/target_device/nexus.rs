//! `I_T` nexuses: one initiator port talking to one target port.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use lunette_scsi::Lun;

use crate::nexus::unit_attentions::Attentions;
use crate::nexus::{ItNexus, NexusId, NexusName};
use crate::port_groups::access::{Access, AccessWord};
use crate::target_device::TargetDevice;
use crate::unit::LogicalUnit;
use crate::unit::copies::Copies;
use crate::unit::itl_nexus::Link;

/// An attached `I_T` nexus. Dropping it detaches it: an `I_T` nexus loss (SAM-5 6.3.4).
pub struct Nexus {
    pub(crate) state: Arc<NexusState>,
    pub(crate) device: Arc<TargetDevice>,
}

impl Nexus {
    /// What tells it from all others.
    pub fn id(&self) -> NexusId {
        self.state.id
    }

    /// Its transport carries the task management functions of SAM-5 too: REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS says so.
    pub fn has_sam5_functions(&self) {
        self.state.sam5_functions.store(true, Ordering::Release);
    }

    /// Whether it sees a logical unit of this number.
    pub fn sees(&self, lun: [u8; 8]) -> bool {
        self.state.find(Lun::decode(lun)).is_some()
    }

    /// The names of its ports.
    pub fn name(&self) -> &NexusName {
        &self.state.name
    }
}

impl Drop for Nexus {
    fn drop(&mut self) {
        self.device.detach(&self.state);
    }
}

impl fmt::Debug for Nexus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nexus").field("id", &self.state.id.0).field("name", &self.state.name).finish_non_exhaustive()
    }
}

/// What the tasks of a nexus share.
pub(crate) struct NexusState {
    pub(crate) id: NexusId,
    pub(crate) name: NexusName,
    /// SCSI device name of the target device.
    pub(crate) device_name: Arc<str>,
    /// What reservations know the nexus by.
    pub(crate) ports: Arc<ItNexus>,
    /// Whether its transport has the task management functions of SAM-5.
    pub(crate) sam5_functions: AtomicBool,
    /// The logical units that this nexus sees. Written when a unit comes or goes, read by every command; the lock is held for
    /// the look-up alone.
    links: RwLock<BTreeMap<Lun, Arc<Link>>>,
}

impl NexusState {
    pub(crate) fn new(name: NexusName, device_name: Arc<str>) -> Self {
        let ports = Arc::new(ItNexus::new(&name));
        let (sam5_functions, links) = (AtomicBool::new(false), RwLock::default());
        Self { id: NexusId::next(), name, device_name, ports, sam5_functions, links }
    }

    /// Lets the nexus see `unit` as `lun` in place of what it saw there, with the unit attention of a nexus that is new to
    /// it.
    pub(crate) fn assign(&self, lun: Lun, unit: Option<(&Arc<LogicalUnit>, Access)>) -> Option<Arc<Link>> {
        let new = unit.map(|(unit, access)| self.new_link(lun, unit, access));
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        let old = match new.clone() {
            Some(link) => links.insert(lun, link),
            None => links.remove(&lun),
        };
        drop(links);
        if let Some(old) = old {
            old.unit.lose(&old);
        }
        new
    }

    fn new_link(&self, lun: Lun, unit: &Arc<LogicalUnit>, access: Access) -> Arc<Link> {
        let (nexus, ports, unit) = (self.id, Arc::clone(&self.ports), Arc::clone(unit));
        let (access, prevents_removal) = (AccessWord::new(access), AtomicBool::new(false));
        let (attentions, copies) = (Attentions::default(), Copies::default());
        let link = Arc::new(Link { nexus, ports, lun, unit, attentions, access, prevents_removal, copies });
        link.unit.audience().join(&link);
        link
    }

    pub(crate) fn find(&self, lun: Lun) -> Option<Arc<Link>> {
        self.links.read().unwrap_or_else(PoisonError::into_inner).get(&lun).cloned()
    }

    /// All links, in the order of their LUNs.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.links.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Lets go of all logical units.
    pub(crate) fn unlink(&self) {
        let links = std::mem::take(&mut *self.links.write().unwrap_or_else(PoisonError::into_inner));
        for link in links.into_values() {
            link.unit.lose(&link);
        }
    }
}
