//! The next state of a server, opened beside the current one.

use std::collections::BTreeMap;
use std::sync::Arc;

use lunette_api::{Cause, Subject};
use lunette_device::{PortGroupsChange, PortGroupsError};
use lunette_store::{FileStore, Store};
use lunette_target::{Growth, UnitChange, Update};

use super::Spares;
use super::growing::{self, Growing, Room};
use super::scope::{Refusal, Scope};
use crate::config::diff::{Change, LunChange};
use crate::config::{Config, LunEntry, Target, hosts};
use crate::disks::file::{lengths, replaced, warn_of_partial_block};
use crate::failure::Failure;
use crate::secret::SecretFiles;
use crate::server::certificates;
use crate::server::opening::{Settled, change_deadline};
use crate::server::served::{self, OnTrouble, Secrets, Served, ServedTarget, lun};
use crate::server::unit::{Absence, Disk, DiskStore};
use crate::size::Size;

/// Everything needed to switch over. Dropping it leaves the server as it was.
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    pub(super) served: Served,
    pub(super) spares: Spares,
    /// The values that stay as they were, because they cannot be changed.
    pub(super) unchanged: Vec<(Subject, Cause, String)>,
    refusal: Refusal,
    units: Vec<UnitChange>,
    growing: Vec<Growing>,
    /// Files that were made longer for it.
    extended: Vec<Room>,
    /// Stores whose lost writes initiators learn of by it.
    lossy: Vec<Arc<FileStore>>,
    /// Disks under whose paths other files are, until these are open.
    replaced: BTreeMap<(String, u16), Disk>,
}

impl Plan {
    /// Opens what `changes` add, and finds what no configuration shows: changed secrets, other files under the paths of
    /// disks, and other lengths.
    pub(super) fn new(
        served: &Served,
        spares: &Spares,
        config: &Config,
        mut changes: Vec<Change>,
        refusal: Refusal,
        scope: &Scope,
    ) -> Result<Self, Failure> {
        // Also those of rules that stay: a file may hold another secret under the same name.
        let secrets = match scope {
            Scope::All => served.secrets.read_again(config.secret_files()),
            Scope::Targets(_) => served.secrets.read_again(
                config.targets.iter().filter(|target| scope.has(&target.name)).flat_map(Target::secret_files),
            ),
        };
        let mut plan = Self::empty(served, spares, refusal);
        if *scope == Scope::All {
            changes.extend(plan.find_reopened(&changes));
        }
        for change in &changes {
            plan.close(change)?;
        }
        plan.spares.look_at(changes.iter().flat_map(|change| opened(config, change)));
        for change in &changes {
            plan.begin(config, change, &secrets)?;
        }
        plan.await_disks(&mut changes)?;
        plan.spares.forget_passing();
        plan.measure(config, &changes, scope)?;
        // An extension is reported with the length that the file has at the end.
        let is_told = |change: &Change| !matches!(change, Change::Lun { change: LunChange::Extended(_), .. });
        plan.changes.extend(changes.into_iter().filter(is_told));
        plan.read_secrets(config, &secrets, scope)?;
        plan.served.secrets.take(secrets, config.secret_files());
        plan.part_secrets(served)?;
        Ok(plan)
    }

    /// Puts disks in their places that are open by now, and reads the secrets again that could not be used.
    pub(super) fn recover(served: &Served, spares: &Spares, config: &Config) -> Result<Self, Failure> {
        let mut plan = Self::empty(served, spares, Refusal::None);
        for (name, open) in &mut plan.served.targets {
            for (number, disk) in &mut open.disks {
                if let Settled::Opened = disk.settle() {
                    let (device, unit) = (Arc::clone(&open.device), Some(Arc::clone(&disk.unit)));
                    plan.units.push(UnitChange { device, lun: lun(name, *number)?, unit });
                }
            }
        }
        let discovery = plan.served.discovery_unusable.as_ref().map(|_| &config.discovery);
        let is_unusable =
            |target: &&Target| plan.served.targets.get(&target.name).is_some_and(|open| !open.unusable.is_empty());
        let targets: Vec<_> = config.targets.iter().filter(is_unusable).collect();
        let of_targets = targets.iter().flat_map(|target| target.secret_files());
        let files = discovery.iter().flat_map(|rules| rules.secret_files()).chain(of_targets);
        let secrets = served.secrets.read_again(files);
        if discovery.is_some() {
            plan.served.read_discovery(config, OnTrouble::Degrade, &secrets)?;
        }
        for target in targets {
            plan.read_secrets_of(target, &secrets)?;
        }
        plan.served.secrets.take(secrets, config.secret_files());
        plan.part_secrets(served)?;
        Ok(plan)
    }

