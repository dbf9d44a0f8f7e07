//! The differences between two configurations, and whether a running server can apply them.

use std::fmt;

use lunette_api::Subject;
use lunette_target::{DatagramPlace, PortalConfig};

use super::hosts::HostEntry;
use super::{Config, Discovery, LunEntry, Target, ecl};
use crate::disks::Place;
use crate::disks::memory::Memory;
use crate::size::Size;

/// A difference that a running server can apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    PortalRemoved(PortalConfig),
    PortalAdded(PortalConfig),
    /// An address or interface at which the Effective Cross Layer is spoken.
    DatagramPortalRemoved(DatagramPlace),
    DatagramPortalAdded(DatagramPlace),
    TargetRemoved(String),
    TargetAdded(String),
    /// The target's alias, a text for people.
    Alias(String),
    /// The number of connections that a session may have.
    MaxConnections(String),
    /// Whether connections may have markers, and at which interval.
    MarkerInterval(String),
    /// The address to which initiators are redirected.
    Redirection(String),
    /// The values that sessions may agree to.
    Session(String),
    /// The initiators that are admitted.
    Admission(String),
    /// The rules of initiators.
    Host {
        target: String,
        name: String,
        change: HostChange,
    },
    /// The order in which hosts are looked through.
    HostOrder(String),
    /// The target port groups, or the side that manages them.
    PortGroups(String),
    /// Users, or secrets. A secret that is another one in the file that it was in is found there, not by [`between`].
    Secrets(String),
    /// The target asks its initiators for no proof any more.
    Unproven(String),
    /// The algorithms of CHAP that the target allows.
    Algorithms(String),
    /// Users or secrets of discovery, found like those of targets.
    DiscoverySecrets,
    /// The algorithms of CHAP that discovery allows.
    DiscoveryAlgorithms,
    /// The pools of volumes, or their settings. A volume whose pool is elsewhere is another disk.
    Pools,
    Lun {
        target: String,
        number: u16,
        change: LunChange,
    },
}

impl Change {
    /// Whether it takes away what sessions may use: a target, a logical unit, a host or a portal.
    pub(crate) fn takes_away(&self) -> bool {
        matches!(
            self,
            Self::PortalRemoved(_)
                | Self::DatagramPortalRemoved(_)
                | Self::TargetRemoved(_)
                | Self::Host { change: HostChange::Removed, .. }
                | Self::Lun { change: LunChange::Removed, .. }
        )
    }
}

/// A change to the rules of initiators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostChange {
    Removed,
    Changed,
    Added,
}

/// A change to a logical unit of a target that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LunChange {
    Removed,
    /// Another disk has the number, or initiators must take the disk for another one.
    Replaced,
    Added,
    /// The file is to have at least this length.
    Extended(Size),
    /// The disk has grown to this many bytes. Found by asking the disk, not by [`between`].
    Grown(u64),
    /// The disk has become shorter, and has this many bytes. Found like growth.
    Shrunk(u64),
}

/// A difference that a running server cannot apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The object that would have to be another; `None` for the server as a whole.
    pub(crate) subject: Option<Subject>,
    /// A sentence about it.
    pub(crate) why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The changes that turn `old` into `new`: removals first, then additions.
