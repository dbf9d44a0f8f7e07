//! `I_T` nexuses: one initiator port talking to one target port.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use lunette_scsi::Lun;

use crate::attention::Attentions;
use crate::copies::Copies;
use crate::port_groups::access::{Access, AccessWord};
use crate::target_device::TargetDevice;
use crate::unit::LogicalUnit;

/// The ports of a nexus, by the names that SCSI knows them under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NexusName {
    /// Initiator port: `iqn...,i,0x<ISID in hex>`.
    pub initiator: String,
    /// Target port: `iqn...,t,0x<portal group tag in hex>`.
    pub target_port: String,
    /// RELATIVE TARGET PORT IDENTIFIER, from 1.
    pub relative_port: u16,
}

/// A target port by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TargetPort {
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub(crate) relative: u16,
    /// As [`NexusName::target_port`] has it.
    pub(crate) name: Arc<str>,
}

/// An `I_T` nexus by the names of its ports: what reservations belong to. It stays the same when the initiator comes back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ItNexus {
    /// The initiator port, in lower case.
    pub(crate) initiator: Arc<str>,
    pub(crate) port: TargetPort,
}

impl ItNexus {
    fn new(name: &NexusName) -> Self {
        let port = TargetPort { relative: name.relative_port, name: name.target_port.as_str().into() };
        Self { initiator: name.initiator.to_lowercase().into(), port }
    }
}

/// Tells nexuses apart for as long as the process lives; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NexusId(u64);

impl NexusId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

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

/// One nexus on one logical unit: an `I_T_L` nexus.
pub(crate) struct Link {
    pub(crate) nexus: NexusId,
    pub(crate) ports: Arc<ItNexus>,
    pub(crate) lun: Lun,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) attentions: Attentions,
    /// How the port of the nexus reaches the unit.
    pub(crate) access: AccessWord,
    /// PREVENT of PREVENT ALLOW MEDIUM REMOVAL; ends with the nexus.
    pub(crate) prevents_removal: AtomicBool,
    /// Copies that were asked for here.
    pub(crate) copies: Copies,
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
