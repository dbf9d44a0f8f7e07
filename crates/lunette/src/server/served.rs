//! The served state: the targets of a configuration with their disks open and their secrets read.

mod directions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
use crate::disks::Opened;
use crate::server::attempts::Attempts;
use crate::server::unit::{Absence, Disk, DiskStore};

use crate::failure::Failure;
use crate::secret::SecretFiles;
use crate::server::opening::{Openings, start_limit};
use crate::server::reload::{Room, Spares};

/// Everything behind the portals.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) state: Option<Arc<dyn StateStore>>,
    /// The file of the state.
    pub(crate) state_file: Option<Arc<StateFile>>,
    pub(crate) discovery: Authentication,
    /// Why secrets of discovery cannot be used.
    pub(crate) discovery_unusable: Option<String>,
    pub(crate) targets: BTreeMap<String, ServedTarget>,
    /// The secrets of all rules, as they were read last.
    pub(crate) secrets: SecretFiles,
    /// The disks that are being opened.
    pub(crate) openings: Openings,
    /// The files that are being made longer.
    pub(crate) rooms: Attempts<Room>,
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
    /// Opens everything that `config` names, in the time that a start has. What cannot be opened is in
    /// [trouble](Self::troubles), unless the configuration is strict.
    pub(crate) fn open(config: &Config) -> Result<Self, Failure> {
        Self::open_within(config, start_limit(config), &mut Spares::default())
    }

    /// Opens everything that `config` names. Without a `limit` it waits for each disk.
    /// Stores that are open already come from `spares`.
    pub(crate) fn open_within(config: &Config, limit: Option<Duration>, spares: &mut Spares) -> Result<Self, Failure> {
        let until = limit.map(|limit| Instant::now() + limit);
        let open_state = |path| StateFile::open(path).map(Arc::new).map_err(Failure::configuration);
        let state_file = config.state.as_deref().map(open_state).transpose()?;
        let state = state_file.clone().map(|file| file as Arc<dyn StateStore>);
        let on_trouble = OnTrouble::of(config);
        let (discovery, targets) = (Authentication::None, BTreeMap::new());
        let (openings, rooms) = (Openings::default(), Attempts::default());
        let secrets = SecretFiles::read(config.secret_files());
        let known = secrets.clone();
        let mut served =
            Self { state, state_file, discovery, discovery_unusable: None, targets, secrets: known, openings, rooms };
        served.read_discovery(config, on_trouble, &secrets)?;
        for target in &config.targets {
            let open = served.begin_target(target, spares, on_trouble, &secrets)?;
            served.targets.insert(target.name.clone(), open);
        }
        for target in &config.targets {
            if let Some(open) = served.targets.get_mut(&target.name) {
                open.await_disks(&target.name, until, on_trouble)?;
            }
        }
        let shared = served.part_secrets(None);
        on_trouble.check(&shared)?;
        Ok(served)
    }

    /// Takes the secrets of discovery.
    pub(crate) fn read_discovery(
        &mut self,
        config: &Config,
        on_trouble: OnTrouble,
        secrets: &SecretFiles,
    ) -> Result<(), Failure> {
        let rules = &config.discovery;
        let (discovery, why) =
            config::authentication(&rules.chap, rules.mutual_chap.as_ref(), rules.chap_algorithms, secrets);
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
                DiskStore::Absent(Absence { why, .. }) => {
                    Some((Subject::lun(name, *number), Cause::NotOpened, why.to_string()))
                }
                _ => None,
            });
            absent.chain(secrets).collect::<Vec<_>>()
        };
        discovery.chain(self.targets.iter().flat_map(of_target)).collect()
    }

    /// A target whose disks are being opened. Stores that are open already come from `spares`.
    pub(crate) fn begin_target(
        &self,
        target: &Target,
        spares: &mut Spares,
        on_trouble: OnTrouble,
        secrets: &SecretFiles,
    ) -> Result<ServedTarget, Failure> {
        let device = TargetDevice::with_port_groups(target.name.clone(), self.port_groups(target))
            .map_err(Failure::configuration)?;
        let device = Arc::new(device);
        let mut disks = BTreeMap::new();
        for entry in &target.luns {
            let lun = lun(&target.name, entry.number)?;
            let disk = self.begin(target, entry, &device, spares, on_trouble)?;
            device.add(lun, Arc::clone(&disk.unit)).map_err(Failure::configuration)?;
            disks.insert(entry.number, disk);
        }
        let Secrets { authentication, hosts, unusable } = read_secrets(target, secrets)?;
        on_trouble.check(&unusable)?;
        Ok(ServedTarget { device, authentication, hosts, disks, unusable })
    }

    /// Keeps what opening the disks has made: it is served from now on.
    pub(crate) fn keep(&self) {
        for disk in self.targets.values().flat_map(|target| target.disks.values()) {
            if let Some(file) = disk.store.plain_file() {
                file.keep();
            }
        }
    }

    /// The target port groups of a target.
    pub(crate) fn port_groups(&self, target: &Target) -> PortGroupsConfig {
        PortGroupsConfig { state: self.state.clone(), ..port_groups::of(target) }
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

impl ServedTarget {
    /// Waits for the disks that are being opened, at most until `until`, and puts those that are open in their places.
    pub(crate) fn await_disks(
        &mut self,
        name: &str,
        until: Option<Instant>,
        on_trouble: OnTrouble,
    ) -> Result<(), Failure> {
        for (number, disk) in &mut self.disks {
            disk.await_opening(name, *number, until, on_trouble == OnTrouble::Refuse)?;
            if disk.is_open() {
                self.device.assign(lun(name, *number)?, Some(Arc::clone(&disk.unit)));
            }
        }
        Ok(())
    }
}

fn moved(redirect: &Redirect) -> Moved {
    Moved { addresses: redirect.to.clone(), permanent: redirect.permanent }
}

/// The disk of an entry, if it is open already. Refuses a second one over an encrypted place: that is no trouble of the
/// disk's own.
pub(crate) fn take(target: &Target, entry: &LunEntry, spares: &mut Spares) -> Result<Option<Opened>, Failure> {
    if target.gateways.is_some() {
        return Ok(None);
    }
    let open = spares.take(&target.name, entry);
    if open.is_none() {
        spares.check_encrypted(&entry.disk)?;
    }
    Ok(open)
}

/// Finds the secrets of a target.
pub(crate) fn read_secrets(target: &Target, secrets: &SecretFiles) -> Result<Secrets, Failure> {
    let (authentication, why) =
        config::authentication(&target.chap, target.mutual_chap.as_ref(), target.chap_algorithms, secrets);
    let (hosts, of_hosts) = hosts::read(target, secrets)?;
    let own = why.map(|why| (Subject::Target(target.name.clone()), why));
    let of_hosts = of_hosts.into_iter().map(|(name, why)| (Subject::Host { target: target.name.clone(), name }, why));
    Ok(Secrets { authentication, hosts, unusable: own.into_iter().chain(of_hosts).collect() })
}

/// The number of a logical unit of `target`.
pub(crate) fn lun(target: &str, number: u16) -> Result<Lun, Failure> {
    let beyond = || Failure::Configuration(format!("target {target}: LUN {number} is beyond {MAX_FLAT_LUN}"));
    Lun::new(number).ok_or_else(beyond)
}