///
/// # Errors
///
/// Everything that cannot change so.
pub(crate) fn between(old: &Config, new: &Config) -> Result<Vec<Change>, Vec<Refused>> {
    // Without "..", so that a new key does not compile until it is handled here.
    let Config {
        // It says how to change, and changes nothing itself.
        strict: _,
        listen: _,
        portals: _,
        ecl: _,
        ecl_offloads,
        ecl_protect,
        ecl_congestion_control,
        state,
        cores,
        limits,
        discovery,
        api,
        adapters,
        metrics,
        nbd,
        pools,
        targets,
    } = old;
    let Discovery { chap, mutual_chap, chap_algorithms } = discovery;
    let mut found = Found::default();
    if (chap, mutual_chap) != (&new.discovery.chap, &new.discovery.mutual_chap) {
        found.changes.push(Change::DiscoverySecrets);
    }
    if *chap_algorithms != new.discovery.chap_algorithms {
        found.changes.push(Change::DiscoveryAlgorithms);
    }
    if *state != new.state {
        found.refuse(None, "state cannot change while the server runs");
    }
    let carriage = (*ecl_offloads, *ecl_protect, *ecl_congestion_control);
    let new_carriage = (new.ecl_offloads, new.ecl_protect, new.ecl_congestion_control);
    if carriage != new_carriage {
        found.refuse(None, "of ecl, only the list of addresses and interfaces can change while the server runs");
    }
    if *cores != new.cores {
        found.refuse(None, "cores cannot change while the server runs");
    }
    if *api != new.api {
        found.refuse(None, "api cannot change while the server runs");
    }
    if *adapters != new.adapters {
        found.refuse(None, "adapters cannot change while the server runs");
    }
    if *metrics != new.metrics {
        found.refuse(None, "metrics cannot change while the server runs");
    }
    if *nbd != new.nbd {
        found.refuse(None, "nbd cannot change while the server runs");
    }
    if *limits != new.limits {
        found.refuse(None, "limits cannot change while the server runs");
    }
    if *pools != new.pools {
        found.changes.push(Change::Pools);
    }
    let (gone, come) = (without(&old.portals(), &new.portals()), without(&new.portals(), &old.portals()));
    found.changes.extend(gone.into_iter().map(Change::PortalRemoved));
    found.changes.extend(come.into_iter().map(Change::PortalAdded));
    let [before, after] = [old, new].map(|config| config.ecl_places().collect::<Vec<_>>());
    found.changes.extend(without(&before, &after).into_iter().map(Change::DatagramPortalRemoved));
    found.changes.extend(without(&after, &before).into_iter().map(Change::DatagramPortalAdded));
    for target in targets {
        match new.targets.iter().find(|other| other.name == target.name) {
            Some(other) => found.target(target, other),
            None => found.changes.push(Change::TargetRemoved(target.name.clone())),
        }
    }
    let is_new = |target: &&Target| !targets.iter().any(|other| other.name == target.name);
    found.changes.extend(new.targets.iter().filter(is_new).map(|target| Change::TargetAdded(target.name.clone())));
    found.changes.sort_by_key(order);
    if found.refused.is_empty() { Ok(found.changes) } else { Err(found.refused) }
}

/// The entries of one list that the other lacks.
fn without<T: Clone + PartialEq>(list: &[T], other: &[T]) -> Vec<T> {
    let mut other = other.to_vec();
    let mut rest = Vec::new();
    for portal in list {
        match other.iter().position(|same| same == portal) {
            Some(index) => drop(other.swap_remove(index)),
            None => rest.push(portal.clone()),
        }
    }
    rest
}

/// The rank of a change. Removals come first, because a disk may move from one place to another.
fn order(change: &Change) -> u8 {
    match change {
        Change::PortalRemoved(_)
        | Change::PortalAdded(_)
        | Change::DatagramPortalRemoved(_)
        | Change::DatagramPortalAdded(_) => 0,
        Change::TargetRemoved(_) | Change::Lun { change: LunChange::Removed, .. } => 1,
        _ => 2,
    }
}

#[derive(Default)]
struct Found {
    changes: Vec<Change>,
    refused: Vec<Refused>,
}

impl Found {
    fn refuse(&mut self, subject: Option<Subject>, why: impl Into<String>) {
        self.refused.push(Refused { subject, why: why.into() });
    }

