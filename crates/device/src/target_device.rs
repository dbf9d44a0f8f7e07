//! The SCSI target device: logical units by LUN, and the nexuses attached to them.

mod handover;
mod lun_map;
pub(crate) mod nexus;
mod port_groups;
pub(crate) mod rod_tokens;
mod sam5;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::{AdditionalSense, Lun};

use crate::nexus::{NexusId, NexusName, TargetPort};
use crate::port_groups::PortGroups;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::{InitiatorBytes, LogicalUnit};
pub use lun_map::{LunMap, LunMapError, Place};
pub use nexus::Nexus;
use nexus::{NexusState, Seen};
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
    /// The views of the hosts; a host without one sees nothing.
    lun_maps: LunMaps,
    /// The declared target ports, whether or not a nexus uses them.
    ports: BTreeSet<TargetPort>,
    port_groups: PortGroups,
}

/// The views of the initiators of each host, by the host's name.
pub type LunMaps = BTreeMap<Arc<str>, LunMap>;

/// The result of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetOutcome {
    /// The nexus sees no logical unit of this number.
    UnknownLun,
    /// The nexus may only read the logical unit, and a reset changes what others see.
    NotAuthorized,
    /// The reset was carried out.
    Done,
}

/// A logical unit has come, gone, or taken the place of another.
#[derive(Default)]
pub struct Assigned {
    /// The unit that had the number before.
    pub previous: Option<Arc<LogicalUnit>>,
    /// The nexuses that see it.
    pub seen_by: Vec<NexusId>,
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

    /// Where a nexus sees the unit with that number, if it does.
    fn place(&self, nexus: &NexusState, lun: Lun) -> Option<Place> {
        match &nexus.host {
            None => Some(Place { lun, read_only: false }),
            Some(host) => self.lun_maps.get(host)?.place(lun),
        }
    }

