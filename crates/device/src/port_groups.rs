//! Target port groups of one target device, as a pure machine (SPC-4 5.16.2).
//!
//! A group has one state for each logical unit number. What the configuration says holds until it is changed: by initiators
//! (explicitly, SET TARGET PORT GROUPS), or by the administrator (implicitly). Locks and unit attentions are the business of
//! [`crate::target_device`].

pub(crate) mod access;
mod config;
mod saved;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lunette_scsi::port_groups::{AccessState, GroupDescriptor, OFFLINE_GROUP, SetDescriptor, StatusCode};
use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseKey};

use crate::persist;
use crate::persist::{PendingSave, StateSlot};
use access::PortAccess;
pub use config::{GroupAccess, PortGroup, PortGroupsConfig, PortGroupsError};

/// The groups and their states.
#[derive(Default)]
pub(crate) struct PortGroups {
    config: PortGroupsConfig,
    /// The states that were changed since the start, of a logical unit through a group.
    changed: BTreeMap<(Lun, u16), GroupState>,
    slot: Option<Arc<StateSlot>>,
}

/// A state, and why it is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupState {
    state: AccessState,
    status: StatusCode,
}

/// What was kept for a configuration.
pub(crate) struct SavedAccessStates {
    pub(crate) slot: Option<Arc<StateSlot>>,
    changed: BTreeMap<(Lun, u16), GroupState>,
}

impl SavedAccessStates {
    /// Reads what the device `name` has kept, if `config` has states kept at all.
    pub(crate) fn open(config: &PortGroupsConfig, name: &str) -> Result<Self, PortGroupsError> {
        let store = config.state.as_ref().filter(|_| config.keeps_states());
        let (slot, changed) = persist::open(store, format!("port-groups/{name}"), saved::decode)?;
        Ok(Self { slot, changed: changed.unwrap_or_default() })
    }
}

impl PortGroups {
    /// The groups of a device, in the states that were kept or else configured.
    pub(crate) fn new(config: PortGroupsConfig, SavedAccessStates { slot, mut changed }: SavedAccessStates) -> Self {
        changed.retain(|(_, id), _| config.groups.iter().any(|group| group.id == *id));
        Self { config, changed, slot }
    }

    /// Who manages them, and how long transitions take.
    pub(crate) fn config(&self) -> &PortGroupsConfig {
        &self.config
    }

    /// The primary group of a port.
    pub(crate) fn group_of(&self, port: u16) -> Option<&PortGroup> {
        self.config.groups.iter().find(|group| group.ports.is_empty() || group.ports.contains(&port))
    }

    /// How `lun` is reached through a port. A port without a group has no part in asymmetric access.
    pub(crate) fn access(&self, lun: Lun, port: u16) -> PortAccess {
        let state = self.group_of(port).map_or(AccessState::ActiveOptimized, |group| {
            if group.offline { AccessState::Offline } else { self.current(lun, group).state }
        });
        PortAccess { state, explicit: self.config.management.is_explicit() }
    }

    /// The groups as `lun` has them, of the ports that are there. Groups without ports are not told of.
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

    /// What a SET TARGET PORT GROUPS to `lun` would do: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// INVALID FIELD IN PARAMETER LIST for a group that is not there, or there twice, and for a state that cannot be set;
    /// NOT READY for a group that is on its way to another state.
    pub(crate) fn select(&self, lun: Lun, set: &[SetDescriptor]) -> Result<Vec<(u16, AccessState)>, SenseData> {
        let mut changes = BTreeMap::new();
        for descriptor in set {
            let SetDescriptor { state, group_or_port: id, state_field, target_field } = *descriptor;
            // Nothing that an initiator can send would bring a port back from there.
            if state == AccessState::Offline {
                return Err(state_field.into());
            }
            let group = self.group(id).ok_or(target_field)?;
            if self.current(lun, group).state == AccessState::Transitioning {
                return Err(SenseData::new(SenseKey::NOT_READY, AdditionalSense::ACCESS_STATE_TRANSITION));
            }
            if changes.insert(id, state).is_some() {
                return Err(target_field.into());
            }
        }
        Ok(changes.into_iter().collect())
    }

    /// Makes changes that were selected. They may be acknowledged when the [`PendingSave`], if there is one, is done.
    pub(crate) fn apply(&mut self, lun: Lun, changes: &[(u16, AccessState)]) -> Option<PendingSave> {
        for (group, state) in changes {
            self.change(lun, *group, *state, StatusCode::Explicit);
        }
        self.save()
    }

    /// The administrator's change: of one logical unit, or of all.
    ///
    /// # Errors
    ///
    /// When there is no such group, the state is no primary one, or only initiators may change states.
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

    /// The transitions of a group failed: it becomes unavailable (SPC-4 5.16.2.5) to the logical units on their way, which
    /// are told.
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

    /// Puts another configuration in force. Where it says the same as the old one, and everywhere when only initiators
    /// change states, states stay as they are.
    pub(crate) fn configure(&mut self, config: PortGroupsConfig, slot: Option<Arc<StateSlot>>, luns: &[Lun]) {
        // A keeper that is in use knows the order of its saves.
        let slot = if slot.is_some() { self.slot.take().or(slot) } else { None };
        let old = std::mem::replace(self, Self { config, changed: BTreeMap::new(), slot });
        let luns: BTreeSet<Lun> = old.changed.keys().map(|(lun, _)| *lun).chain(luns.iter().copied()).collect();
        for was in &old.config.groups {
            for lun in &luns {
                self.take_over(&old, was, *lun);
            }
        }
    }

    /// The state of `lun` through a group that was there before.
    fn take_over(&mut self, old: &Self, was: &PortGroup, lun: Lun) {
        let Some(is) = self.group(was.id) else { return };
        let (before, wanted) = (old.current(lun, was), configured(lun, is).state);
        let stays = self.config.keeps_states() || configured(lun, was).state == wanted;
        let state = if stays { before.state } else { wanted };
        let status = if state == before.state { before.status } else { StatusCode::Implicit };
        self.changed.insert((lun, was.id), GroupState { state, status });
    }

    fn save(&self) -> Option<PendingSave> {
        self.slot.as_ref().map(|slot| slot.update(saved::encode(&self.changed)))
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

/// What the configuration says.
fn configured(lun: Lun, group: &PortGroup) -> GroupAccess {
    group.units.get(&lun).copied().unwrap_or(group.access)
}
