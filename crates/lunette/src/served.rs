//! The served state: the targets of a configuration with their disks open and their secrets read.

use std::collections::BTreeMap;
use std::sync::Arc;

use lunette_device::{PortGroupsConfig, TargetDevice};
use lunette_scsi::{Lun, MAX_FLAT_LUN};
use lunette_session::Authentication;
use lunette_session::iscsi_target::Moved;
use lunette_session::keys::Offer;
use lunette_state::{StateFile, StateStore};
use lunette_target::{HostConfig, TargetConfig};

use crate::config::{self, Config, LunEntry, Redirect, Target};
use crate::config::{hosts, port_groups};
use crate::disk::{self, Disk, DiskConfig, DiskStore};
use crate::failure::Failure;
use crate::gateways;
use crate::reload::Spares;

/// Everything behind the portals.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) state: Option<Arc<dyn StateStore>>,
    pub(crate) discovery: Authentication,
    pub(crate) targets: BTreeMap<String, ServedTarget>,
}

/// A target that is being served.
#[derive(Clone)]
pub(crate) struct ServedTarget {
    pub(crate) device: Arc<TargetDevice>,
    pub(crate) authentication: Authentication,
    pub(crate) hosts: Vec<HostConfig>,
    pub(crate) disks: BTreeMap<u16, Disk>,
}

impl Served {
    /// Opens everything that `config` names.
    pub(crate) fn open(config: &Config) -> Result<Self, Failure> {
        let state: Option<Arc<dyn StateStore>> = match &config.state {
            Some(path) => Some(Arc::new(StateFile::open(path).map_err(Failure::configuration)?)),
            None => None,
        };
        let discovery = config::authentication(&config.discovery.chap, config.discovery.mutual_chap.as_ref())?;
        check_encrypted(config)?;
        let mut served = Self { state, discovery, targets: BTreeMap::new() };
        for target in &config.targets {
            let open = served.open_target(target, &mut Spares::default())?;
            served.targets.insert(target.name.clone(), open);
        }
        Ok(served)
    }

    /// Opens one target. Stores that are open already come from `spares`.
    pub(crate) fn open_target(&self, target: &Target, spares: &mut Spares) -> Result<ServedTarget, Failure> {
        let device = TargetDevice::with_port_groups(target.name.clone(), self.port_groups(target))
            .map_err(Failure::configuration)?;
        let device = Arc::new(device);
        let mut disks = BTreeMap::new();
        for entry in &target.luns {
            let disk = match &target.gateways {
                Some(_) => disk::open_shared(DiskConfig::from(entry), &target.name, entry.number)?,
                None => self.open_disk(&target.name, entry, spares)?,
            };
            device.add(lun(&target.name, entry.number)?, Arc::clone(&disk.unit)).map_err(Failure::configuration)?;
            if let (Some(gateways), DiskStore::Shared(store)) = (&target.gateways, &disk.store) {
                gateways::start(gateways, store, &device, lun(&target.name, entry.number)?, &disk.unit)?;
            }
            disks.insert(entry.number, disk);
        }
        let (authentication, hosts) = (authentication(target)?, hosts::read(target)?);
        Ok(ServedTarget { device, authentication, hosts, disks })
    }

    /// The target port groups of a target.
    pub(crate) fn port_groups(&self, target: &Target) -> PortGroupsConfig {
        PortGroupsConfig { state: self.state.clone(), ..port_groups::of(target) }
    }

    /// Opens one disk; its store comes from `spares` when it is open already.
    pub(crate) fn open_disk(&self, target: &str, entry: &LunEntry, spares: &mut Spares) -> Result<Disk, Failure> {
        lun(target, entry.number)?;
        let config = DiskConfig::from(entry);
        let open = spares.take(target, entry.number, &config);
        if open.is_none() {
            spares.check_encrypted(&config.name)?;
        }
        disk::open(config, target, entry.number, self.state.as_ref(), open)
    }

    /// The targets as server configurations, in the order of `config`, from which they were opened.
    pub(crate) fn target_configs(&self, config: &Config) -> Vec<TargetConfig> {
        let served = |target: &Target| {
            let open = self.targets.get(&target.name)?;
            Some(TargetConfig {
                alias: target.alias.clone(),
                authentication: open.authentication.clone(),
                hosts: open.hosts.clone(),
                offer: Offer {
                    max_connections: target.max_connections,
                    marker_interval: target.marker_interval,
                    ..target.session.offer()
                },
                moved: target.redirect.as_ref().map(moved),
                ..TargetConfig::open(Arc::clone(&open.device))
            })
        };
        config.targets.iter().filter_map(served).collect()
    }
}

/// Refuses two logical units on one encrypted place: each would write over the other's quanta and journal.
pub(crate) fn check_encrypted(config: &Config) -> Result<(), Failure> {
    let mut known: BTreeMap<String, (&str, &LunEntry)> = BTreeMap::new();
    let entries = config.targets.iter().flat_map(|target| target.luns.iter().map(move |entry| (&*target.name, entry)));
    for (target, entry) in entries {
        let Some(identity) = entry.disk.place.identity() else { continue };
        let Some((other, first)) = known.insert(identity, (target, entry)) else { continue };
        if entry.disk.keys.is_some() || first.disk.keys.is_some() {
            let (place, one, two) = (&entry.disk.place, first.number, entry.number);
            return Err(Failure::Configuration(format!(
                "LUN {one} of {other} and LUN {two} of {target} are one encrypted disk, {place}; leave out one of them"
            )));
        }
    }
    Ok(())
}

fn moved(redirect: &Redirect) -> Moved {
    Moved { addresses: redirect.to.clone(), permanent: redirect.permanent }
}

/// Reads the secrets of a target.
pub(crate) fn authentication(target: &Target) -> Result<Authentication, Failure> {
    config::authentication(&target.chap, target.mutual_chap.as_ref())
}

/// The number of a logical unit of `target`.
pub(crate) fn lun(target: &str, number: u16) -> Result<Lun, Failure> {
    let beyond = || Failure::Configuration(format!("target {target}: LUN {number} is beyond {MAX_FLAT_LUN}"));
    Lun::new(number).ok_or_else(beyond)
}
