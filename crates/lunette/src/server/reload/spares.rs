//! Stores that are no longer served but still open.
//!
//! A store locks its file. Until the last command of a removed disk has ended, no other store can open that file; a
//! disk that is added takes over the open store. A removed disk that is only being opened is closed before the place is
//! opened again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lunette_store::FileIdentity;

use crate::config::{LunEntry, pools};
use crate::disks::file::{identities_at, is_replaced};
use crate::disks::{DiskName, Opened, WeakOpened, identities};
use crate::failure::Failure;
use crate::server::opening::Opening;
use crate::server::unit::{Disk, DiskStore};

/// The open stores, as long as the server holds them.
#[derive(Clone, Default)]
pub(crate) struct Spares {
    disks: Vec<Spare>,
    /// The attempts for removed disks that have begun, and the lanes in which they were made.
    attempts: Vec<(String, Opening)>,
    /// The files that have the paths of the disks that a plan opens, as far as they answer.
    files: BTreeMap<PathBuf, FileIdentity>,
}

#[derive(Clone)]
struct Spare {
    entry: LunEntry,
    target: String,
    disk: WeakOpened,
}

impl Spares {
    /// Remembers a removed disk that is open, or the attempt to open it. One that other gateways offer is opened again.
    pub(super) fn put(&mut self, target: &str, disk: &Disk) {
        self.disks.retain(|spare| spare.disk.upgrade().is_some());
        match &disk.store {
            DiskStore::Open(open) => {
                self.disks.push(Spare { entry: disk.entry.clone(), target: target.into(), disk: open.downgrade() });
            }
            DiskStore::Shared(_) => {}
            DiskStore::Absent(_) => {
                let attempt = disk.attempt().filter(|attempt| attempt.has_begun()).cloned();
                self.attempts.extend(disk.entry.disk.place.plain_identity().zip(attempt));
            }
        }
    }

    /// Remembers a disk that an earlier process has left, for as long as the caller holds it.
    pub(crate) fn put_left(&mut self, target: &str, entry: &LunEntry, disk: &Opened) {
        self.disks.push(Spare { entry: entry.clone(), target: target.into(), disk: disk.downgrade() });
    }

    /// Forgets what no later change finds: attempts, and stores in memory, which have no name to be found by and live
    /// only as long as they keep their place.
    pub(super) fn forget_passing(&mut self) {
        self.disks.retain(|spare| spare.entry.disk.place.plain_identity().is_some());
        self.attempts.clear();
        self.files.clear();
    }

    /// Takes the attempts for removed disks in this lane.
    pub(crate) fn take_attempts(&mut self, lane: &str) -> Vec<Opening> {
        self.attempts.extract_if(.., |(known, _)| known == lane).map(|(_, attempt)| attempt).collect()
    }

    /// Finds the files of disks that are to be opened. All together: one that hangs costs the time of one.
    pub(crate) fn look_at<'a>(&mut self, wanted: impl Iterator<Item = &'a LunEntry>) {
        let is_needed = self.disks.iter().any(|spare| spare.entry.disk.place.path().is_some());
        let paths = wanted.filter(|_| is_needed).filter_map(|entry| entry.disk.place.path());
        self.files = identities_at(paths.map(Path::to_owned).collect());
    }

    /// Takes the disk that is open already for this entry of a target. A file is known by what has its path now, so
    /// that files can be renamed, and change places; one that was not [looked at](Self::look_at) by its name.
    pub(crate) fn take(&mut self, target: &str, wanted: &LunEntry) -> Option<Opened> {
        let now = wanted.disk.place.path().and_then(|path| self.files.get(path));
        let fits = |spare: &Spare| {
            let disk = spare.disk.upgrade()?;
            let is_same = match (disk.file(), now) {
                (Some(file), Some(now)) => {
                    // A volume is behind a gate, which its file by another name is not.
                    let volume = |entry: &LunEntry| pools::volume(entry).map(ToString::to_string);
                    let are_one_volume = volume(&spare.entry) == volume(wanted);
                    file.identity() == *now && spare.entry.disk.keys == wanted.disk.keys && are_one_volume
                }
                _ => spare.entry.disk == wanted.disk,
            };
            let is_here = spare.target == target && spare.entry.number == wanted.number;
            let has_place = wanted.disk.place.plain_identity().is_some();
            let may_write = wanted.read_only || !disk.store.capabilities().read_only;
            let is_full = spare.entry.provisioning == wanted.provisioning;
            (is_same && is_full && may_write && (has_place || is_here)).then_some(disk)
        };
        let (index, disk) = self.disks.iter().enumerate().find_map(|(index, spare)| Some((index, fits(spare)?)))?;
        self.disks.swap_remove(index);
        Some(disk)
    }
}

