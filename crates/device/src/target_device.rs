//! The SCSI target device: logical units by LUN, and the nexuses attached to them.

pub(crate) mod nexus;
mod port_groups;
pub(crate) mod rod_tokens;
mod sam5;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::{AdditionalSense, Lun};

use crate::nexus::{NexusId, NexusName, TargetPort};
use crate::port_groups::PortGroups;
use crate::unit::LogicalUnit;
pub use nexus::Nexus;
use nexus::NexusState;
pub use port_groups::PortGroupsChange;
use rod_tokens::RodTokens;
pub use sam5::PendingEvent;

/// A SCSI target device (SAM-5 4.6.5): in iSCSI, one target node.
pub struct TargetDevice {
    name: Arc<str>,
    inventory: Mutex<Inventory>,
    tokens: RodTokens,
}

/// The logical units, nexuses and ports of a device. Locked when units or nexuses come and go, not by commands.
#[derive(Default)]
struct Inventory {
    units: BTreeMap<Lun, Arc<LogicalUnit>>,
    nexuses: BTreeMap<NexusId, Arc<NexusState>>,
    /// The declared target ports, whether or not a nexus uses them.
    ports: BTreeSet<TargetPort>,
    port_groups: PortGroups,
}

/// The result of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetOutcome {
    /// The nexus sees no logical unit of this number.
    UnknownLun,
    /// The reset was carried out.
    Done,
}

/// The LUN already has a logical unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("LUN {0} is in use; take another number")]
pub struct LunInUse(pub Lun);

impl Inventory {
    fn known_ports(&self) -> BTreeSet<&TargetPort> {
        let of_nexuses = self.nexuses.values().map(|nexus| &nexus.it_nexus.port);
        self.ports.iter().chain(of_nexuses).collect()
    }

    fn assign(&mut self, lun: Lun, unit: Option<Arc<LogicalUnit>>) -> Option<Arc<LogicalUnit>> {
        let luns_change = self.units.contains_key(&lun) != unit.is_some();
        self.units.values().for_each(|unit| unit.nexuses().forget_lost());
        for nexus in self.nexuses.values() {
            if luns_change {
                let others = nexus.itl_nexuses().into_iter().filter(|itl| itl.lun != lun);
                others.for_each(|itl| itl.unit_attentions.raise(AdditionalSense::REPORTED_LUNS_DATA_CHANGED));
            }
            let access = self.port_groups.access(lun, nexus.name.relative_port);
            let itl = nexus.assign(lun, unit.as_ref().map(|unit| (unit, access)));
            if let Some(itl) = itl.filter(|_| !luns_change) {
                itl.unit_attentions.raise(AdditionalSense::INQUIRY_DATA_CHANGED);
            }
        }
        match unit {
            Some(unit) => self.units.insert(lun, unit),
            None => self.units.remove(&lun),
        }
    }
}

