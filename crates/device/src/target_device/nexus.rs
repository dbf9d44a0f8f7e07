//! Attached nexuses, and the logical units that each sees.

mod handover;

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

    /// The logical unit that the nexus sees at this LUN.
    pub fn unit(&self, lun: [u8; 8]) -> Option<Arc<LogicalUnit>> {
        Some(Arc::clone(&self.state.find(Lun::decode(lun))?.unit))
    }

    /// Whether the nexus may reset all logical units of its device: it sees all of them, and none is read-only for it.
    pub fn may_reset_target(&self) -> bool {
        let itl_nexuses = self.state.itl_nexuses();
        let may_reset =
            |lun: Lun| itl_nexuses.iter().any(|itl| itl.unit_lun == lun && !itl.read_only.load(Ordering::Relaxed));
        self.device.units().iter().all(|(lun, _)| may_reset(*lun))
    }

    /// The number under which the nexus sees the logical unit that has this number in the device; `None`: it does not
    /// see it.
    pub fn place_of(&self, unit_lun: Lun) -> Option<Lun> {
        self.state.place_of(unit_lun)
    }

    /// The smallest number under which the nexus sees a logical unit.
    pub fn first_lun(&self) -> Option<Lun> {
        self.state.itl_nexuses().first().map(|itl| itl.lun)
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

/// A logical unit, as a nexus sees it.
pub(crate) struct Seen<'a> {
    /// The number of the unit in the device.
    pub(crate) lun: Lun,
    pub(crate) unit: &'a Arc<LogicalUnit>,
    pub(crate) access: PortAccess,
    pub(crate) read_only: bool,
}

/// The state that the tasks of a nexus share.
pub(crate) struct NexusState {
    pub(crate) id: NexusId,
    pub(crate) name: NexusName,
    /// The host of the initiator, whose LUN map holds.
    pub(crate) host: Option<Arc<str>>,
    /// The SCSI device name of the target device.
    pub(crate) device_name: Arc<str>,
    /// The name of the initiator, without that of its port.
    initiator: Arc<str>,
    /// The names of the ports, to which reservations belong.
    pub(crate) it_nexus: Arc<ItNexus>,
    /// Whether the transport carries the task management functions that SAM-5 added.
    pub(crate) sam5_functions: AtomicBool,
    /// The logical units that the nexus sees. Written when a unit comes or goes, read by every command; the lock is
    /// held for the look-up alone.
    itl_nexuses: RwLock<BTreeMap<Lun, Arc<ItlNexus>>>,
}

impl NexusState {
    pub(crate) fn new(name: NexusName, host: Option<Arc<str>>, device_name: Arc<str>) -> Self {
        let it_nexus = Arc::new(ItNexus::new(&name));
        let initiator = lunette_scsi::persistent::initiator_name(&it_nexus.initiator).into();
        let (sam5_functions, itl_nexuses) = (AtomicBool::new(false), RwLock::default());
        Self { id: NexusId::next(), name, host, device_name, initiator, it_nexus, sam5_functions, itl_nexuses }
    }

    /// Replaces the unit that the nexus sees at `lun`, with the unit attention of a new nexus.
    pub(crate) fn assign(&self, lun: Lun, unit: Option<Seen<'_>>) -> Option<Arc<ItlNexus>> {
        let new = unit.map(|seen| self.new_itl_nexus(lun, &seen));
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

    fn new_itl_nexus(&self, lun: Lun, seen: &Seen<'_>) -> Arc<ItlNexus> {
        let itl = Arc::new(ItlNexus {
            nexus: self.id,
            it_nexus: Arc::clone(&self.it_nexus),
            lun,
            unit_lun: seen.lun,
            unit: Arc::clone(seen.unit),
            read_only: AtomicBool::new(seen.read_only),
            unit_attentions: UnitAttentions::default(),
            access: AtomicAccess::new(seen.access),
            prevents_removal: AtomicBool::new(false),
            copy_records: CopyRecords::default(),
            counters: seen.unit.counters().open(&self.initiator),
        });
        itl.unit.nexuses().attach(&itl);
        itl
    }

    pub(crate) fn find(&self, lun: Lun) -> Option<Arc<ItlNexus>> {
        self.itl_nexuses.read().unwrap_or_else(PoisonError::into_inner).get(&lun).cloned()
    }

    /// The number under which the nexus sees the unit that has this number in the device.
    pub(crate) fn place_of(&self, unit_lun: Lun) -> Option<Lun> {
        self.itl_nexuses().iter().find(|itl| itl.unit_lun == unit_lun).map(|itl| itl.lun)
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