impl Spares {
    /// Refuses a disk whose place is still open, when either is encrypted: two open volumes write over each other's
    /// quanta and journal.
    pub(crate) fn check_encrypted(&self, wanted: &DiskName) -> Result<(), Failure> {
        let is_encrypted = |spare: &&Spare| spare.entry.disk.keys.is_some() || wanted.keys.is_some();
        let spares: Vec<_> = self.disks.iter().filter(is_encrypted).collect();
        let places: Vec<_> = spares.iter().map(|spare| &spare.entry.disk.place).chain([&wanted.place]).collect();
        let identities = if spares.is_empty() { Vec::new() } else { identities(&places) };
        let is_here = |disk: Opened| !is_replaced(wanted.place.path(), &disk);
        let collides = |(spare, identity): (&&Spare, &Option<String>)| {
            identity.is_some() && Some(identity) == identities.last() && spare.disk.upgrade().is_some_and(is_here)
        };
        if spares.iter().zip(&identities).any(collides) {
            return Err(Failure::Configuration(format!(
                "{} is an encrypted disk that is still open as the configuration had it; remove it in one change, and add it in \
                 the next",
                wanted.place
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::disks::Place;

    /// A disk as the configuration has it.
    fn disk(entry: &str) -> LunEntry {
        config::one_lun(entry)
    }

    fn open(entry: LunEntry) -> Disk {
        crate::server::unit::open(entry, "iqn.a", None, None).unwrap()
    }

    #[test]
    fn a_file_is_found_wherever_it_is_wanted_again_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let entry = |rest: &str| disk(&format!("disk = {path:?}, create = \"1M\"{rest}"));
        let elsewhere = |entry: LunEntry| LunEntry { number: 1, ..entry };
        let old = open(entry(""));
        let mut spares = Spares::default();
        spares.put("iqn.a", &old);
        assert!(spares.take("iqn.b", &elsewhere(disk("disk = \"/other\""))).is_none());
        assert!(spares.take("iqn.b", &elsewhere(entry(", provisioning = \"full\""))).is_none());
        assert!(
            spares
                .take("iqn.b", &elsewhere(entry(", read_only = true")))
                .is_some_and(|disk| disk.plain_file().is_some())
        );
        assert!(spares.take("iqn.b", &elsewhere(entry(""))).is_none(), "it is taken");
    }

    #[test]
    fn a_read_only_store_does_not_serve_a_writable_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::write(&path, [0; 4096]).unwrap();
        let entry = |rest: &str| disk(&format!("disk = {path:?}{rest}"));
        let old = open(entry(", read_only = true"));
        let mut spares = Spares::default();
        spares.put("iqn.a", &old);
        assert!(spares.take("iqn.a", &entry("")).is_none());
        assert!(spares.take("iqn.a", &entry(", read_only = true")).is_some());
    }

    #[test]
    fn the_file_of_a_volume_does_not_serve_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db/disk.img");
        std::fs::create_dir(folder.path().join("db")).unwrap();
        std::fs::write(&path, [0; 4096]).unwrap();
        let old = open(disk(&format!("disk = {path:?}")));
        let mut wanted = LunEntry { disk: "volume:tank/db".parse().unwrap(), ..old.entry.clone() };
        let Place::Volume(name) = &mut wanted.disk.place else { panic!("a volume") };
        name.find(Some((&folder.path().to_str().unwrap().parse().unwrap(), None)));
        assert_eq!(wanted.disk.place.path(), Some(&*path));

        let mut spares = Spares::default();
        spares.put("iqn.a", &old);
        spares.look_at([&old.entry, &wanted].into_iter());
        assert!(spares.take("iqn.a", &wanted).is_none(), "no gate is in front of it");
        assert!(spares.take("iqn.a", &old.entry).is_some());
    }

    #[test]
    fn memory_is_found_only_in_its_place_and_while_it_is_served() {
        let old = open(disk("disk = \"mem:1M\""));
        let mut spares = Spares::default();
        spares.put("iqn.a", &old);
        assert!(spares.clone().take("iqn.a", &LunEntry { number: 1, ..old.entry.clone() }).is_none());
        assert!(spares.clone().take("iqn.a", &disk("disk = \"mem:2M\"")).is_none());
        assert!(spares.clone().take("iqn.a", &old.entry).is_some());
        let entry = old.entry.clone();
        drop(old);
        assert!(spares.take("iqn.a", &entry).is_none());
    }
}
