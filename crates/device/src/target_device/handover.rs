//! The state that a target device leaves to the process that takes its place, beside its units and its nexuses.
//!
//! | field of [`TargetDevice`] | where the successor has it from |
//! |---|---|
//! | `name`, units, LUN maps, ports | its configuration |
//! | access states | handed over, where their configuration is the same; their gateways tell those of shared units |
//! | nexuses | their sessions |
//! | `tokens` | handed over, but not those of shared units |
//!
//! A token that is not handed over is unknown: its initiator gets TOKEN UNKNOWN, and copies by itself.

use lunette_handover::{ByteBuf, Target};

use super::{Inventory, TargetDevice};
use crate::persist::put_bytes;
use crate::unit::InheritError;

impl TargetDevice {
    /// The state for its successor.
    pub fn handover(&self) -> Target {
        let inventory = self.inventory();
        let port_groups = ByteBuf::from(inventory.port_groups.handover(inventory.units.keys().copied()));
        let (last_token, tokens) = self.tokens.handover();
        Target { name: self.name.to_string(), port_groups, view: ByteBuf::from(inventory.view()), last_token, tokens }
    }

    /// Goes on from what the predecessor of the device has left: after its units have inherited, and before nexuses
    /// attach.
    ///
    /// # Errors
    ///
    /// When it cannot be read. Nothing changes then.
    pub fn inherit(&self, from: &Target) -> Result<(), InheritError> {
        let mut inventory = self.inventory();
        let inventory = &mut *inventory;
        let is_own = |lun: &_| inventory.units.get(lun).is_none_or(|unit| !unit.config().shared);
        let states = inventory.port_groups.inherit(&from.port_groups, is_own);
        states.ok_or_else(|| InheritError { what: "the access states", owner: self.name.to_string() })?;
        // A nexus that returns must not take a change between both processes for a mere loss of its connection.
        if inventory.view() != from.view.as_slice() {
            inventory.units.values().for_each(|unit| unit.nexuses().forget_lost());
        }
        self.tokens.inherit(from.last_token, &from.tokens, &inventory.units);
        Ok(())
    }
}

impl Inventory {
    /// All that initiators see of the device as a whole, for a comparison: units, their access states, LUN maps.
    fn view(&self) -> Vec<u8> {
        let mut view = self.port_groups.handover(self.units.keys().copied());
        for (lun, unit) in &self.units {
            view.extend_from_slice(&lun.encode());
            put_bytes(&mut view, unit.config().serial.as_bytes());
        }
        for (host, map) in &self.lun_maps {
            put_bytes(&mut view, host.as_bytes());
            for place in self.units.keys().map(|lun| map.place(*lun)) {
                let place = place.map(|place| [&place.lun.encode()[..], &[place.read_only.into()]].concat());
                put_bytes(&mut view, &place.unwrap_or_default());
            }
        }
        view
    }
}