    fn target(&mut self, old: &Target, new: &Target) {
        let Target {
            name,
            alias,
            allow,
            chap,
            mutual_chap,
            chap_algorithms,
            max_connections,
            marker_interval,
            session,
            luns,
            redirect,
            access,
            gateways,
            hosts,
            port_groups,
            absent: _,
        } = old;
        let stays = |lun: &LunEntry| new.luns.iter().all(|other| other.number != lun.number || other == lun);
        if *gateways != new.gateways || gateways.is_some() && !luns.iter().all(stays) {
            let why = format!(
                "target {name}: gateways, and the keys of their disks, cannot change while the server runs; disks may come and go"
            );
            self.refuse(Some(Subject::Target(name.clone())), why);
        }
        if *alias != new.alias {
            self.changes.push(Change::Alias(name.clone()));
        }
        if *max_connections != new.max_connections {
            self.changes.push(Change::MaxConnections(name.clone()));
        }
        if *marker_interval != new.marker_interval {
            self.changes.push(Change::MarkerInterval(name.clone()));
        }
        if *redirect != new.redirect {
            self.changes.push(Change::Redirection(name.clone()));
        }
        if *session != new.session {
            self.changes.push(Change::Session(name.clone()));
        }
        if *allow != new.allow {
            self.changes.push(Change::Admission(name.clone()));
        }
        if !chap.is_empty() && new.chap.is_empty() {
            self.changes.push(Change::Unproven(name.clone()));
        } else if *chap != new.chap || *mutual_chap != new.mutual_chap {
            self.changes.push(Change::Secrets(name.clone()));
        }
        if *chap_algorithms != new.chap_algorithms {
            self.changes.push(Change::Algorithms(name.clone()));
        }
        self.hosts(name, hosts, &new.hosts);
        if *access != new.access || *port_groups != new.port_groups {
            self.changes.push(Change::PortGroups(name.clone()));
        }
        let twin = |lun: &LunEntry, luns: &[LunEntry]| luns.iter().find(|other| other.number == lun.number).cloned();
        for lun in luns {
            match twin(lun, &new.luns) {
                Some(other) => self.lun(name, lun, &other),
                None => self.push(name, lun.number, LunChange::Removed),
            }
        }
        for lun in new.luns.iter().filter(|lun| twin(lun, luns).is_none()) {
            self.push(name, lun.number, LunChange::Added);
        }
    }

    fn hosts(&mut self, target: &str, old: &[HostEntry], new: &[HostEntry]) {
        let twin = |host: &HostEntry, hosts: &[HostEntry]| hosts.iter().find(|other| other.name == host.name).cloned();
        let mut push = |host: &HostEntry, change| {
            self.changes.push(Change::Host { target: target.into(), name: host.name.clone(), change });
        };
        for host in old {
            match twin(host, new) {
                Some(other) if other == *host => {}
                Some(_) => push(host, HostChange::Changed),
                None => push(host, HostChange::Removed),
            }
        }
        new.iter().filter(|host| twin(host, old).is_none()).for_each(|host| push(host, HostChange::Added));
        let order = |hosts: &[HostEntry]| hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>();
        let is_same_set = old.len() == new.len() && old.iter().all(|host| twin(host, new).is_some());
        if is_same_set && order(old) != order(new) {
            self.changes.push(Change::HostOrder(target.into()));
        }
    }

    fn lun(&mut self, target: &str, old: &LunEntry, new: &LunEntry) {
        let LunEntry { number, disk, create, provisioning, .. } = old;
        let subject = Subject::lun(target, *number);
        let mut refuse = |why: &str| self.refuse(Some(subject.clone()), format!("{subject}: {why}"));
        match (&disk.place, &new.disk.place) {
            (Place::Memory(Memory(before)), Place::Memory(Memory(after))) if before != after => {
                return refuse("a disk in memory cannot change its size; give the new one another number");
            }
            _ if *disk != new.disk => return self.push(target, *number, LunChange::Replaced),
            _ => {}
        }
        if old.block_size() != new.block_size() {
            refuse("the length of a block (block_size, quantum) cannot change while the disk is served");
        }
        if *provisioning != new.provisioning {
            refuse("provisioning cannot change while the disk is served");
        }
        let extended = match (create, new.create) {
            (Some(Size(before)), Some(Size(after))) if after < *before => {
                refuse(&format!("create is less than the {before} bytes that it was; disks do not shrink"));
                None
            }
            (before, after) => after.filter(|after| before.is_none_or(|before| after.0 > before.0)),
        };
        // A change to any other key makes it another disk to initiators.
        let as_before = LunEntry {
            create: new.create,
            block_size: new.block_size,
            quantum: new.quantum,
            provisioning: new.provisioning,
            ..old.clone()
        };
        if as_before != *new {
            self.push(target, *number, LunChange::Replaced);
        }
        if let Some(size) = extended {
            self.push(target, *number, LunChange::Extended(size));
        }
    }

