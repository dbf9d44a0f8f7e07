//! What an administrator says about target port groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use lunette_scsi::Lun;
use lunette_scsi::port_groups::{AccessState, Management, OFFLINE_GROUP};
use lunette_state::{StateError, StateStore};

use crate::limits::{MAX_PORT_GROUPS, MAX_PORTS_OF_GROUP};

/// How a target device is reached through its ports (SPC-4 5.16.2). The default is symmetric: one group of all ports, active/
/// optimized.
#[derive(Clone)]
pub struct PortGroupsConfig {
    /// Who may change access states.
    pub management: Management,
    /// IMPLICIT TRANSITION TIME in seconds: how long initiators wait for the end of a transition at least; 0 says nothing.
    pub transition_time_s: u8,
    /// The primary target port groups, one at least.
    pub groups: Vec<PortGroup>,
    /// Where the states of [`Management::Explicit`] are kept, under the name of the device. Without it, a restart returns
    /// to the configured ones.
    pub state: Option<Arc<dyn StateStore>>,
}

/// A primary target port group: ports that are always in the same state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP.
    pub id: u16,
    /// RELATIVE TARGET PORT IDENTIFIERs. Empty for the only group there is: all ports.
    pub ports: Vec<u16>,
    /// How the logical units are reached through it.
    pub access: GroupAccess,
    /// How single ones are.
    pub units: BTreeMap<Lun, GroupAccess>,
    /// The ports are in the secondary state offline: commands through them end with NOT READY.
    pub offline: bool,
}

/// How a logical unit is reached through a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupAccess {
    /// The state to begin with: active/optimized, active/non-optimized, standby or unavailable.
    pub state: AccessState,
    /// PREF: initiators are to prefer the group, whatever its state.
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

/// Why target port groups cannot be as they are asked to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortGroupsError {
    /// None, or more than the limit.
    #[error("there are {0} target port groups; make it 1 to {MAX_PORT_GROUPS}")]
    Count(usize),
    /// The number is that of another group, or reserved for the offline ports.
    #[error("target port group {0} is there twice or reserved; choose another number")]
    Number(u16),
    /// A group beside others without ports, or with too many.
    #[error("target port group {group} has {count} ports; make it 1 to {MAX_PORTS_OF_GROUP}")]
    PortCount {
        /// The group.
        group: u16,
        /// How many.
        count: usize,
    },
    /// A port is in one primary group.
    #[error("target port {0} is in two target port groups; leave it in one")]
    PortTwice(u16),
    /// Offline is a state of ports, and nothing begins with a transition.
    #[error("target port group {group} cannot be {state:?} by configuration; choose another state")]
    State {
        /// The group.
        group: u16,
        /// The state.
        state: AccessState,
    },
    /// No group has the number.
    #[error("there is no target port group {0}")]
    Unknown(u16),
    /// Only initiators change the states.
    #[error("the access states are managed by initiators alone (explicit); let both manage them")]
    ExplicitOnly,
    /// What was kept of the states cannot be read.
    #[error(transparent)]
    Kept(#[from] StateError),
}

impl PortGroupsConfig {
    /// Whether states have to be kept: SPC-4 5.16.2.9 wants them to survive when nobody but initiators changes them. Where
    /// the device server manages them too, a restart is its word, and the configuration holds.
    pub(crate) fn keeps_states(&self) -> bool {
        !self.management.is_implicit()
    }

    /// Whether the groups can be as they are.
    ///
    /// # Errors
    ///
    /// The first contradiction.
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
