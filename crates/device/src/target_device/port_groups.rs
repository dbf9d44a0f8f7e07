//! Target port groups of a target device: the machine behind the inventory's lock, and who is told of changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use lunette_scsi::port_groups::{AccessState, GroupDescriptor, Management, SetDescriptor};
use lunette_scsi::{AdditionalSense, Lun, SenseData};

use super::{Inventory, TargetDevice};
use crate::nexus::ItNexus;
use crate::persist::{PendingSave, StateSlot};
use crate::port_groups::{PortGroups, PortGroupsConfig, PortGroupsError, SavedAccessStates};

/// Another configuration of the target port groups of a device, ready to be put in force.
pub struct PortGroupsChange {
    device: Arc<TargetDevice>,
    config: PortGroupsConfig,
    slot: Option<Arc<StateSlot>>,
}

impl PortGroupsChange {
    /// Whose groups they are.
    pub fn device(&self) -> &Arc<TargetDevice> {
        &self.device
    }

    /// Puts it in force: an implicit change, of which nexuses learn by unit attention (ASYMMETRIC ACCESS STATE CHANGED) on the
    /// logical units that are given. States that initiators have set stay where the configuration says the same as before,
    /// and everywhere when only initiators manage them.
    pub fn apply(self) -> Vec<Lun> {
        let Self { device, config, slot } = self;
        let mut inventory = device.inventory();
        let luns: Vec<Lun> = inventory.units.keys().copied().collect();
        inventory.change_access(None, |groups| groups.configure(config, slot, &luns)).1
    }
}

impl TargetDevice {
    /// A device without logical units that is reached as `config` says. Where only initiators manage access states, those
    /// that they have set before the last restart are in force.
    ///
    /// # Errors
    ///
    /// When the groups contradict each other, or what was kept cannot be read.
    pub fn with_port_groups(name: impl Into<Arc<str>>, config: PortGroupsConfig) -> Result<Self, PortGroupsError> {
        let device = Self::new(name);
        config.check()?;
        let kept = SavedAccessStates::open(&config, device.name())?;
        device.inventory().port_groups = PortGroups::new(config, kept);
        Ok(device)
    }

    /// Prepares another configuration of the target port groups, without putting it in force. It may wait for the place where
    /// states are kept.
    ///
    /// # Errors
    ///
    /// When the groups contradict each other, or the place to keep states in cannot be read.
    pub fn prepare_port_groups(
        self: &Arc<Self>,
        config: PortGroupsConfig,
    ) -> Result<PortGroupsChange, PortGroupsError> {
        config.check()?;
        let SavedAccessStates { slot, .. } = SavedAccessStates::open(&config, &self.name)?;
        Ok(PortGroupsChange { device: Arc::clone(self), config, slot })
    }

    /// Changes the state of a group implicitly, for one logical unit or for all (`None`). Nexuses learn of it by unit
    /// attention. [`AccessState::Transitioning`] begins a transition, which another state or
    /// [`Self::fail_access_transition`] ends.
    ///
    /// # Errors
    ///
    /// When there is no such group, the state is [`AccessState::Offline`], or only initiators manage access states. Then
    /// nothing is changed.
    pub fn set_access_state(&self, lun: Option<Lun>, group: u16, state: AccessState) -> Result<(), PortGroupsError> {
        let mut inventory = self.inventory();
        let luns: Vec<Lun> =
            inventory.units.keys().copied().filter(|known| lun.is_none_or(|lun| lun == *known)).collect();
        inventory.change_access(None, |groups| groups.set(&luns, group, state)).0
    }

    /// Ends the transitions of a group that cannot come to their end: it becomes unavailable. Nexuses find the unit
    /// attention IMPLICIT ASYMMETRIC ACCESS STATE TRANSITION FAILED.
    pub fn fail_access_transition(&self, group: u16) {
        let mut inventory = self.inventory();
        let (luns, _) = inventory.change_access(None, |groups| groups.fail_transition(group));
        inventory.units.values().for_each(|unit| unit.nexuses().forget_lost());
        for itl in inventory.nexuses.values().flat_map(|nexus| nexus.itl_nexuses()) {
            if luns.contains(&itl.lun) {
                itl.unit_attentions.raise(AdditionalSense::IMPLICIT_ACCESS_STATE_TRANSITION_FAILED);
            }
        }
    }

    /// Does what a SET TARGET PORT GROUPS of the nexus `by` to `lun` asks for. It may be acknowledged when the [`PendingSave`] is
    /// done.
    pub(crate) fn set_port_groups(
        &self,
        by: &ItNexus,
        lun: Lun,
        set: &[SetDescriptor],
    ) -> Result<Option<PendingSave>, SenseData> {
        let mut inventory = self.inventory();
        let changes = inventory.port_groups.select(lun, set)?;
        Ok(inventory.change_access(Some(by), |groups| groups.apply(lun, &changes)).0)
    }

    /// The groups as `lun` has them, and IMPLICIT TRANSITION TIME in seconds.
    pub(crate) fn port_groups(&self, lun: Lun) -> (Vec<GroupDescriptor>, u8) {
        let inventory = self.inventory();
        (inventory.report(lun), inventory.port_groups.config().transition_time_s)
    }

    /// TPGS.
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

    /// Changes access states. All nexuses but those of `by` are told on the logical units where it makes a difference (SPC-4
    /// 5.16.2.5), which are given too.
    fn change_access<T>(&mut self, by: Option<&ItNexus>, change: impl FnOnce(&mut PortGroups) -> T) -> (T, Vec<Lun>) {
        let before: Vec<_> = self.units.keys().map(|lun| (*lun, self.report(*lun))).collect();
        let result = change(&mut self.port_groups);
        let differs = |(lun, report): (Lun, Vec<GroupDescriptor>)| (self.report(lun) != report).then_some(lun);
        let changed: Vec<Lun> = before.into_iter().filter_map(differs).collect();
        changed.iter().filter_map(|lun| self.units.get(lun)).for_each(|unit| unit.nexuses().forget_lost());
        for nexus in self.nexuses.values() {
            for itl in nexus.itl_nexuses() {
                itl.access.set(self.port_groups.access(itl.lun, nexus.name.relative_port));
                if changed.contains(&itl.lun) && by != Some(&*itl.it_nexus) {
                    itl.unit_attentions.raise(AdditionalSense::ACCESS_STATE_CHANGED);
                }
            }
        }
        (result, changed)
    }
}