    fn empty(served: &Served, spares: &Spares, refusal: Refusal) -> Self {
        let (served, spares) = (served.clone(), spares.clone());
        let (changes, unchanged, units, growing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (extended, lossy, replaced) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { changes, served, spares, unchanged, refusal, units, growing, extended, lossy, replaced }
    }

    /// Finds the disks of unchanged LUNs that are to be opened again: another file has the path, or a flush has failed.
    /// The administrator who lets the server look again has seen to the medium.
    fn find_reopened(&mut self, changes: &[Change]) -> Vec<Change> {
        let goes = |name: &str, lun: u16| {
            changes.iter().any(|change| match change {
                Change::TargetRemoved(target) => target == name,
                Change::Lun { target, number, change: LunChange::Removed | LunChange::Replaced } => {
                    target == name && *number == lun
                }
                _ => false,
            })
        };
        let of_target = |(name, target): (&'_ String, &'_ ServedTarget)| {
            let disks = target.disks.iter().filter(|(number, _)| !goes(name, **number));
            disks.map(|(number, disk)| (name.clone(), *number, disk.clone())).collect::<Vec<_>>()
        };
        let stay: Vec<_> = self.served.targets.iter().flat_map(of_target).collect();
        let files: Vec<_> = stay.iter().map(|(.., disk)| (disk.entry.disk.place.path(), disk.store.file())).collect();
        let mut reopened = Vec::new();
        for ((target, number, disk), is_replaced) in stay.iter().zip(replaced(&files)) {
            // An encrypted disk is closed for changes then, for its process.
            let lossy = disk.store.plain_file().filter(|file| file.has_lost_writes());
            self.lossy.extend(lossy.cloned());
            if is_replaced {
                self.replaced.insert((target.clone(), *number), disk.clone());
            }
            if lossy.is_some() || is_replaced {
                let change = LunChange::Replaced;
                reopened.push(Change::Lun { target: target.clone(), number: *number, change });
            }
        }
        reopened
    }

    /// Removes something. Its store is kept for additions.
    fn close(&mut self, change: &Change) -> Result<(), Failure> {
        match change {
            Change::TargetRemoved(name) => {
                let gone = self.served.targets.remove(name);
                for (number, disk) in gone.iter().flat_map(|target| &target.disks) {
                    may_go(name, *number, disk)?;
                    self.spares.put(name, disk);
                }
            }
            Change::Lun { target: name, number, change: LunChange::Removed | LunChange::Replaced } => {
                let Some(target) = self.served.targets.get_mut(name) else { return Ok(()) };
                if let Some(disk) = target.disks.remove(number) {
                    may_go(name, *number, &disk)?;
                    self.spares.put(name, &disk);
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

    /// Begins to open an addition.
    fn begin(&mut self, config: &Config, change: &Change, secrets: &SecretFiles) -> Result<(), Failure> {
        match change {
            Change::TargetAdded(name) => {
                let Some(target) = find_target(config, name) else { return Ok(()) };
                let open = self.served.begin_target(target, &mut self.spares, self.refusal.at(name), secrets)?;
                self.served.targets.insert(name.clone(), open);
            }
            Change::Lun { target: name, number, change: LunChange::Added | LunChange::Replaced } => {
                let Some(target) = find_target(config, name) else { return Ok(()) };
                let Some(entry) = find_lun(target, *number) else { return Ok(()) };
                let Some(device) = self.served.targets.get(name).map(|open| Arc::clone(&open.device)) else {
                    return Ok(());
                };
                let disk = self.served.begin(target, entry, &device, &mut self.spares, self.refusal.at(name))?;
                if let Some(target) = self.served.targets.get_mut(name) {
                    target.disks.insert(*number, disk);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for the additions, all of them until one deadline. A disk whose new file cannot be opened keeps the old
    /// one, which may be deleted and would be lost: that change is taken back.
    fn await_disks(&mut self, changes: &mut Vec<Change>) -> Result<(), Failure> {
        let until = Some(change_deadline(self.refusal != Refusal::None));
        let mut kept = Vec::new();
        for change in &*changes {
            match change {
                Change::TargetAdded(name) => {
                    let Some(target) = self.served.targets.get_mut(name) else { continue };
                    target.await_disks(name, until, self.refusal.at(name))?;
                }
                Change::Lun { target: name, number, change: LunChange::Added | LunChange::Replaced } => {
                    let Some(target) = self.served.targets.get_mut(name) else { continue };
                    let Some(disk) = target.disks.get_mut(number) else { continue };
                    let old = self.replaced.remove(&(name.clone(), *number));
                    // Nothing stands in for it meanwhile: it has the time to take a passphrase to its keys.
                    let until = if old.is_some() { Some(change_deadline(true)) } else { until };
                    disk.await_opening(name, *number, until, self.refusal.at(name) == OnTrouble::Refuse)?;
                    if let (DiskStore::Absent(Absence { why, .. }), Some(old)) = (&disk.store, old) {
                        let why =
                            format!("the file that has its path now is not served, and the old one still is: {why}");
                        self.unchanged.push((Subject::lun(name, *number), Cause::NotChanged, why));
                        *disk = old;
                        kept.push(change.clone());
                        continue;
                    }
                    let (device, unit) = (Arc::clone(&target.device), Some(Arc::clone(&disk.unit)));
                    self.units.push(UnitChange { device, lun: lun(name, *number)?, unit });
                }
                _ => {}
            }
        }
        changes.retain(|change| !kept.contains(change));
        Ok(())
    }

    /// Takes the secrets as they were read.
    fn read_secrets(&mut self, config: &Config, secrets: &SecretFiles, scope: &Scope) -> Result<(), Failure> {
        if *scope == Scope::All {
            self.served.read_discovery(config, self.refusal.at_discovery(), secrets)?;
        }
        let concerned = config.targets.iter().filter(|target| scope.has(&target.name));
        concerned.into_iter().try_for_each(|target| self.read_secrets_of(target, secrets))
    }

    fn read_secrets_of(&mut self, target: &Target, secrets: &SecretFiles) -> Result<(), Failure> {
        let Some(open) = self.served.targets.get_mut(&target.name) else { return Ok(()) };
        let Secrets { authentication, hosts, unusable } = served::read_secrets(target, secrets)?;
        let is_new = |rule: &&(Subject, String)| !open.unusable.contains(rule);
        self.refusal.at(&target.name).check(&unusable.iter().filter(is_new).cloned().collect::<Vec<_>>())?;
        (open.authentication, open.hosts, open.unusable) = (authentication, hosts, unusable);
        Ok(())
    }

    /// Shuts the rules that use one secret in both directions, and finds which rules ask for other secrets than those
    /// that are `served`. What a client changes takes no other rule away.
    fn part_secrets(&mut self, served: &Served) -> Result<(), Failure> {
        let shut = self.served.part_secrets(Some(served));
        if self.refusal != Refusal::None
            && let Some((subject, why)) = shut.iter().find(|(subject, _)| !served.is_unusable(subject))
        {
            return Err(Failure::Configuration(format!("{subject}: {why}")));
        }
        let is_told = |change: &Change| self.changes.contains(change);
        let mut found = Vec::new();
        if !self.served.discovery.has_secrets_of(&served.discovery) {
            found.push(Change::DiscoverySecrets);
        }
        for (name, open) in &self.served.targets {
            let Some(old) = served.targets.get(name) else { continue };
            if !open.authentication.has_secrets_of(&old.authentication)
                || !hosts::have_same_secrets(&old.hosts, &open.hosts)
            {
                found.push(Change::Secrets(name.clone()));
            }
        }
        found.retain(|change| !is_told(change));
        self.changes.extend(found);
        Ok(())
    }

    /// A logical unit cannot be changed: that refuses the plan, or it stays as it is. `is_asked`: a change to it is
    /// asked for.
    fn stays(&mut self, target: &str, number: u16, is_asked: bool, why: String) -> Result<(), Failure> {
        let subject = Subject::lun(target, number);
        match self.refusal.at(target) {
            OnTrouble::Refuse if is_asked || self.refusal == Refusal::All => {
                Err(Failure::disk(format!("{subject}: {why}")))
            }
            _ => {
                self.unchanged.push((subject, Cause::NotChanged, why));
                Ok(())
            }
        }
    }

    /// Finds the disks that are to have another length, and with all in scope those that have one.
    fn measure(&mut self, config: &Config, changes: &[Change], scope: &Scope) -> Result<(), Failure> {
        let served =
            |target: &Target| Some((target.name.clone(), self.served.targets.get(&target.name)?.disks.clone()));
        let all: Vec<_> = config.targets.iter().filter_map(served).collect();
        let is_measured = |name: &str, number| *scope == Scope::All || extended(changes, name, number) > 0;
        let all = all.iter().flat_map(|(name, disks)| disks.iter().map(move |(number, disk)| (name, *number, disk)));
        let disks: Vec<_> = all.filter(|(name, number, _)| is_measured(name, *number)).collect();
        let files = disks.iter().filter_map(|(.., disk)| Some((&disk.entry.disk.place as _, disk.store.plain_file()?)));
        let files: Vec<_> = files.collect();
        let mut lengths = lengths(&files).into_iter();
        for (name, number, disk) in &disks {
            let len = disk.store.plain_file().and_then(|_| lengths.next().flatten());
            let at_least = extended(changes, name, *number);
            if let (Refusal::Of { .. }, 1.., Some(Ok(has))) = (&self.refusal, at_least, &len)
                && *has > at_least
            {
                let what = Subject::lun(*name, *number);
                let why = format!("{what}: it has {has} bytes, and create is {at_least}; disks do not shrink");
                return Err(Failure::disk(why));
            }
            match Growing::find(name, *number, disk, len, at_least) {
                Ok(growing) => self.growing.extend(growing),
                Err(why) => self.stays(name, *number, at_least > 0, why)?,
            }
        }
        Ok(())
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.growing.is_empty() && self.units.is_empty()
    }

    /// The plan as the server's update. Files are extended here, the last step that can fail; one that
    /// does not answer stays as it is. The new length is not served before the update is applied.
    pub(super) fn update(&mut self, config: &Config) -> Result<Update, Failure> {
        let port_groups = self.port_groups(config)?;
        let mut growth = Vec::new();
        let growing = std::mem::take(&mut self.growing);
        let until = change_deadline(self.refusal != Refusal::None);
        let rooms = growing::make_rooms(&growing, &self.served.rooms, until);
        for (Growing { target, number, place, unit, store, at_least }, room) in growing.into_iter().zip(rooms) {
            let before = store.geometry().len_bytes;
            let room = match room {
                Ok(room) => room,
                Err(why) => {
                    self.stays(&target, number, at_least > 0, format!("the disk cannot be made longer: {why}"))?;
                    continue;
                }
            };
            let len = room.len_bytes();
            self.extended.push(room);
            if let Some(path) = place.path() {
                warn_of_partial_block(&Subject::lun(&*target, number), path, &store, &unit);
            }
            let change = if len < before { LunChange::Shrunk(len) } else { LunChange::Grown(len) };
            self.changes.push(Change::Lun { target, number, change });
            growth.push(Growth { unit, grow: Box::new(move || store.serve_len(len)) });
        }
        Ok(Update {
            portals: certificates::portals(config),
            datagram_portals: config.datagram_portals(),
            leaves_closed: !config.strict,
            required_portals: self.refusal.portals(),
            targets: self.served.target_configs(config),
            discovery: self.served.discovery.clone(),
            port_groups,
            units: std::mem::take(&mut self.units),
            growth,
        })
    }

    /// Ends the plan: what was made on file systems is kept when the server has switched over, else taken back.
    pub(super) fn settle(&mut self, has_switched: bool) {
        let extended = std::mem::take(&mut self.extended);
        if has_switched {
            extended.into_iter().for_each(Room::keep);
            self.served.keep();
            self.lossy.drain(..).for_each(|store| store.accept_loss());
        }
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

/// The logical units that a change opens.
fn opened<'a>(config: &'a Config, change: &Change) -> Vec<&'a LunEntry> {
    match change {
        Change::TargetAdded(name) => {
            find_target(config, name).map_or_else(Vec::new, |target| target.luns.iter().collect())
        }
        Change::Lun { target, number, change: LunChange::Added | LunChange::Replaced } => {
            find_target(config, target).and_then(|target| find_lun(target, *number)).into_iter().collect()
        }
        _ => Vec::new(),
    }
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

#[cfg(test)]
mod tests;
