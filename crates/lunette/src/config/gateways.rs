//! Gateways: the servers that offer the same images in Ceph, each by the ports of a target port group of its own.

use std::collections::{BTreeMap, BTreeSet};

use lunette_device::{GroupAccess, PortGroup};
use lunette_rbd::MAX_GATEWAYS as MAX_MEMBERS;
use lunette_scsi::port_groups::AccessState;
use serde::Deserialize;
use utoipa::ToSchema;

use super::port_groups::Access;
use super::{Config, Target};
use crate::disks::Place;

/// The gateways of a target. All have the same `groups`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gateways {
    /// The target port group of this one, which is the group of its portals, too.
    pub(crate) group: u16,
    /// The groups of all gateways.
    pub(crate) groups: Vec<u16>,
}

impl Gateways {
    /// The groups, in standby until it is known which of them has the disk.
    pub(crate) fn port_groups(&self) -> Vec<PortGroup> {
        let access = GroupAccess { state: AccessState::Standby, preferred: false };
        let group = |id: &u16| PortGroup { id: *id, ports: vec![*id], access, units: BTreeMap::new(), offline: false };
        self.groups.iter().map(group).collect()
    }
}

/// Checks the gateways of a target against the rest of the configuration.
pub(super) fn check(target: &Target, config: &Config) -> Result<(), String> {
    let Some(Gateways { group, groups }) = &target.gateways else { return Ok(()) };
    let distinct: BTreeSet<u16> = groups.iter().copied().filter(|group| *group != 0).collect();
    if distinct.len() != groups.len() || !distinct.contains(group) || !(2..=MAX_MEMBERS).contains(&groups.len()) {
        return Err(format!("groups names 2 to {MAX_MEMBERS} groups from 1, each once, and {group} among them"));
    }
    if !target.port_groups.is_empty() || target.access != Access::default() {
        return Err("they decide on access states; leave out port_group and access".into());
    }
    if !config.ecl.is_empty() {
        return Err("their ports are those of iSCSI; leave out ecl".into());
    }
    if let Some(portal) = config.portals().iter().find(|portal| portal.group != *group) {
        return Err(format!("portal {} is in group {}; write group = {group}", portal.address, portal.group));
    }
    for lun in &target.luns {
        let is_image = matches!(&lun.disk.place, Place::Image(url) if url.snapshot.is_none());
        if !is_image || lun.disk.keys.is_some() || lun.read_only || lun.removable || lun.create.is_some() {
            return Err(format!(
                "LUN {}: they share images in Ceph (rbd:POOL/IMAGE) that are writable, fixed and not encrypted here",
                lun.number
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    const WHOLE: &str = r#"
        portal = [{ address = "::1", group = 2 }]
        [[target]]
        name = "iqn.a"
        gateways = { group = 2, groups = [1, 2] }
        lun = [{ number = 0, disk = "rbd:p/i" }]
    "#;

    #[test]
    fn all_groups_are_in_standby_at_first() {
        let config = parse(WHOLE).unwrap();
        let groups = super::super::port_groups::of(&config.targets[0]).groups;
        let seen: Vec<_> = groups.iter().map(|group| (group.id, group.ports.as_slice(), group.access.state)).collect();
        assert_eq!(seen, [(1, &[1][..], AccessState::Standby), (2, &[2][..], AccessState::Standby)]);
    }

    #[test]
    fn contradictions_are_refused() {
        for (from, to, expected) in [
            ("[1, 2]", "[1, 3]", "2 among them"),
            ("[1, 2]", "[2]", "names 2 to"),
            ("[1, 2]", "[2, 2]", "each once"),
            ("[1, 2]", "[0, 2]", "from 1"),
            ("::1\", group = 2", "::1\", group = 1", "write group = 2"),
            ("rbd:p/i", "mem:1M", "share images"),
            ("rbd:p/i", "rbd:p/i@s", "share images"),
            ("rbd:p/i", "rbd:p/i?keys=file:k", "share images"),
            ("number = 0,", "number = 0, removable = true,", "share images"),
            ("lun =", "access = { management = \"both\" }\nlun =", "leave out port_group"),
        ] {
            let error = parse(&WHOLE.replacen(from, to, 1)).err().unwrap_or_default();
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