    fn seen<'a>(&self, nexus: &NexusState, lun: Lun, unit: &'a Arc<LogicalUnit>, place: Place) -> Seen<'a> {
        let access = self.port_groups.access(lun, nexus.name.relative_port);
        Seen { lun, unit, access, read_only: place.read_only }
    }

    /// Lets a nexus see what its map says now. True when that is something else than before. A nexus whose host is gone
    /// keeps what it sees, until the transport has let its initiator log out.
    fn remap(&self, nexus: &NexusState) -> bool {
        if nexus.host.as_ref().is_none_or(|host| !self.lun_maps.contains_key(host)) {
            return false;
        }
        let before = nexus.itl_nexuses();
        let is_kept = |itl: &ItlNexus| self.place(nexus, itl.unit_lun).is_some_and(|place| place.lun == itl.lun);
        let (kept, gone): (Vec<_>, Vec<_>) = before.iter().partition(|itl| is_kept(itl));
        // First, because numbers may change hands.
        for itl in &gone {
            nexus.assign(itl.lun, None);
        }
        let come = self.show_more(nexus, &kept);
        let numbers = |list: &[Arc<ItlNexus>]| list.iter().map(|itl| itl.lun).collect::<BTreeSet<_>>();
        let (old_numbers, new_numbers) = (numbers(&before), numbers(&nexus.itl_nexuses()));
        for itl in come.iter().filter(|itl| old_numbers.contains(&itl.lun)) {
            itl.unit_attentions.raise(AdditionalSense::INQUIRY_DATA_CHANGED);
        }
        if old_numbers != new_numbers {
            for itl in &kept {
                itl.unit_attentions.raise(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
            }
        }
        let protect = |itl: &&Arc<ItlNexus>| {
            itl.set_read_only(self.place(nexus, itl.unit_lun).is_some_and(|place| place.read_only))
        };
        let protected = kept.into_iter().filter(protect).count();
        !gone.is_empty() || !come.is_empty() || protected > 0
    }

    /// Lets a nexus see the units of its map that it does not see yet.
    fn show_more(&self, nexus: &NexusState, known: &[&Arc<ItlNexus>]) -> Vec<Arc<ItlNexus>> {
        let is_new = |(lun, _): &(&Lun, _)| !known.iter().any(|itl| itl.unit_lun == **lun);
        let show = |(lun, unit): (&Lun, &Arc<LogicalUnit>)| {
            let place = self.place(nexus, *lun)?;
            nexus.assign(place.lun, Some(self.seen(nexus, *lun, unit, place)))
        };
        self.units.iter().filter(is_new).filter_map(show).collect()
    }

    fn assign(&mut self, lun: Lun, unit: Option<Arc<LogicalUnit>>) -> Assigned {
        let mut seen_by = Vec::new();
        let luns_change = self.units.contains_key(&lun) != unit.is_some();
        let was_ready = self.units.get(&lun).is_none_or(|unit| unit.is_ready());
        self.units.values().for_each(|unit| unit.nexuses().forget_lost());
        for nexus in self.nexuses.values() {
            let place = self.place(nexus, lun).filter(|_| unit.is_some());
            let Some(number) = place.map(|place| place.lun).or_else(|| nexus.place_of(lun)) else { continue };
            seen_by.push(nexus.id);
            if luns_change {
                let others = nexus.itl_nexuses().into_iter().filter(|itl| itl.lun != number);
                others.for_each(|itl| itl.unit_attentions.raise(AdditionalSense::REPORTED_LUNS_DATA_CHANGED));
            }
            let seen = unit.as_ref().zip(place).map(|(unit, place)| self.seen(nexus, lun, unit, place));
            let itl = nexus.assign(number, seen);
            if let Some(itl) = itl.filter(|_| !luns_change) {
                itl.unit_attentions.raise(AdditionalSense::INQUIRY_DATA_CHANGED);
                if !was_ready && itl.unit.is_ready() {
                    itl.unit_attentions.raise(AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
                }
            }
        }
        let previous = match unit {
            Some(unit) => self.units.insert(lun, unit),
            None => self.units.remove(&lun),
        };
        Assigned { previous, seen_by }
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

    /// Replaces the logical unit at `lun` by `unit`, or removes it (`None`).
    ///
    /// Attached nexuses get a unit attention: REPORTED LUNS DATA HAS CHANGED on their other logical units when a LUN
    /// appears or disappears, INQUIRY DATA HAS CHANGED when the unit at the LUN is replaced. Commands in progress keep
    /// the unit that they began with. To the reservations of the removed unit, the nexuses are lost.
    pub fn assign(&self, lun: Lun, unit: Option<Arc<LogicalUnit>>) -> Assigned {
        self.inventory().assign(lun, unit)
    }

    /// Gives each host the logical units that it sees. A host that is not named sees none; nexuses of it that are
    /// attached already keep theirs.
    ///
    /// Attached nexuses see it from now on: REPORTED LUNS DATA HAS CHANGED on what they keep when numbers come or go,
    /// and MODE PARAMETERS CHANGED where writes are refused, or are not any more. Commands in progress keep the unit
    /// that they began with. Returns the nexuses that see something else than before.
    pub fn set_lun_maps(&self, maps: LunMaps) -> Vec<NexusId> {
        let mut inventory = self.inventory();
        if inventory.lun_maps == maps {
            return Vec::new();
        }
        inventory.lun_maps = maps;
        inventory.units.values().for_each(|unit| unit.nexuses().forget_lost());
        let nexuses = inventory.nexuses.values().filter(|nexus| inventory.remap(nexus));
        nexuses.map(|nexus| nexus.id).collect()
    }

    /// Declares the target ports of the device, by name and RELATIVE TARGET PORT IDENTIFIER. REPORT TARGET PORT GROUPS
    /// lists them, and registrations for all target ports include them. A port that is not declared counts only while a
    /// nexus uses it.
    pub fn set_ports<'a>(&self, ports: impl IntoIterator<Item = (&'a str, u16)>) {
        let port = |(name, relative): (&str, u16)| TargetPort { relative, name: name.into() };
        self.inventory().ports = ports.into_iter().map(port).collect();
    }

    /// The ports that the target port groups name, also those of other servers.
    pub fn grouped_ports(&self) -> Vec<u16> {
        let inventory = self.inventory();
        inventory.port_groups.config().groups.iter().flat_map(|group| group.ports.iter().copied()).collect()
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

    /// The logical units that initiators of a host see, by the numbers that it uses.
    pub fn units_of(&self, host: &str) -> Vec<(Lun, Arc<LogicalUnit>)> {
        let inventory = self.inventory();
        let Some(map) = inventory.lun_maps.get(host) else { return Vec::new() };
        let place = |(lun, unit): (&Lun, &Arc<LogicalUnit>)| Some((map.place(*lun)?.lun, Arc::clone(unit)));
        inventory.units.iter().filter_map(place).collect()
    }

    /// The bytes that each initiator has read from and written to the logical units, by its name. The empty name has
    /// those that are gone and that the units do not remember one by one.
    pub fn initiator_bytes(&self) -> BTreeMap<Arc<str>, InitiatorBytes> {
        let mut sums = BTreeMap::new();
        for (_, unit) in self.units() {
            unit.counters().add_initiators(&mut sums);
        }
        sums
    }

    /// The number of attached nexuses: in iSCSI, of sessions.
    pub fn nexuses(&self) -> usize {
        self.inventory().nexuses.len()
    }

    /// Attaches an `I_T` nexus that sees all logical units. It finds the unit attention POWER ON, RESET, OR BUS DEVICE
    /// RESET OCCURRED on each of them.
    pub fn attach(self: &Arc<Self>, name: NexusName) -> Nexus {
        self.attach_host(name, None)
    }

    /// Attaches an `I_T` nexus of an initiator of this host, which sees what [the host's map](Self::set_lun_maps) says.
    pub fn attach_host(self: &Arc<Self>, name: NexusName, host: Option<Arc<str>>) -> Nexus {
        let state = Arc::new(NexusState::new(name, host, Arc::clone(&self.name)));
        let mut inventory = self.inventory();
        for (lun, unit) in &inventory.units {
            if let Some(place) = inventory.place(&state, *lun) {
                state.assign(place.lun, Some(inventory.seen(&state, *lun, unit, place)));
            }
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
            Some(itl) if itl.read_only.load(Ordering::Relaxed) => ResetOutcome::NotAuthorized,
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

    /// The logical units whose reads have [digests](crate::Response::digests) check what they read, for a minute from
    /// now: an initiator may have found one wrong. It asks again, and gets MEDIUM ERROR for the block that is damaged.
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