impl TargetDevice {
    /// A device without logical units. `name` is its SCSI device name: the iSCSI name of the target.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), inventory: Mutex::default(), tokens: RodTokens::default() }
    }

    /// The SCSI device name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes `unit` reachable as `lun`. Attached nexuses see it from now on and get a unit attention.
    ///
    /// # Errors
    ///
    /// When the LUN already has a logical unit.
    pub fn add(&self, lun: Lun, unit: Arc<LogicalUnit>) -> Result<(), LunInUse> {
        let mut inventory = self.inventory();
        if inventory.units.contains_key(&lun) {
            return Err(LunInUse(lun));
        }
        inventory.assign(lun, Some(unit));
        Ok(())
    }

    /// Replaces the logical unit at `lun` by `unit`, or removes it (`None`). Returns the previous unit.
    ///
    /// Attached nexuses get a unit attention: REPORTED LUNS DATA HAS CHANGED on their other logical units when a LUN
    /// appears or disappears, INQUIRY DATA HAS CHANGED when the unit at the LUN is replaced. Commands in progress keep
    /// the unit that they began with. To the reservations of the removed unit, the nexuses are lost.
    pub fn assign(&self, lun: Lun, unit: Option<Arc<LogicalUnit>>) -> Option<Arc<LogicalUnit>> {
        self.inventory().assign(lun, unit)
    }

    /// Declares the target ports of the device, by name and RELATIVE TARGET PORT IDENTIFIER. REPORT TARGET PORT GROUPS
    /// lists them, and registrations for all target ports include them. A port that is not declared counts only while a
    /// nexus uses it.
    pub fn set_ports<'a>(&self, ports: impl IntoIterator<Item = (&'a str, u16)>) {
        let port = |(name, relative): (&str, u16)| TargetPort { relative, name: name.into() };
        self.inventory().ports = ports.into_iter().map(port).collect();
    }

    /// The valid ROD tokens of the device.
    pub(crate) fn tokens(&self) -> &RodTokens {
        &self.tokens
    }

    pub(crate) fn ports(&self) -> Vec<TargetPort> {
        self.inventory().known_ports().into_iter().cloned().collect()
    }

    /// The logical units, in LUN order.
    pub fn units(&self) -> Vec<(Lun, Arc<LogicalUnit>)> {
        self.inventory().units.iter().map(|(lun, unit)| (*lun, Arc::clone(unit))).collect()
    }

    /// Attaches an `I_T` nexus. It finds the unit attention POWER ON, RESET, OR BUS DEVICE RESET OCCURRED on each
    /// logical unit.
    pub fn attach(self: &Arc<Self>, name: NexusName) -> Nexus {
        let state = Arc::new(NexusState::new(name, Arc::clone(&self.name)));
        let mut inventory = self.inventory();
        for (lun, unit) in &inventory.units {
            let access = inventory.port_groups.access(*lun, state.name.relative_port);
            state.assign(*lun, Some((unit, access)));
        }
        inventory.nexuses.insert(state.id, Arc::clone(&state));
        Nexus { state, device: Arc::clone(self) }
    }

    pub(crate) fn detach(&self, nexus: &NexusState) {
        // Under the lock, so that an event of the inventory finds the nexus either attached or lost, never in between.
        let mut inventory = self.inventory();
        inventory.nexuses.remove(&nexus.id);
        nexus.detach_all();
    }

    /// LOGICAL UNIT RESET (SAM-5 7.4). Mode parameters return to their saved values, PREVENT ALLOW MEDIUM REMOVAL is
    /// undone, and every nexus of every target device that shares the unit gets a unit attention, `by` included. The
    /// caller aborts the tasks.
    pub fn reset_unit(&self, lun: [u8; 8], by: &Nexus) -> ResetOutcome {
        match by.state.find(Lun::decode(lun)) {
            None => ResetOutcome::UnknownLun,
            Some(itl) => {
                itl.unit.reset();
                ResetOutcome::Done
            }
        }
    }

    /// TARGET RESET: [`Self::reset_unit`] for all logical units. The caller aborts the tasks.
    pub fn reset_target(&self) {
        for (_, unit) in self.units() {
            unit.reset();
        }
    }

    /// Raises SOME COMMANDS CLEARED BY ISCSI PROTOCOL EVENT on these logical units, after the transport has ended tasks
    /// of the nexus without a response (RFC 7143 section 11.14.5).
    pub fn commands_cleared(&self, nexus: &Nexus, luns: impl IntoIterator<Item = Lun>) {
        for itl in luns.into_iter().filter_map(|lun| nexus.state.find(lun)) {
            itl.unit_attentions.raise(AdditionalSense::SOME_COMMANDS_CLEARED_BY_ISCSI_PROTOCOL_EVENT);
        }
    }

    /// The logical units whose reads have [digests](crate::Response::digests) check what they read, for a minute from now: an initiator may
    /// have found one wrong. It asks again, and gets MEDIUM ERROR for the block that is damaged.
    pub fn doubt_digests(&self) {
        for unit in self.inventory().units.values() {
            if let Some(quanta) = unit.quanta() {
                quanta.doubt();
            }
        }
    }

    fn inventory(&self) -> MutexGuard<'_, Inventory> {
        self.inventory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TargetDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let luns: Vec<_> = self.inventory().units.keys().copied().collect();
        f.debug_struct("TargetDevice").field("name", &self.name).field("luns", &luns).finish_non_exhaustive()
    }
}
