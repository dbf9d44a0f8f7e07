//! The configuration of all gateways, in the words of ceph-iscsi (version 11).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::refusal::Refusal;

/// The version of the format.
const VERSION: u32 = 11;

/// The configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Document {
    pub(crate) disks: BTreeMap<String, Disk>,
    pub(crate) gateways: BTreeMap<String, Gateway>,
    pub(crate) targets: BTreeMap<String, Target>,
}

/// An image that targets may have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Disk {
    pub(crate) pool: String,
    pub(crate) image: String,
    pub(crate) backstore: String,
    /// The serial number by which initiators know it.
    pub(crate) wwn: String,
    pub(crate) controls: Controls,
}

/// A gateway that has a portal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gateway {
    /// The number of its portal group and its target port group.
    pub(crate) group: u16,
}

/// Values other than the defaults.
pub(crate) type Controls = Map<String, Value>;

/// A target of all gateways that it has portals of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    /// Whether initiators have to be named.
    pub(crate) acl_enabled: bool,
    pub(crate) auth: Auth,
    pub(crate) clients: BTreeMap<String, Client>,
    pub(crate) controls: Controls,
    pub(crate) disks: BTreeMap<String, Place>,
    pub(crate) groups: BTreeMap<String, Group>,
    pub(crate) portals: BTreeMap<String, Portal>,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            acl_enabled: true,
            auth: Auth::default(),
            clients: BTreeMap::new(),
            controls: Controls::new(),
            disks: BTreeMap::new(),
            groups: BTreeMap::new(),
            portals: BTreeMap::new(),
        }
    }
}

/// The place of a disk in a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) lun_id: u16,
}

/// The addresses of a gateway for a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Portal {
    pub(crate) portal_ip_addresses: Vec<String>,
}

/// An initiator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) auth: Auth,
    /// The group that it is in; empty for none.
    pub(crate) group_name: String,
    pub(crate) luns: BTreeMap<String, Place>,
}

/// Initiators that see the same disks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) members: Vec<String>,
    /// The disks, each with an empty object.
    pub(crate) disks: BTreeMap<String, Map<String, Value>>,
}

/// Users and passwords; empty ones for none.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Auth {
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) password_encryption_enabled: bool,
    pub(crate) mutual_username: String,
    pub(crate) mutual_password: String,
    pub(crate) mutual_password_encryption_enabled: bool,
}

/// Leaves out the passwords.
impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Auth({:?}, {:?})", self.username, self.mutual_username)
    }
}

impl Auth {
    /// Whether initiators prove themselves.
    pub(crate) fn has_user(&self) -> bool {
        !self.username.is_empty() || !self.password.is_empty()
    }

    /// Whether the target proves itself, too.
    pub(crate) fn has_mutual_user(&self) -> bool {
        !self.mutual_username.is_empty() || !self.mutual_password.is_empty()
    }
}

impl Document {
    /// The length of its text.
    pub(crate) fn len_bytes(&self) -> Result<usize, Refusal> {
        // Maps with texts as keys become JSON.
        serde_json::to_vec(self).map(|text| text.len()).map_err(|error| Refusal::failed(error.to_string()))
    }

    /// The answer to `GET config`.
    pub(crate) fn shown(&self, epoch: u64) -> Value {
        let mut shown = json!(self);
        shown["version"] = VERSION.into();
        shown["epoch"] = epoch.into();
        shown["discovery_auth"] = json!(Auth::default());
        for (name, gateway) in &self.gateways {
            let luns = self.targets.values().filter(|target| target.portals.contains_key(name));
            let active: usize = luns.map(|target| target.disks.len()).sum();
            shown["gateways"][name] = json!({ "active_luns": active, "group": gateway.group });
        }
        shown
    }

    pub(crate) fn target(&self, name: &str) -> Result<&Target, Refusal> {
        self.targets.get(name).ok_or_else(|| no_target(name))
    }

    pub(crate) fn target_mut(&mut self, name: &str) -> Result<&mut Target, Refusal> {
        self.targets.get_mut(name).ok_or_else(|| no_target(name))
    }

    /// Gives each gateway with a portal a number of its own, which it keeps, and forgets the others.
    pub(crate) fn number_gateways(&mut self) {
        let named: Vec<String> = self.targets.values().flat_map(|target| target.portals.keys().cloned()).collect();
        self.gateways.retain(|name, _| named.contains(name));
        for name in named {
            let is_free = |group: &u16| self.gateways.values().all(|gateway| gateway.group != *group);
            let group = (1..=u16::MAX).find(is_free).unwrap_or(u16::MAX);
            self.gateways.entry(name).or_insert(Gateway { group });
        }
    }
}

fn no_target(name: &str) -> Refusal {
    Refusal::missing(format!("Target {name} does not exist"))
}
