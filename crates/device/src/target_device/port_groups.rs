//! The target port groups of a target device: the state machine behind the lock of the inventory, and its unit
//! attentions.

use std::collections::BTreeSet;
use std::sync::Arc;

use lunette_scsi::port_groups::{AccessState, GroupDescriptor, Management, SetDescriptor};
use lunette_scsi::{AdditionalSense, Lun, SenseData};
use lunette_state::StateError;

use super::{Inventory, TargetDevice};
use crate::nexus::ItNexus;
use crate::persist::StateSlot;
use crate::port_groups::{PortGroups, PortGroupsConfig, PortGroupsError, SavedAccessStates};

/// A checked configuration of the target port groups of a device, ready to be applied.
pub struct PortGroupsChange {
    device: Arc<TargetDevice>,
    config: PortGroupsConfig,
    slot: Option<Arc<StateSlot>>,
}

impl PortGroupsChange {
    /// The device whose groups change.
    pub fn device(&self) -> &Arc<TargetDevice> {
        &self.device
    }

    /// Applies the configuration as an implicit change: nexuses get the unit attention ASYMMETRIC ACCESS STATE CHANGED
    /// on the logical units that are returned. States that initiators have set stay where the configured state is the
    /// same as before, and everywhere when only initiators manage them.
    pub fn apply(self) -> Vec<Lun> {
        let Self { device, config, slot } = self;
        let mut inventory = device.inventory();
        let luns: Vec<Lun> = inventory.units.keys().copied().collect();
        inventory.change_access(None, |groups| groups.configure(config, slot, &luns)).1
    }
}

impl TargetDevice {
    /// A device without logical units and with these target port groups. Where only initiators manage access states,
    /// the states that they set before a restart are restored.
    ///
    /// # Errors
    ///
    /// When the groups contradict each other, or the saved states cannot be read.
    pub fn with_port_groups(name: impl Into<Arc<str>>, config: PortGroupsConfig) -> Result<Self, PortGroupsError> {
        let device = Self::new(name);
        config.check()?;
        let saved = SavedAccessStates::open(&config, device.name())?;
        device.inventory().port_groups = PortGroups::new(config, saved);
        Ok(device)
    }

    /// Checks another configuration of the target port groups, without applying it. The call may wait for the state
    /// store.
    ///
    /// # Errors
    ///
    /// When the groups contradict each other, or the state store cannot be read.
    pub fn prepare_port_groups(
        self: &Arc<Self>,
        config: PortGroupsConfig,
    ) -> Result<PortGroupsChange, PortGroupsError> {
        config.check()?;
        let SavedAccessStates { slot, .. } = SavedAccessStates::open(&config, &self.name)?;
        Ok(PortGroupsChange { device: Arc::clone(self), config, slot })
    }

    /// Changes the state of a group implicitly, for one logical unit or for all (`None`). Nexuses get a unit attention.
    /// [`AccessState::Transitioning`] begins a transition, which another state or [`Self::fail_access_transition`]
    /// ends.
    ///
    /// # Errors
    ///
    /// When the group is unknown, the state is [`AccessState::Offline`], or only initiators manage access states.
    /// Nothing changes then.
    pub fn set_access_state(&self, lun: Option<Lun>, group: u16, state: AccessState) -> Result<(), PortGroupsError> {
        let mut inventory = self.inventory();
        // A unit may come after its state: whoever decides on the state may begin before the unit is there.
        let luns = lun.map_or_else(|| inventory.units.keys().copied().collect(), |lun| vec![lun]);
        inventory.change_access(None, |groups| groups.set(&luns, group, state)).0
    }

    /// Ends the transitions of a group as failed: the group becomes unavailable. Nexuses get the unit attention
    /// IMPLICIT ASYMMETRIC ACCESS STATE TRANSITION FAILED.
    pub fn fail_access_transition(&self, group: u16) {
        let mut inventory = self.inventory();
        let (luns, _) = inventory.change_access(None, |groups| groups.fail_transition(group));
        inventory.units.values().for_each(|unit| unit.nexuses().forget_lost());
        for itl in inventory.nexuses.values().flat_map(|nexus| nexus.itl_nexuses()) {
            if luns.contains(&itl.unit_lun) {
                itl.unit_attentions.raise(AdditionalSense::IMPLICIT_ACCESS_STATE_TRANSITION_FAILED);
            }
        }
    }

