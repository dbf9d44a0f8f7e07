//! Target port groups: the portal groups through which a target is reached, and their access states (asymmetric logical
//! unit access).

use std::collections::{BTreeMap, BTreeSet};

use lunette_device::{GroupAccess, PortGroup, PortGroupsConfig};
use lunette_scsi::Lun;
use lunette_scsi::port_groups::{AccessState, Management};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Config, Target};

/// The side that changes access states, and how long a change takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Access {
    #[serde(default)]
    management: ManagedBy,
    #[serde(default)]
    #[schema(maximum = 255)]
    transition_seconds: u8,
}

/// The side that changes access states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ManagedBy {
    #[default]
    Implicit,
    Explicit,
    Both,
}

/// A target port group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortGroupEntry {
    #[schema(maximum = 65535)]
    id: u16,
    portal_groups: Option<Vec<u16>>,
    #[serde(default)]
    state: State,
    #[serde(default)]
    preferred: bool,
    #[serde(rename = "lun", default)]
    luns: Vec<LunAccess>,
}

/// The access state of one logical unit through a group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LunAccess {
    #[schema(maximum = 16383)]
    number: u16,
    state: State,
    preferred: Option<bool>,
}

/// An access state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = AccessState)]
enum State {
    #[default]
    #[serde(rename = "active/optimized")]
    ActiveOptimized,
    #[serde(rename = "active/non-optimized")]
    ActiveNonOptimized,
    #[serde(rename = "standby")]
    Standby,
    #[serde(rename = "unavailable")]
    Unavailable,
    #[serde(rename = "offline")]
    Offline,
}

impl From<ManagedBy> for Management {
    fn from(management: ManagedBy) -> Self {
        match management {
            ManagedBy::Implicit => Self::Implicit,
            ManagedBy::Explicit => Self::Explicit,
            ManagedBy::Both => Self::Both,
        }
    }
}

impl From<State> for AccessState {
    fn from(state: State) -> Self {
        match state {
            State::ActiveOptimized => Self::ActiveOptimized,
            State::ActiveNonOptimized => Self::ActiveNonOptimized,
            State::Standby => Self::Standby,
            State::Unavailable => Self::Unavailable,
            State::Offline => Self::Offline,
        }
    }
}

impl PortGroupEntry {
    /// The named portal groups, or the one with the number of the group.
    fn portal_groups(&self) -> Vec<u16> {
        self.portal_groups.clone().unwrap_or_else(|| vec![self.id])
    }

    /// The group in the device server's terms. Ports that are offline keep a primary state beside it.
    fn to_port_group(&self) -> PortGroup {
        let offline = self.state == State::Offline;
        let state = if offline { AccessState::Unavailable } else { self.state.into() };
        let unit = |lun: &LunAccess| {
            let preferred = lun.preferred.unwrap_or(self.preferred);
            Some((Lun::new(lun.number)?, GroupAccess { state: lun.state.into(), preferred }))
        };
        PortGroup {
            id: self.id,
            ports: self.portal_groups(),
            access: GroupAccess { state, preferred: self.preferred },
            units: self.luns.iter().filter_map(unit).collect::<BTreeMap<_, _>>(),
            offline,
        }
    }
}

/// The groups of a target, without the store that keeps their states.
pub(crate) fn of(target: &Target) -> PortGroupsConfig {
    let mut config = PortGroupsConfig {
        management: target.access.management.into(),
        transition_time_s: target.access.transition_seconds,
        ..PortGroupsConfig::default()
    };
    if let Some(gateways) = &target.gateways {
        config.groups = gateways.port_groups();
        // By SET TARGET PORT GROUPS, and when a gateway is gone.
        config.management = Management::Both;
    }
    if !target.port_groups.is_empty() {
        config.groups = target.port_groups.iter().map(PortGroupEntry::to_port_group).collect();
    }
    config
}

/// Checks the groups of a target against the rest of the configuration.
pub(super) fn check(target: &Target, config: &Config) -> Result<(), String> {
    let failed = |what: &dyn std::fmt::Display| Err(format!("target {}: {what}", target.name));
    if let Err(error) = of(target).check() {
        return failed(&error);
    }
    if target.access.management == ManagedBy::Explicit && config.state.is_none() {
        return failed(&"access states that initiators alone manage must survive a restart; name a state file");
    }
    for group in &target.port_groups {
        for (index, lun) in group.luns.iter().enumerate() {
            let number = lun.number;
            if !target.has_number(number) {
                return failed(&format_args!("port_group {}: there is no LUN {number}", group.id));
            }
            if group.luns[..index].iter().any(|other| other.number == number) {
                return failed(&format_args!("port_group {}: LUN {number} is there twice", group.id));
            }
        }
    }
    check_portal_groups(target, config)
}

