//! The target port groups of one target device, as a pure state machine (SPC-4 5.16.2).
//!
//! A group has one access state for each logical unit. The configured state holds until initiators change it
//! (explicitly, SET TARGET PORT GROUPS) or the administrator does (implicitly). Locks and unit attentions are left to
//! [`crate::target_device`].

pub(crate) mod access;
mod config;
mod handover;
mod saved;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lunette_scsi::port_groups::{AccessState, GroupDescriptor, OFFLINE_GROUP, SetDescriptor, StatusCode};
use lunette_scsi::{AdditionalSense, Lun, SenseData};

use crate::persist::{self, StateSlot};
use access::PortAccess;
pub use config::{GroupAccess, PortGroup, PortGroupsConfig, PortGroupsError};

/// The target port groups of a device, with the access state of each logical unit through each group.
#[derive(Default)]
pub(crate) struct PortGroups {
    config: PortGroupsConfig,
    /// Access states that were changed since the start, by logical unit and group.
    changed: BTreeMap<(Lun, u16), GroupState>,
    slot: Option<Arc<StateSlot>>,
}

/// The access state of a logical unit through a group, and its STATUS CODE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupState {
    state: AccessState,
    status: StatusCode,
}

/// The access states that the state store holds for a device.
pub(crate) struct SavedAccessStates {
    pub(crate) slot: Option<Arc<StateSlot>>,
    changed: BTreeMap<(Lun, u16), GroupState>,
}

impl SavedAccessStates {
    /// Loads the access states of the device `name`, if `config` requires states to be saved.
    pub(crate) fn open(config: &PortGroupsConfig, name: &str) -> Result<Self, PortGroupsError> {
        let store = config.state.as_ref().filter(|_| config.keeps_states());
        let (slot, changed) = persist::open(store, format!("port-groups/{name}"), saved::decode)?;
        Ok(Self { slot, changed: changed.unwrap_or_default() })
    }
}

impl PortGroups {
    /// The groups of a device, in the saved access states, or else in the configured ones.
    pub(crate) fn new(config: PortGroupsConfig, SavedAccessStates { slot, mut changed }: SavedAccessStates) -> Self {
        changed.retain(|(_, id), _| config.groups.iter().any(|group| group.id == *id));
        Self { config, changed, slot }
    }

    /// The configuration of the groups.
    pub(crate) fn config(&self) -> &PortGroupsConfig {
        &self.config
    }

    /// The primary target port group of a port.
    pub(crate) fn group_of(&self, port: u16) -> Option<&PortGroup> {
        self.config.groups.iter().find(|group| group.ports.is_empty() || group.ports.contains(&port))
    }

    /// How `lun` is reached through a port. A port without a group takes no part in asymmetric access.
    pub(crate) fn access(&self, lun: Lun, port: u16) -> PortAccess {
        let state = self.group_of(port).map_or(AccessState::ActiveOptimized, |group| {
            if group.offline { AccessState::Offline } else { self.current(lun, group).state }
        });
        PortAccess { state, explicit: self.config.management.is_explicit() }
    }

    /// The access state of `lun` through each group.
    pub(crate) fn states(&self, lun: Lun) -> Vec<(u16, AccessState)> {
        self.config.groups.iter().map(|group| (group.id, self.current(lun, group).state)).collect()
    }

    /// The descriptors of the groups for `lun`, with those of their ports that are in `ports`. A group without ports is
    /// left out.
    pub(crate) fn report(&self, lun: Lun, ports: &BTreeSet<u16>) -> Vec<GroupDescriptor> {
        let members = |group: &PortGroup| -> Vec<u16> {
            let all = group.ports.is_empty();
            ports.iter().copied().filter(|port| all || group.ports.contains(port)).collect()
        };
        let mut groups = Vec::new();
        let mut offline = Vec::new();
        for group in &self.config.groups {
            let ports = members(group);
            if group.offline {
                offline.extend_from_slice(&ports);
            }
            let GroupState { state, status } = self.current(lun, group);
            groups.push(GroupDescriptor {
                preferred: configured(lun, group).preferred,
                state,
                group: group.id,
                status,
                ports,
            });
        }
        // SPC-4 5.16.2.1: offline ports are also in the secondary group.
        let (state, status) = (AccessState::Offline, StatusCode::Implicit);
        groups.push(GroupDescriptor { preferred: false, state, group: OFFLINE_GROUP, status, ports: offline });
        groups.retain(|group| !group.ports.is_empty());
        groups
    }

    /// The changes that a SET TARGET PORT GROUPS to `lun` makes: all of them, or none.
    ///
    /// # Errors
    ///
    /// INVALID FIELD IN PARAMETER LIST for an unknown or repeated group, and for a state that cannot be set; NOT READY
    /// for a group in transition.
    pub(crate) fn select(&self, lun: Lun, set: &[SetDescriptor]) -> Result<Vec<(u16, AccessState)>, SenseData> {
        let mut changes = BTreeMap::new();
        for descriptor in set {
            let SetDescriptor { state, group_or_port: id, state_field, target_field } = *descriptor;
            // No command could bring a port back from offline.
            if state == AccessState::Offline {
                return Err(state_field.into());
            }
            let group = self.group(id).ok_or(target_field)?;
            if self.current(lun, group).state == AccessState::Transitioning {
                return Err(SenseData::not_ready(AdditionalSense::ACCESS_STATE_TRANSITION));
            }
            if changes.insert(id, state).is_some() {
                return Err(target_field.into());
            }
        }
        Ok(changes.into_iter().collect())
    }