    /// Whether access states that SET TARGET PORT GROUPS has changed must survive a restart.
    pub(crate) fn saves_access_states(&self) -> bool {
        self.inventory().port_groups.slot().is_some()
    }

    /// Executes a SET TARGET PORT GROUPS of the nexus `by` to `lun`: saves the new access states, where they must
    /// survive a restart, and then changes them.
    pub(crate) fn set_port_groups(
        &self,
        by: &ItNexus,
        lun: Lun,
        set: &[SetDescriptor],
    ) -> Result<Result<(), SenseData>, StateError> {
        let slot = self.inventory().port_groups.slot();
        let turn = slot.as_ref().map(|slot| slot.turn());
        let mut inventory = self.inventory();
        let changes = match inventory.port_groups.select(lun, set) {
            Ok(changes) => changes,
            Err(sense) => return Ok(Err(sense)),
        };
        if let Some(turn) = &turn {
            let bytes = inventory.port_groups.saved_with(lun, &changes);
            // Commands go on meanwhile. Nothing else changes states that are saved, but a new configuration.
            drop(inventory);
            turn.save(bytes.as_deref())?;
            inventory = self.inventory();
        }
        inventory.change_access(Some(by), |groups| groups.apply(lun, &changes));
        Ok(Ok(()))
    }

    /// The group to which a SET TARGET PORT GROUPS to `lun` moves a unit that several servers offer; `None` when it has
    /// it already.
    pub(crate) fn select_owner(&self, lun: Lun, set: &[SetDescriptor]) -> Result<Option<u16>, SenseData> {
        self.inventory().port_groups.select_owner(lun, set)
    }

    /// The access states of `lun`, by target port group, as REPORT TARGET PORT GROUPS tells them. Empty without groups.
    pub fn access_states(&self, lun: Lun) -> Vec<(u16, AccessState)> {
        self.inventory().report(lun).into_iter().map(|group| (group.group, group.state)).collect()
    }

    /// The access state of `lun` through each group, whether or not it has a port.
    pub(super) fn access_states_by_group(&self, lun: Lun) -> Vec<(u16, AccessState)> {
        self.inventory().port_groups.states(lun)
    }

    /// The descriptors of the groups for `lun`, and IMPLICIT TRANSITION TIME in seconds.
    pub(crate) fn port_groups(&self, lun: Lun) -> (Vec<GroupDescriptor>, u8) {
        let inventory = self.inventory();
        (inventory.report(lun), inventory.port_groups.config().transition_time_s)
    }

    /// TPGS: how access states are managed.
    pub(crate) fn management(&self) -> Management {
        self.inventory().port_groups.config().management
    }

    /// The primary target port group of a port.
    pub(crate) fn group_of(&self, port: u16) -> Option<u16> {
        self.inventory().port_groups.group_of(port).map(|group| group.id)
    }
}

impl Inventory {
    fn report(&self, lun: Lun) -> Vec<GroupDescriptor> {
        let ports: BTreeSet<u16> = self.known_ports().into_iter().map(|port| port.relative).collect();
        self.port_groups.report(lun, &ports)
    }

    /// Changes access states, and raises a unit attention for all nexuses but `by` on the logical units whose report
    /// changed (SPC-4 5.16.2.5). Those logical units are returned too.
    fn change_access<T>(&mut self, by: Option<&ItNexus>, change: impl FnOnce(&mut PortGroups) -> T) -> (T, Vec<Lun>) {
        let before: Vec<_> = self.units.keys().map(|lun| (*lun, self.report(*lun))).collect();
        let result = change(&mut self.port_groups);
        let differs = |(lun, report): (Lun, Vec<GroupDescriptor>)| (self.report(lun) != report).then_some(lun);
        let changed: Vec<Lun> = before.into_iter().filter_map(differs).collect();
        changed.iter().filter_map(|lun| self.units.get(lun)).for_each(|unit| unit.nexuses().forget_lost());
        for nexus in self.nexuses.values() {
            for itl in nexus.itl_nexuses() {
                itl.access.set(self.port_groups.access(itl.unit_lun, nexus.name.relative_port));
                if changed.contains(&itl.unit_lun) && by != Some(&*itl.it_nexus) {
                    itl.unit_attentions.raise(AdditionalSense::ACCESS_STATE_CHANGED);
                }
            }
        }
        (result, changed)
    }
}
