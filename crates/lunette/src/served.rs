//! The served state: the targets of a configuration with their disks open and their secrets read.

mod directions;

use std::collections::BTreeMap;
use std::sync::Arc;

use lunette_api::{Cause, Subject};
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
    /// Why secrets of discovery cannot be used.
    pub(crate) discovery_unusable: Option<String>,
    pub(crate) targets: BTreeMap<String, ServedTarget>,
}

/// A target that is being served.
#[derive(Clone)]
pub(crate) struct ServedTarget {
    pub(crate) device: Arc<TargetDevice>,
    pub(crate) authentication: Authentication,
    pub(crate) hosts: Vec<HostConfig>,
    pub(crate) disks: BTreeMap<u16, Disk>,
    /// The rules whose secrets cannot be used, and why.
    pub(crate) unusable: Vec<(Subject, String)>,
}

/// The secrets of a target, read.
pub(crate) struct Secrets {
    pub(crate) authentication: Authentication,
    pub(crate) hosts: Vec<HostConfig>,
    pub(crate) unusable: Vec<(Subject, String)>,
}

/// A failure of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnTrouble {
    /// Ends the whole change, or the start.
    Refuse,
    /// Leaves that object out; all others are served.
    Degrade,
}

impl OnTrouble {
    /// At the start, and when files are read again.
    pub(crate) fn of(config: &Config) -> Self {
        if config.strict { Self::Refuse } else { Self::Degrade }
    }

    /// Refuses rules whose secrets cannot be used.
    pub(crate) fn check(self, unusable: &[(Subject, String)]) -> Result<(), Failure> {
        match (self, unusable) {
            (Self::Refuse, [(subject, why), ..]) => Err(Failure::Configuration(format!("{subject}: {why}"))),
            _ => Ok(()),
        }
    }
}

impl Served {
    /// Opens everything that `config` names. What cannot be opened is in [trouble](Self::troubles), unless the
    /// configuration is strict.
    pub(crate) fn open(config: &Config) -> Result<Self, Failure> {
        let state: Option<Arc<dyn StateStore>> = match &config.state {
            Some(path) => Some(Arc::new(StateFile::open(path).map_err(Failure::configuration)?)),
            None => None,
        };
        let on_trouble = OnTrouble::of(config);
        let (discovery, targets) = (Authentication::None, BTreeMap::new());
        let mut served = Self { state, discovery, discovery_unusable: None, targets };
        served.read_discovery(config, on_trouble)?;
        for target in &config.targets {
            let open = served.open_target(target, &mut Spares::default(), on_trouble)?;
            served.targets.insert(target.name.clone(), open);
        }
        let shared = served.part_secrets(None);
        on_trouble.check(&shared)?;
        Ok(served)
    }

    /// Reads the secrets of discovery.
    pub(crate) fn read_discovery(&mut self, config: &Config, on_trouble: OnTrouble) -> Result<(), Failure> {
        let rules = &config.discovery;
        let (discovery, why) = config::authentication(&rules.chap, rules.mutual_chap.as_ref());
        let unusable: Vec<_> = why.iter().map(|why| (Subject::Discovery, why.clone())).collect();
        on_trouble.check(&unusable)?;
        (self.discovery, self.discovery_unusable) = (discovery, why);
        Ok(())
    }

    /// The objects that are not served as the configuration says.
    pub(crate) fn troubles(&self) -> Vec<(Subject, Cause, String)> {
        let discovery = self.discovery_unusable.iter().map(|why| (Subject::Discovery, Cause::Secret, why.clone()));
        let of_target = |(name, target): (&String, &ServedTarget)| {
            let secrets = target.unusable.iter().map(|(subject, why)| (subject.clone(), Cause::Secret, why.clone()));
            let absent = target.disks.iter().filter_map(|(number, disk)| match &disk.store {
                DiskStore::Absent(why) => Some((Subject::lun(name, *number), Cause::NotOpened, why.to_string())),
                _ => None,
            });
            absent.chain(secrets).collect::<Vec<_>>()
        };
        discovery.chain(self.targets.iter().flat_map(of_target)).collect()
    }