    /// The group to which a SET TARGET PORT GROUPS moves a unit that one server at a time has; `None` when it has it
    /// already.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::select`], and INVALID FIELD IN PARAMETER LIST for states that are no move. In a move, the
    /// group that gets the unit is active/optimized, and all others are in standby.
    pub(crate) fn select_owner(&self, lun: Lun, set: &[SetDescriptor]) -> Result<Option<u16>, SenseData> {
        self.select(lun, set)?;
        let is_owner =
            |id| self.group(id).is_some_and(|group| self.current(lun, group).state == AccessState::ActiveOptimized);
        let mut wanted = None;
        for descriptor in set {
            let id = descriptor.group_or_port;
            match descriptor.state {
                AccessState::ActiveOptimized if wanted.is_none() => wanted = Some(id),
                AccessState::Standby => {}
                _ => return Err(descriptor.state_field.into()),
            }
        }
        let left = set.iter().find(|other| other.state == AccessState::Standby && is_owner(other.group_or_port));
        match (wanted, left) {
            (None, Some(left)) => Err(left.state_field.into()),
            _ => Ok(wanted.filter(|id| !is_owner(*id))),
        }
    }

    /// The slot of the access states, which are saved before they take effect.
    pub(crate) fn slot(&self) -> Option<Arc<StateSlot>> {
        self.slot.clone()
    }

    /// The value to save before the selected changes take effect.
    pub(crate) fn saved_with(&self, lun: Lun, changes: &[(u16, AccessState)]) -> Option<Vec<u8>> {
        let mut next = Self { config: self.config.clone(), changed: self.changed.clone(), slot: None };
        next.apply(lun, changes);
        saved::encode(&next.changed)
    }

    /// Makes the selected changes.
    pub(crate) fn apply(&mut self, lun: Lun, changes: &[(u16, AccessState)]) {
        for (group, state) in changes {
            self.change(lun, *group, *state, StatusCode::Explicit);
        }
    }

    /// Changes the access state of a group implicitly, for these logical units.
    ///
    /// # Errors
    ///
    /// When the group is unknown, the state is not a primary one, or only initiators may change states.
    pub(crate) fn set(&mut self, luns: &[Lun], group: u16, state: AccessState) -> Result<(), PortGroupsError> {
        if !self.config.management.is_implicit() {
            return Err(PortGroupsError::ExplicitOnly);
        }
        if state == AccessState::Offline {
            return Err(PortGroupsError::State { group, state });
        }
        self.group(group).ok_or(PortGroupsError::Unknown(group))?;
        for lun in luns {
            self.change(*lun, group, state, StatusCode::Implicit);
        }
        Ok(())
    }

    /// Ends the failed transitions of a group: it becomes unavailable (SPC-4 5.16.2.5) to the logical units in
    /// transition, which are returned.
    pub(crate) fn fail_transition(&mut self, group: u16) -> Vec<Lun> {
        let on_their_way = self
            .changed
            .iter()
            .filter(|((_, id), current)| *id == group && current.state == AccessState::Transitioning);
        let luns: Vec<_> = on_their_way.map(|((lun, _), _)| *lun).collect();
        for lun in &luns {
            self.change(*lun, group, AccessState::Unavailable, StatusCode::Implicit);
        }
        luns
    }

    /// Replaces the configuration. An access state stays as it is where the configured state is the same as before, and
    /// everywhere when only initiators change states.
    pub(crate) fn configure(&mut self, config: PortGroupsConfig, slot: Option<Arc<StateSlot>>, luns: &[Lun]) {
        // The slot in use knows the order of its saves.
        let slot = if slot.is_some() { self.slot.take().or(slot) } else { None };
        let old = std::mem::replace(self, Self { config, changed: BTreeMap::new(), slot });
        let luns: BTreeSet<Lun> = old.changed.keys().map(|(lun, _)| *lun).chain(luns.iter().copied()).collect();
        for was in &old.config.groups {
            for lun in &luns {
                self.take_over(&old, was, *lun);
            }
        }
    }

    /// Carries over the access state of `lun` through the group `was`.
    fn take_over(&mut self, old: &Self, was: &PortGroup, lun: Lun) {
        let Some(is) = self.group(was.id) else { return };
        let (before, wanted) = (old.current(lun, was), configured(lun, is).state);
        let stays = self.config.keeps_states() || configured(lun, was).state == wanted;
        let state = if stays { before.state } else { wanted };
        let status = if state == before.state { before.status } else { StatusCode::Implicit };
        self.changed.insert((lun, was.id), GroupState { state, status });
    }

    fn change(&mut self, lun: Lun, id: u16, state: AccessState, status: StatusCode) {
        if self.group(id).is_some_and(|group| self.current(lun, group).state != state) {
            self.changed.insert((lun, id), GroupState { state, status });
        }
    }

    fn group(&self, id: u16) -> Option<&PortGroup> {
        self.config.groups.iter().find(|group| group.id == id)
    }

    fn current(&self, lun: Lun, group: &PortGroup) -> GroupState {
        let configured = GroupState { state: configured(lun, group).state, status: StatusCode::None };
        self.changed.get(&(lun, group.id)).copied().unwrap_or(configured)
    }
}

/// The configured access of `lun` through `group`.
fn configured(lun: Lun, group: &PortGroup) -> GroupAccess {
    group.units.get(&lun).copied().unwrap_or(group.access)
}