    fn push(&mut self, target: &str, number: u16, change: LunChange) {
        self.changes.push(Change::Lun { target: target.into(), number, change });
    }
}

impl Change {
    /// The target that it is about.
    pub(crate) fn target(&self) -> Option<String> {
        match self {
            Self::PortalRemoved(_)
            | Self::PortalAdded(_)
            | Self::DatagramPortalRemoved(_)
            | Self::DatagramPortalAdded(_)
            | Self::DiscoverySecrets
            | Self::DiscoveryAlgorithms
            | Self::Pools => None,
            Self::TargetRemoved(name)
            | Self::TargetAdded(name)
            | Self::Alias(name)
            | Self::MaxConnections(name)
            | Self::MarkerInterval(name)
            | Self::Redirection(name)
            | Self::Session(name)
            | Self::Admission(name)
            | Self::HostOrder(name)
            | Self::PortGroups(name)
            | Self::Secrets(name)
            | Self::Algorithms(name)
            | Self::Unproven(name)
            | Self::Host { target: name, .. }
            | Self::Lun { target: name, .. } => Some(name.clone()),
        }
    }
}

/// Says of a portal that it speaks TLS.
fn with_tls(portal: &PortalConfig) -> &'static str {
    if portal.tls.is_some() { " with TLS" } else { "" }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortalRemoved(portal) => {
                write!(f, "portal {} of group {}{} removed", portal.address, portal.group, with_tls(portal))
            }
            Self::PortalAdded(portal) => {
                write!(f, "portal {} of group {}{} added", portal.address, portal.group, with_tls(portal))
            }
            Self::DatagramPortalRemoved(place) => write!(f, "portal {} of ecl removed", ecl::shown(place)),
            Self::DatagramPortalAdded(place) => write!(f, "portal {} of ecl added", ecl::shown(place)),
            Self::TargetRemoved(name) => write!(f, "target {name} removed"),
            Self::TargetAdded(name) => write!(f, "target {name} added"),
            Self::Alias(name) => write!(f, "target {name}: alias changed"),
            Self::MaxConnections(name) => write!(f, "target {name}: max_connections changed"),
            Self::MarkerInterval(name) => write!(f, "target {name}: marker_interval changed"),
            Self::Redirection(name) => write!(f, "target {name}: redirect changed"),
            Self::Session(name) => write!(f, "target {name}: session changed"),
            Self::Admission(name) => write!(f, "target {name}: allow changed"),
            Self::Host { target, name, change } => write!(f, "target {target}: host {name} {change}"),
            Self::HostOrder(name) => write!(f, "target {name}: order of hosts changed"),
            Self::PortGroups(name) => write!(f, "target {name}: target port groups changed"),
            Self::Secrets(name) => write!(f, "target {name}: secrets changed"),
            Self::Unproven(name) => write!(f, "target {name}: chap removed; initiators log in without a proof"),
            Self::Algorithms(name) => write!(f, "target {name}: chap_algorithms changed"),
            Self::DiscoverySecrets => write!(f, "discovery: secrets changed"),
            Self::DiscoveryAlgorithms => write!(f, "discovery: chap_algorithms changed"),
            Self::Pools => write!(f, "pools changed"),
            Self::Lun { target, number, change } => write!(f, "target {target}: LUN {number} {change}"),
        }
    }
}

impl fmt::Display for HostChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => "removed",
            Self::Changed => "changed",
            Self::Added => "added",
        })
    }
}

impl fmt::Display for LunChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed => f.write_str("removed"),
            Self::Replaced => f.write_str("replaced"),
            Self::Added => f.write_str("added"),
            Self::Extended(Size(bytes)) => write!(f, "is to have {bytes} bytes at least"),
            Self::Grown(bytes) => write!(f, "has grown to {bytes} bytes"),
            Self::Shrunk(bytes) => write!(f, "has shrunk to {bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests;