/// Checks that the target port groups have exactly the portal groups that exist.
fn check_portal_groups(target: &Target, config: &Config) -> Result<(), String> {
    let served: BTreeSet<u16> = config
        .portals()
        .iter()
        .map(|portal| portal.group)
        .chain(config.datagram_portals().iter().map(|portal| portal.group))
        .collect();
    let named: BTreeSet<u16> = target.port_groups.iter().flat_map(PortGroupEntry::portal_groups).collect();
    if let Some(group) = named.difference(&served).next() {
        return Err(format!("target {}: no portal is in portal group {group}, which a port_group names", target.name));
    }
    match served.difference(&named).next() {
        Some(group) if !named.is_empty() => {
            Err(format!("target {}: portal group {group} is in no port_group; name it in one", target.name))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    const WHOLE: &str = r#"
        state = "/s"
        portal = [{ address = "::1", group = 1 }, { address = "::2", group = 2 }, { address = "::3", group = 3 }]
        [[target]]
        name = "iqn.a"
        access = { management = "both", transition_seconds = 60 }
        lun = [{ number = 0, disk = "mem:1M" }, { number = 300, disk = "mem:1M" }]
        [[target.port_group]]
        id = 1
        preferred = true
        lun = [{ number = 300, state = "standby", preferred = false }, { number = 0, state = "unavailable" }]
        [[target.port_group]]
        id = 7
        portal_groups = [2, 3]
        state = "active/non-optimized"
    "#;

    fn groups(text: &str) -> Result<PortGroupsConfig, String> {
        parse(text).map(|config| of(&config.targets[0]))
    }

    #[test]
    fn groups_are_read_with_their_states() {
        let config = groups(WHOLE).unwrap();
        assert_eq!((config.management, config.transition_time_s), (Management::Both, 60));
        let [first, second] = config.groups.as_slice() else { panic!("{config:?}") };
        assert_eq!((first.id, first.ports.as_slice(), second.ports.as_slice()), (1, &[1][..], &[2, 3][..]));
        assert_eq!(first.access, GroupAccess { state: AccessState::ActiveOptimized, preferred: true });
        assert_eq!(first.units[&Lun::ZERO], GroupAccess { state: AccessState::Unavailable, preferred: true });
        let unit = first.units[&Lun::new(300).unwrap()];
        assert_eq!(unit, GroupAccess { state: AccessState::Standby, preferred: false });
        assert_eq!(second.access, GroupAccess { state: AccessState::ActiveNonOptimized, preferred: false });
    }

    #[test]
    fn offline_is_the_state_of_the_ports() {
        let config = groups(&WHOLE.replace("active/non-optimized", "offline")).unwrap();
        assert!(config.groups[1].offline && !config.groups[0].offline);
        assert_eq!(config.groups[1].access.state, AccessState::Unavailable);
    }

    #[test]
    fn without_groups_all_ports_are_in_one() {
        let (head, _) = WHOLE.split_once("[[target.port_group]]").unwrap();
        let config = groups(head).unwrap();
        assert_eq!((config.management, config.groups), (Management::Both, vec![PortGroup::default()]));
    }

    #[test]
    fn contradictions_are_refused() {
        for (from, to, expected) in [
            ("[2, 3]", "[2]", "portal group 3 is in no port_group"),
            ("[2, 3]", "[2, 3, 4]", "no portal is in portal group 4"),
            ("[2, 3]", "[1, 2, 3]", "target port 1 is in two"),
            ("id = 7", "id = 1", "group 1 is there twice"),
            ("active/non-optimized", "asleep", "unknown variant `asleep`"),
            ("\"unavailable\"", "\"offline\"", "cannot be Offline"),
            ("number = 300, state", "number = 5, state", "no LUN 5"),
            ("number = 300, state", "number = 0, state", "LUN 0 is there twice"),
        ] {
            let error = groups(&WHOLE.replacen(from, to, 1)).err().unwrap_or_default();
            assert!(error.contains(expected), "{to}: {error}");
        }
        let alone = WHOLE.replace("both", "explicit");
        assert!(groups(&alone).is_ok());
        assert!(groups(&alone.replace("state = \"/s\"", "")).unwrap_err().contains("name a state file"));
    }
}
