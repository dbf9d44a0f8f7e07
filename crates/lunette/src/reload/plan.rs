//! The next state of a server, opened beside the current one.

use std::io;
use std::sync::Arc;

use lunette_device::{LogicalUnit, PortGroupsChange, PortGroupsError};
use lunette_store::{FileStore, Store};
use lunette_target::{Growth, UnitChange, Update};

use super::Spares;
use crate::config::diff::{Change, LunChange};
use crate::config::{self, Config, LunEntry, Target, hosts};
use crate::disk::{Disk, DiskStore};
use crate::failure::Failure;
use crate::served::{self, Served, ServedTarget, lun};
use crate::size::Size;

/// Everything needed to switch over. Dropping it leaves the server as it was.
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    pub(super) served: Served,
    pub(super) spares: Spares,
    units: Vec<UnitChange>,
    growing: Vec<Growing>,
}

/// A disk that the configuration makes longer, or that has become longer by itself.
struct Growing {
    target: String,
    number: u16,
    unit: Arc<LogicalUnit>,
    store: Arc<FileStore>,
    /// The length that the configuration asks for; zero when it asks for none.
    at_least: u64,
}

impl Plan {
    /// Opens what `changes` add, and finds what no configuration shows: changed secrets and longer disks.
    pub(super) fn new(
        served: &Served,
        spares: &Spares,
        config: &Config,
        changes: Vec<Change>,
    ) -> Result<Self, Failure> {
        let (served, spares) = (served.clone(), spares.clone());
        let mut plan = Self { changes: Vec::new(), served, spares, units: Vec::new(), growing: Vec::new() };
        for change in &changes {
            plan.close(change)?;
        }
        for change in &changes {
            plan.open(config, change)?;
        }
        plan.spares.forget_memory();
        plan.measure(config, &changes)?;
        // An extension is reported with the length that the file has at the end.
        let is_told = |change: &Change| !matches!(change, Change::Lun { change: LunChange::Extended(_), .. });
        plan.changes.extend(changes.into_iter().filter(is_told));
        plan.read_secrets(config)?;
        Ok(plan)
    }

