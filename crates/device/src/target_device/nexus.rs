//! Attached nexuses, and the logical units that each sees.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use lunette_scsi::Lun;

use crate::nexus::unit_attentions::UnitAttentions;
use crate::nexus::{ItNexus, NexusId, NexusName};
use crate::port_groups::access::{AtomicAccess, PortAccess};
use crate::target_device::TargetDevice;
use crate::unit::LogicalUnit;
use crate::unit::copy_records::CopyRecords;
use crate::unit::itl_nexus::ItlNexus;

/// An attached `I_T` nexus. Dropping it detaches it: an `I_T` nexus loss (SAM-5 6.3.4).
pub struct Nexus {
    pub(crate) state: Arc<NexusState>,
    pub(crate) device: Arc<TargetDevice>,
}

impl Nexus {
    /// The number of the nexus.
    pub fn id(&self) -> NexusId {
        self.state.id
    }

    /// Declares that the transport carries the task management functions that SAM-5 added, for REPORT SUPPORTED TASK
    /// MANAGEMENT FUNCTIONS.
    pub fn enable_sam5_functions(&self) {
        self.state.sam5_functions.store(true, Ordering::Release);
    }

    /// Whether the nexus sees a logical unit at this LUN.
    pub fn sees(&self, lun: [u8; 8]) -> bool {
        self.state.find(Lun::decode(lun)).is_some()
    }

    /// The names of the two ports.
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

/// The state that the tasks of a nexus share.
pub(crate) struct NexusState {
    pub(crate) id: NexusId,
    pub(crate) name: NexusName,
    /// The SCSI device name of the target device.
    pub(crate) device_name: Arc<str>,
    /// The names of the ports, to which reservations belong.
    pub(crate) it_nexus: Arc<ItNexus>,
    /// Whether the transport carries the task management functions that SAM-5 added.
    pub(crate) sam5_functions: AtomicBool,
    /// The logical units that the nexus sees. Written when a unit comes or goes, read by every command; the lock is
    /// held for the look-up alone.
    itl_nexuses: RwLock<BTreeMap<Lun, Arc<ItlNexus>>>,
}

impl NexusState {
    pub(crate) fn new(name: NexusName, device_name: Arc<str>) -> Self {
        let it_nexus = Arc::new(ItNexus::new(&name));
        let (sam5_functions, itl_nexuses) = (AtomicBool::new(false), RwLock::default());
        Self { id: NexusId::next(), name, device_name, it_nexus, sam5_functions, itl_nexuses }
    }

    /// Replaces the unit that the nexus sees at `lun`, with the unit attention of a new nexus.
    pub(crate) fn assign(&self, lun: Lun, unit: Option<(&Arc<LogicalUnit>, PortAccess)>) -> Option<Arc<ItlNexus>> {
        let new = unit.map(|(unit, access)| self.new_itl_nexus(lun, unit, access));
        let mut itl_nexuses = self.itl_nexuses.write().unwrap_or_else(PoisonError::into_inner);
        let old = match new.clone() {
            Some(itl) => itl_nexuses.insert(lun, itl),
            None => itl_nexuses.remove(&lun),
        };
        drop(itl_nexuses);
        if let Some(old) = old {
            old.unit.nexus_detached(&old);
        }
        new
    }

    fn new_itl_nexus(&self, lun: Lun, unit: &Arc<LogicalUnit>, access: PortAccess) -> Arc<ItlNexus> {
        let (nexus, it_nexus, unit) = (self.id, Arc::clone(&self.it_nexus), Arc::clone(unit));
        let (access, prevents_removal) = (AtomicAccess::new(access), AtomicBool::new(false));
        let (unit_attentions, copy_records) = (UnitAttentions::default(), CopyRecords::default());
        let itl =
            Arc::new(ItlNexus { nexus, it_nexus, lun, unit, unit_attentions, access, prevents_removal, copy_records });
        itl.unit.nexuses().attach(&itl);
        itl
    }

    pub(crate) fn find(&self, lun: Lun) -> Option<Arc<ItlNexus>> {
        self.itl_nexuses.read().unwrap_or_else(PoisonError::into_inner).get(&lun).cloned()
    }

    /// The `I_T_L` nexuses, in LUN order.
    pub(crate) fn itl_nexuses(&self) -> Vec<Arc<ItlNexus>> {
        self.itl_nexuses.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Detaches the nexus from all logical units.
    pub(crate) fn detach_all(&self) {
        let itl_nexuses = std::mem::take(&mut *self.itl_nexuses.write().unwrap_or_else(PoisonError::into_inner));
        for itl in itl_nexuses.into_values() {
            itl.unit.nexus_detached(&itl);
        }
    }
}
