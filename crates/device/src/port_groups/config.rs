//! The configuration of target port groups, and its checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use lunette_scsi::Lun;
use lunette_scsi::port_groups::{AccessState, Management, OFFLINE_GROUP};
use lunette_state::{StateError, StateStore};

use crate::limits::{MAX_PORT_GROUPS, MAX_PORTS_OF_GROUP};

/// The target port groups of a target device (SPC-4 5.16.2). The default is symmetric access: one group of all ports,
/// active/optimized.
#[derive(Clone)]
pub struct PortGroupsConfig {
    /// Whether initiators, the device server or both change access states.
    pub management: Management,
    /// IMPLICIT TRANSITION TIME in seconds: how long initiators wait at least for the end of a transition; 0 is
    /// unspecified.
    pub transition_time_s: u8,
    /// The primary target port groups, at least one.
    pub groups: Vec<PortGroup>,
    /// The state store for the access states of [`Management::Explicit`], under the name of the device. Without it, a
    /// restart restores the configured states.
    pub state: Option<Arc<dyn StateStore>>,
}

/// A primary target port group: ports that always have the same access state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP.
    pub id: u16,
    /// The RELATIVE TARGET PORT IDENTIFIERs. An empty list in the only group means all ports.
    pub ports: Vec<u16>,
    /// The access to the logical units through the group.
    pub access: GroupAccess,
    /// Exceptions for single logical units.
    pub units: BTreeMap<Lun, GroupAccess>,
    /// Puts the ports in the secondary state offline: commands through them end with NOT READY.
    pub offline: bool,
}

/// The access to a logical unit through a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupAccess {
    /// The initial state: active/optimized, active/non-optimized, standby or unavailable.
    pub state: AccessState,
    /// PREF: initiators should prefer the group, whatever its state.
    pub preferred: bool,
}

impl Default for GroupAccess {
    fn default() -> Self {
        Self { state: AccessState::ActiveOptimized, preferred: false }
    }
}

impl Default for PortGroup {
    fn default() -> Self {
        Self { id: 1, ports: Vec::new(), access: GroupAccess::default(), units: BTreeMap::new(), offline: false }
    }
}

impl Default for PortGroupsConfig {
    fn default() -> Self {
        Self { management: Management::Implicit, transition_time_s: 0, groups: vec![PortGroup::default()], state: None }
    }
}

/// Why target port groups cannot be configured or changed as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortGroupsError {
    /// The number of groups is zero or above the limit.
    #[error("there are {0} target port groups; make it 1 to {MAX_PORT_GROUPS}")]
    Count(usize),
    /// The number of a group is not unique, or reserved for the offline ports.
    #[error("target port group {0} is there twice or reserved; choose another number")]
    Number(u16),
    /// One of several groups has no ports, or too many.
    #[error("target port group {group} has {count} ports; make it 1 to {MAX_PORTS_OF_GROUP}")]
    PortCount {
        /// The number of the group.
        group: u16,
        /// The number of its ports.
        count: usize,
    },
    /// A port is in more than one primary group.
    #[error("target port {0} is in two target port groups; leave it in one")]
    PortTwice(u16),
    /// The state is not a primary one, or is a transition.
    #[error("target port group {group} cannot be {state:?} by configuration; choose another state")]
    State {
        /// The number of the group.
        group: u16,
        /// The requested state.
        state: AccessState,
    },
    /// No group has this number.
    #[error("there is no target port group {0}")]
    Unknown(u16),
    /// Only initiators change access states.
    #[error("the access states are managed by initiators alone (explicit); let both manage them")]
    ExplicitOnly,
    /// The saved states cannot be read.
    #[error(transparent)]
    Kept(#[from] StateError),
}

impl PortGroupsConfig {
    /// Whether access states have to be saved. SPC-4 5.16.2.9 requires them to survive when only initiators change
    /// them. Where the device server manages them too, a restart is an implicit change, and the configured states
    /// apply.
    pub(crate) fn keeps_states(&self) -> bool {
        !self.management.is_implicit()
    }

    /// Checks the groups for contradictions.
    ///
    /// # Errors
    ///
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), PortGroupsError> {
        if self.groups.is_empty() || self.groups.len() > MAX_PORT_GROUPS {
            return Err(PortGroupsError::Count(self.groups.len()));
        }
        let (mut ids, mut ports) = (BTreeSet::from([OFFLINE_GROUP]), BTreeSet::new());
        for group in &self.groups {
            if !ids.insert(group.id) {
                return Err(PortGroupsError::Number(group.id));
            }
            let all = self.groups.len() == 1 && group.ports.is_empty();
            if !all && !(1..=MAX_PORTS_OF_GROUP).contains(&group.ports.len()) {
                return Err(PortGroupsError::PortCount { group: group.id, count: group.ports.len() });
            }
            if let Some(port) = group.ports.iter().find(|port| !ports.insert(**port)) {
                return Err(PortGroupsError::PortTwice(*port));
            }
            let states = std::iter::once(&group.access).chain(group.units.values()).map(|access| access.state);
            let mut bad = states.filter(|state| matches!(state, AccessState::Offline | AccessState::Transitioning));
            if let Some(state) = bad.next() {
                return Err(PortGroupsError::State { group: group.id, state });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PortGroupsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortGroupsConfig")
            .field("management", &self.management)
            .field("transition_time_s", &self.transition_time_s)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}