    /// Removes something. Its store is kept for additions.
    fn close(&mut self, change: &Change) -> Result<(), Failure> {
        match change {
            Change::TargetRemoved(name) => {
                let gone = self.served.targets.remove(name);
                for (number, disk) in gone.iter().flat_map(|target| &target.disks) {
                    may_go(name, *number, disk)?;
                    self.spares.put(name, *number, disk);
                }
            }
            Change::Lun { target: name, number, change: LunChange::Removed | LunChange::Replaced } => {
                let Some(target) = self.served.targets.get_mut(name) else { return Ok(()) };
                if let Some(disk) = target.disks.remove(number) {
                    may_go(name, *number, &disk)?;
                    self.spares.put(name, *number, &disk);
                }
                if matches!(change, Change::Lun { change: LunChange::Removed, .. }) {
                    let device = Arc::clone(&target.device);
                    self.units.push(UnitChange { device, lun: lun(name, *number)?, unit: None });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Opens an addition.
    fn open(&mut self, config: &Config, change: &Change) -> Result<(), Failure> {
        match change {
            Change::TargetAdded(name) => {
                let Some(target) = find_target(config, name) else { return Ok(()) };
                let open = self.served.open_target(target, &mut self.spares)?;
                self.served.targets.insert(name.clone(), open);
            }
            Change::Lun { target: name, number, change: LunChange::Added | LunChange::Replaced } => {
                let Some(entry) = find_target(config, name).and_then(|target| find_lun(target, *number)) else {
                    return Ok(());
                };
                let disk = self.served.open_disk(name, entry, &mut self.spares)?;
                let Some(target) = self.served.targets.get_mut(name) else { return Ok(()) };
                let (device, unit) = (Arc::clone(&target.device), Some(Arc::clone(&disk.unit)));
                self.units.push(UnitChange { device, lun: lun(name, *number)?, unit });
                target.disks.insert(*number, disk);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads all secrets again: a file may hold another secret under the same name.
    fn read_secrets(&mut self, config: &Config) -> Result<(), Failure> {
        let discovery = config::authentication(&config.discovery.chap, config.discovery.mutual_chap.as_ref())?;
        if !discovery.same_as(&self.served.discovery) {
            self.changes.push(Change::DiscoverySecrets);
            self.served.discovery = discovery;
        }
        for target in &config.targets {
            let Some(open) = self.served.targets.get_mut(&target.name) else { continue };
            let (authentication, hosts) = (served::authentication(target)?, hosts::read(target)?);
            if !authentication.same_as(&open.authentication) || !hosts::have_same_secrets(&hosts, &open.hosts) {
                self.changes.push(Change::Secrets(target.name.clone()));
            }
            (open.authentication, open.hosts) = (authentication, hosts);
        }
        Ok(())
    }

    /// Finds the disks that have grown or are to grow.
    fn measure(&mut self, config: &Config, changes: &[Change]) -> Result<(), Failure> {
        for target in &config.targets {
            let Some(open) = self.served.targets.get(&target.name) else { continue };
            for (number, disk) in &open.disks {
                let at_least = extended(changes, &target.name, *number);
                self.growing.extend(Growing::find(&target.name, *number, disk, at_least)?);
            }
        }
        Ok(())
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.growing.is_empty()
    }

    /// The plan as the server's update. Files are extended here, the last step that can fail. The new length is not served
    /// before the update is applied.
    pub(super) fn update(&mut self, config: &Config) -> Result<Update, Failure> {
        let port_groups = self.port_groups(config)?;
        let mut growth = Vec::new();
        for Growing { target, number, unit, store, at_least } in self.growing.drain(..) {
            let len = store.make_room(at_least).map_err(|error| {
                Failure::disk(format!("target {target}: LUN {number}: the disk cannot be made longer: {error}"))
            })?;
            self.changes.push(Change::Lun { target, number, change: LunChange::Grown(len) });
            growth.push(Growth { unit, grow: Box::new(move || store.serve_len(len)) });
        }
        Ok(Update {
            portals: config.portals(),
            datagram_portals: config.datagram_portals(),
            leaves_closed: false,
            targets: self.served.target_configs(config),
            discovery: self.served.discovery.clone(),
            port_groups,
            units: std::mem::take(&mut self.units),
            growth,
        })
    }

    /// Prepares other target port groups.
    fn port_groups(&self, config: &Config) -> Result<Vec<PortGroupsChange>, Failure> {
        let changed = self.changes.iter().filter_map(|change| match change {
            Change::PortGroups(name) => Some((find_target(config, name)?, self.served.targets.get(name)?)),
            _ => None,
        });
        let prepare = |(target, open): (&Target, &ServedTarget)| {
            let failed = |error: PortGroupsError| Failure::Configuration(format!("target {}: {error}", target.name));
            open.device.prepare_port_groups(self.served.port_groups(target)).map_err(failed)
        };
        changed.map(prepare).collect()
    }
}

impl Growing {
    /// Measures one disk. A disk that has shrunk cannot be served any longer.
    fn find(target: &str, number: u16, disk: &Disk, at_least: u64) -> Result<Option<Self>, Failure> {
        let failed = |why: String| Failure::disk(format!("target {target}: LUN {number}: {why}"));
        let DiskStore::File(store) = &disk.store else {
            return if at_least == 0 {
                Ok(None)
            } else {
                Err(failed("create makes files longer, and no other disks".into()))
            };
        };
        let unknown = |error: io::Error| failed(format!("cannot find out its length: {error}"));
        let (served, now) = (store.geometry().len_bytes, store.current_len().map_err(unknown)?);
        if now < served {
            return Err(failed(format!("the disk has shrunk from {served} to {now} bytes; make it as long as it was")));
        }
        if now == served && at_least <= now {
            return Ok(None);
        }
        if at_least > now && store.is_block_device().map_err(unknown)? {
            return Err(failed("create cannot make a block device longer; resize the device itself".into()));
        }
        let (unit, store) = (Arc::clone(&disk.unit), Arc::clone(store));
        Ok(Some(Self { target: target.into(), number, unit, store, at_least }))
    }
}

/// Refuses to replace a unit that is being sanitized, because its successor would know nothing of the operation.
fn may_go(target: &str, number: u16, disk: &Disk) -> Result<(), Failure> {
    if disk.unit.is_being_sanitized() {
        let what = format!("target {target}: LUN {number} is being sanitized; change it when that has ended");
        return Err(Failure::Configuration(what));
    }
    Ok(())
}

fn find_target<'a>(config: &'a Config, name: &str) -> Option<&'a Target> {
    config.targets.iter().find(|target| target.name == name)
}

fn find_lun(target: &Target, number: u16) -> Option<&LunEntry> {
    target.luns.iter().find(|entry| entry.number == number)
}

/// The length in bytes that a file is to have from now on; zero when it does not change.
fn extended(changes: &[Change], name: &str, lun: u16) -> u64 {
    let mut lengths = changes.iter().filter_map(|change| match change {
        Change::Lun { target, number, change: LunChange::Extended(Size(bytes)) }
            if target == name && *number == lun =>
        {
            Some(*bytes)
        }
        _ => None,
    });
    lengths.next().unwrap_or(0)
}