    /// Opens one target. Stores that are open already come from `spares`.
    pub(crate) fn open_target(
        &self,
        target: &Target,
        spares: &mut Spares,
        on_trouble: OnTrouble,
    ) -> Result<ServedTarget, Failure> {
        let device = TargetDevice::with_port_groups(target.name.clone(), self.port_groups(target))
            .map_err(Failure::configuration)?;
        let device = Arc::new(device);
        let mut disks = BTreeMap::new();
        for entry in &target.luns {
            let lun = lun(&target.name, entry.number)?;
            let mut disk = self.open_or_stand_in(target, entry, spares, on_trouble)?;
            device.add(lun, Arc::clone(&disk.unit)).map_err(Failure::configuration)?;
            match share(target, lun, &device, &disk) {
                Err(failure) if on_trouble == OnTrouble::Degrade => {
                    disk = stand_in(target, entry, &failure)?;
                    device.assign(lun, Some(Arc::clone(&disk.unit)));
                }
                shared => shared?,
            }
            disks.insert(entry.number, disk);
        }
        let Secrets { authentication, hosts, unusable } = read_secrets(target)?;
        on_trouble.check(&unusable)?;
        Ok(ServedTarget { device, authentication, hosts, disks, unusable })
    }

    /// Keeps what opening the disks has made: it is served from now on.
    pub(crate) fn keep(&self) {
        for disk in self.targets.values().flat_map(|target| target.disks.values()) {
            if let DiskStore::File(store) = &disk.store {
                store.keep();
            }
        }
    }

    /// The target port groups of a target.
    pub(crate) fn port_groups(&self, target: &Target) -> PortGroupsConfig {
        PortGroupsConfig { state: self.state.clone(), ..port_groups::of(target) }
    }

    /// Opens one disk, or gives what stands in for it until it can be opened.
    pub(crate) fn open_or_stand_in(
        &self,
        target: &Target,
        entry: &LunEntry,
        spares: &mut Spares,
        on_trouble: OnTrouble,
    ) -> Result<Disk, Failure> {
        let open = take(target, entry, spares)?;
        match (self.open_disk(target, entry, open), on_trouble) {
            (Err(failure), OnTrouble::Degrade) => stand_in(target, entry, &failure),
            (open, _) => open,
        }
    }

    /// Opens one disk that could not be opened before.
    pub(crate) fn reopen_disk(&self, target: &Target, entry: &LunEntry, spares: &mut Spares) -> Result<Disk, Failure> {
        let open = take(target, entry, spares)?;
        self.open_disk(target, entry, open)
    }

    /// Opens one disk. `open` is its store, if it is open already.
    fn open_disk(&self, target: &Target, entry: &LunEntry, open: Option<DiskStore>) -> Result<Disk, Failure> {
        let config = DiskConfig::from(entry);
        match target.gateways {
            Some(_) => disk::open_shared(config, &target.name, entry.number),
            None => disk::open(config, &target.name, entry.number, self.state.as_ref(), open),
        }
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

fn moved(redirect: &Redirect) -> Moved {
    Moved { addresses: redirect.to.clone(), permanent: redirect.permanent }
}

/// The store of a disk that is open already. Refuses a second one over an encrypted place: that is no trouble of the
/// disk's own.
fn take(target: &Target, entry: &LunEntry, spares: &mut Spares) -> Result<Option<DiskStore>, Failure> {
    let config = DiskConfig::from(entry);
    if target.gateways.is_some() {
        return Ok(None);
    }
    let open = spares.take(&target.name, entry.number, &config);
    if open.is_none() {
        spares.check_encrypted(&config.name)?;
    }
    Ok(open)
}

/// Offers a disk together with other gateways, where the target has them. Its LUN is there already.
pub(crate) fn share(target: &Target, lun: Lun, device: &Arc<TargetDevice>, disk: &Disk) -> Result<(), Failure> {
    match (&target.gateways, &disk.store) {
        (Some(gateways), DiskStore::Shared(store)) => gateways::start(gateways, store, device, lun, &disk.unit),
        _ => Ok(()),
    }
}

/// The stand-in for a disk that cannot be opened.
fn stand_in(target: &Target, entry: &LunEntry, failure: &Failure) -> Result<Disk, Failure> {
    disk::stand_in(DiskConfig::from(entry), &target.name, entry.number, &failure.to_string())
}

/// Reads the secrets of a target.
pub(crate) fn read_secrets(target: &Target) -> Result<Secrets, Failure> {
    let (authentication, why) = config::authentication(&target.chap, target.mutual_chap.as_ref());
    let (hosts, of_hosts) = hosts::read(target)?;
    let own = why.map(|why| (Subject::Target(target.name.clone()), why));
    let of_hosts = of_hosts.into_iter().map(|(name, why)| (Subject::Host { target: target.name.clone(), name }, why));
    Ok(Secrets { authentication, hosts, unusable: own.into_iter().chain(of_hosts).collect() })
}

/// The number of a logical unit of `target`.
pub(crate) fn lun(target: &str, number: u16) -> Result<Lun, Failure> {
    let beyond = || Failure::Configuration(format!("target {target}: LUN {number} is beyond {MAX_FLAT_LUN}"));
    Lun::new(number).ok_or_else(beyond)
}
