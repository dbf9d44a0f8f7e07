//! Changes to what is served, as all cores share them.

use std::sync::Arc;

use lunette_device::{Assigned, LogicalUnit, NexusId, PortGroupsChange, TargetDevice};
use lunette_reactor::Context;
use lunette_scsi::{AdditionalSense, Lun};
use lunette_session::Authentication;
use lunette_session::iscsi_target::Directory;

use super::portals::declare_ports;
use super::{Lifecycle, Removed};
use crate::config::{BindError, TargetConfig, lun_maps, node};
use crate::control::{Asked, Growth, UnitChange, Update, UpdateError};

/// The changes of an update, for the sessions of each core.
#[derive(Clone)]
pub(crate) struct ConfigChange {
    pub(in crate::core) directory: Arc<Directory>,
    pub(in crate::core) devices: Vec<Arc<TargetDevice>>,
    /// Unit attentions that initiators are told of.
    pub(in crate::core) attentions: Vec<(Arc<TargetDevice>, Lun, AdditionalSense)>,
    pub(in crate::core) removed: Vec<Removed>,
    /// Nexuses that see other logical units than before.
    pub(in crate::core) remapped: Vec<NexusId>,
}

impl Lifecycle {
    /// The updates that were asked for since the last call; while sessions stand still, those alone that concern that.
    pub(in crate::core) fn take_updates(&self, stands_still: bool) -> Vec<Asked> {
        self.updates.take(stands_still)
    }

    /// Changes what all cores share: first what can fail, then the rest. Gives the portals that are left closed, too.
    ///
    /// # Errors
    ///
    /// The errors of [`Control::apply`](crate::Control::apply). Then nothing has changed.
    pub(in crate::core) fn apply(
        &mut self,
        cx: &mut Context<'_>,
        update: Update,
    ) -> Result<(ConfigChange, Vec<BindError>), UpdateError> {
        if self.is_stopping() {
            return Err(UpdateError::Stopping);
        }
        let Update {
            portals,
            datagram_portals,
            leaves_closed,
            required_portals,
            targets,
            discovery,
            port_groups,
            units,
            growth,
        } = update;
        let required = leaves_closed.then_some(&*required_portals);
        let outcome = self
            .withdraw(&targets, &units)
            .and_then(|()| Ok(self.portals.change(cx, &portals, &datagram_portals, required)?));
        let closed = match outcome {
            Ok(closed) => closed,
            Err(error) => {
                keep(&self.devices);
                return Err(error);
            }
        };
        let mut change = self.replace_targets(targets, discovery);
        for port_groups in port_groups {
            change.change_port_groups(port_groups);
        }
        change.change_units(units);
        change.grow(growth);
        keep(&change.devices);
        Ok((change, closed))
    }

    /// Changes the lengths of stores, and nothing else.
    ///
    /// # Errors
    ///
    /// The errors of [`Control::grow`](crate::Control::grow). Then nothing has changed.
    pub(in crate::core) fn grow(&self, growth: Vec<Growth>) -> Result<ConfigChange, UpdateError> {
        if self.is_stopping() {
            return Err(UpdateError::Stopping);
        }
        let (directory, devices) = (Arc::clone(&self.directory), self.devices.clone());
        let mut change =
            ConfigChange { directory, devices, attentions: Vec::new(), removed: Vec::new(), remapped: Vec::new() };
        change.grow(growth);
        Ok(change)
    }

    /// Serves what a change says from now on.
    pub(in crate::core) fn adopt(&mut self, change: &ConfigChange) {
        (self.directory, self.devices) = (Arc::clone(&change.directory), change.devices.clone());
        self.shared_devices.set(&self.devices);
    }

    /// A sanitize operation may have begun since the update was made, and on another core one may be about to: from now
    /// on none begins on what goes.
    fn withdraw(&self, targets: &[TargetConfig], units: &[UnitChange]) -> Result<(), UpdateError> {
        for device in &self.devices {
            let stays = targets.iter().any(|target| Arc::ptr_eq(&target.device, device));
            let goes = |lun: Lun| units.iter().any(|change| Arc::ptr_eq(&change.device, device) && change.lun == lun);
            let mut gone = device.units().into_iter().filter(|(lun, _)| !stays || goes(*lun));
            if let Some((lun, _)) = gone.find(|(_, unit)| !unit.prepare_removal()) {
                return Err(UpdateError::Sanitizing { target: device.name().into(), lun });
            }
        }
        Ok(())
    }

    /// A directory in place of the other one. Connections have it by reference: each knows the old one or the new one.
    fn replace_targets(&self, targets: Vec<TargetConfig>, discovery: Authentication) -> ConfigChange {
        let portals = self.portals.ports();
        let devices: Vec<_> = targets.iter().map(|target| Arc::clone(&target.device)).collect();
        declare_ports(&devices, &portals);
        let remapped = targets.iter().flat_map(|target| target.device.set_lun_maps(lun_maps(target))).collect();
        let targets = targets.into_iter().map(|target| Arc::new(node(target, &portals))).collect();
        let directory = Arc::new(Directory { targets, discovery });
        let stays = |device: &&Arc<TargetDevice>| devices.iter().any(|stays| Arc::ptr_eq(stays, device));
        let gone = self.devices.iter().filter(|device| !stays(device));
        let removed = gone.map(|device| Removed::Target(Arc::clone(device))).collect();
        ConfigChange { directory, devices, attentions: Vec::new(), removed, remapped }
    }
}

/// Keeps the devices whose units may be sanitized.
fn keep(devices: &[Arc<TargetDevice>]) {
    for (_, unit) in devices.iter().flat_map(|device| device.units()) {
        unit.cancel_removal();
    }
}

impl ConfigChange {
    fn change_port_groups(&mut self, change: PortGroupsChange) {
        let device = Arc::clone(change.device());
        let changed = change.apply().into_iter();
        self.attentions.extend(changed.map(|lun| (Arc::clone(&device), lun, AdditionalSense::ACCESS_STATE_CHANGED)));
    }

    fn change_units(&mut self, changes: Vec<UnitChange>) {
        for UnitChange { device, lun, unit } in changes {
            let comes = unit.is_some();
            let Assigned { previous, seen_by } = device.assign(lun, unit);
            if comes && previous.is_some() {
                self.attentions.push((device, lun, AdditionalSense::INQUIRY_DATA_CHANGED));
            } else {
                self.remapped.extend(seen_by);
            }
            self.removed.extend(previous.map(Removed::Unit));
        }
    }

    fn grow(&mut self, growth: Vec<Growth>) {
        for Growth { unit, grow } in growth {
            grow();
            self.announce_growth(&unit);
        }
    }

    fn announce_growth(&mut self, unit: &Arc<LogicalUnit>) {
        unit.capacity_changed();
        for device in &self.devices {
            for (lun, _) in device.units().iter().filter(|(_, known)| Arc::ptr_eq(known, unit)) {
                self.attentions.push((Arc::clone(device), *lun, AdditionalSense::CAPACITY_DATA_CHANGED));
            }
        }
    }
}
