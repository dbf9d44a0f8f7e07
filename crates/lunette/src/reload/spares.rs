//! Stores that are no longer served but still open.
//!
//! A store locks its file. Until the last command of a removed disk has ended, no other store can open that file; a
//! disk that is added takes over the open store. A removed disk that is only being opened is closed before the place is
//! opened again.

use std::sync::{Arc, Weak};

use lunette_rbd::{GatewayStore, RbdStore};
use lunette_store::{FileStore, MemoryStore, Store};
use lunette_volume::Volume;

use crate::disk::{Disk, DiskConfig, DiskName, DiskStore, identities};
use crate::encrypted::EncryptedStore;
use crate::failure::Failure;
use crate::files::is_replaced;
use crate::opening::Opening;

/// The open stores, as long as the server holds them.
#[derive(Clone, Default)]
pub(crate) struct Spares {
    stores: Vec<Spare>,
    /// The attempts for removed disks that have begun, and the lanes in which they were made.
    attempts: Vec<(String, Opening)>,
}

#[derive(Clone)]
struct Spare {
    config: DiskConfig,
    target: String,
    number: u16,
    store: SpareStore,
}

#[derive(Clone)]
enum SpareStore {
    Memory(Weak<MemoryStore>),
    File(Weak<FileStore>),
    Image(Weak<RbdStore>),
    Shared(Weak<GatewayStore>),
    Other(Weak<dyn Store>),
    Encrypted(Weak<Volume>, Option<Weak<FileStore>>),
}

impl Spares {
    /// Remembers the store of a removed disk, or the attempt to open it.
    pub(super) fn put(&mut self, target: &str, number: u16, disk: &Disk) {
        self.stores.retain(|spare| spare.store.open().is_some());
        let store = match &disk.store {
            DiskStore::Memory(store) => SpareStore::Memory(Arc::downgrade(store)),
            DiskStore::File(store) => SpareStore::File(Arc::downgrade(store)),
            DiskStore::Image(store) => SpareStore::Image(Arc::downgrade(store)),
            DiskStore::Shared(store) => SpareStore::Shared(Arc::downgrade(store)),
            DiskStore::Other(store) => SpareStore::Other(Arc::downgrade(store)),
            DiskStore::Encrypted(EncryptedStore { volume, file }) => {
                SpareStore::Encrypted(Arc::downgrade(volume), file.as_ref().map(Arc::downgrade))
            }
            DiskStore::Absent(_) => {
                let attempt = disk.attempt().filter(|attempt| attempt.has_begun()).cloned();
                self.attempts.extend(disk.config.name.place.plain_identity().zip(attempt));
                return;
            }
        };
        self.stores.push(Spare { config: disk.config.clone(), target: target.into(), number, store });
    }

    /// Forgets what no later change finds: attempts, and stores in memory, which have no name to be found by and live
    /// only as long as they keep their place.
    pub(super) fn forget_passing(&mut self) {
        self.stores.retain(|spare| !matches!(spare.store, SpareStore::Memory(_)));
        self.attempts.clear();
    }

    /// Takes the attempts for removed disks in this lane.
    pub(crate) fn take_attempts(&mut self, lane: &str) -> Vec<Opening> {
        self.attempts.extract_if(.., |(known, _)| known == lane).map(|(_, attempt)| attempt).collect()
    }

    /// Takes the store that is open already for this disk.
    pub(crate) fn take(&mut self, target: &str, number: u16, wanted: &DiskConfig) -> Option<DiskStore> {
        let fits = |spare: &Spare| {
            let here = spare.target == target && spare.number == number;
            let same = spare.config.name == wanted.name && spare.config.provisioning == wanted.provisioning;
            let may_write = |store: &DiskStore| wanted.read_only || !store.to_store().capabilities().read_only;
            spare.store.open().filter(|store| match store {
                DiskStore::Memory(_) => same && here,
                DiskStore::Shared(_) | DiskStore::Absent(_) => false,
                DiskStore::File(_) | DiskStore::Image(_) | DiskStore::Other(_) | DiskStore::Encrypted(_) => {
                    same && may_write(store) && !is_replaced(&wanted.name.place, store)
                }
            })
        };
        let (index, store) = self.stores.iter().enumerate().find_map(|(index, spare)| Some((index, fits(spare)?)))?;
        self.stores.swap_remove(index);
        Some(store)
    }
}

impl Spares {
    /// Refuses a disk whose place is still open, when either is encrypted: two open volumes write over each other's
    /// quanta and journal.
    pub(crate) fn check_encrypted(&self, wanted: &DiskName) -> Result<(), Failure> {
        let is_encrypted = |spare: &&Spare| spare.config.name.keys.is_some() || wanted.keys.is_some();
        let spares: Vec<_> = self.stores.iter().filter(is_encrypted).collect();
        let places: Vec<_> = spares.iter().map(|spare| &spare.config.name.place).chain([&wanted.place]).collect();
        let identities = if spares.is_empty() { Vec::new() } else { identities(&places) };
        let is_here = |store: DiskStore| !is_replaced(&wanted.place, &store);
        let collides = |(spare, identity): (&&Spare, &Option<String>)| {
            identity.is_some() && Some(identity) == identities.last() && spare.store.open().is_some_and(is_here)
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

impl SpareStore {
    fn open(&self) -> Option<DiskStore> {
        match self {
            Self::Memory(store) => store.upgrade().map(DiskStore::Memory),
            Self::File(store) => store.upgrade().map(DiskStore::File),
            Self::Image(store) => store.upgrade().map(DiskStore::Image),
            Self::Shared(store) => store.upgrade().map(DiskStore::Shared),
            Self::Other(store) => store.upgrade().map(DiskStore::Other),
            Self::Encrypted(volume, file) => {
                let file = file.as_ref().and_then(Weak::upgrade);
                volume.upgrade().map(|volume| DiskStore::Encrypted(EncryptedStore { volume, file }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    /// A disk as the configuration has it.
    fn disk(entry: &str) -> DiskConfig {
        config::one_lun(entry)
    }

    fn open(config: DiskConfig, number: u16) -> Disk {
        crate::disk::open(config, "iqn.a", number, None, None).unwrap()
    }

    #[test]
    fn a_file_is_found_wherever_it_is_wanted_again_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let entry = |rest: &str| disk(&format!("disk = {path:?}, create = \"1M\"{rest}"));
        let old = open(entry(""), 0);
        let mut spares = Spares::default();
        spares.put("iqn.a", 0, &old);
        assert!(spares.take("iqn.b", 1, &disk("disk = \"/other\"")).is_none());
        assert!(spares.take("iqn.b", 1, &entry(", provisioning = \"full\"")).is_none());
        assert!(matches!(spares.take("iqn.b", 1, &entry(", read_only = true")), Some(DiskStore::File(_))));
        assert!(spares.take("iqn.b", 1, &entry("")).is_none(), "it is taken");
    }

    #[test]
    fn a_read_only_store_does_not_serve_a_writable_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::write(&path, [0; 4096]).unwrap();
        let entry = |rest: &str| disk(&format!("disk = {path:?}{rest}"));
        let old = open(entry(", read_only = true"), 0);
        let mut spares = Spares::default();
        spares.put("iqn.a", 0, &old);
        assert!(spares.take("iqn.a", 0, &entry("")).is_none());
        assert!(spares.take("iqn.a", 0, &entry(", read_only = true")).is_some());
    }

    #[test]
    fn memory_is_found_only_in_its_place_and_while_it_is_served() {
        let old = open(disk("disk = \"mem:1M\""), 0);
        let mut spares = Spares::default();
        spares.put("iqn.a", 0, &old);
        assert!(spares.clone().take("iqn.a", 1, &old.config).is_none());
        assert!(spares.clone().take("iqn.a", 0, &disk("disk = \"mem:2M\"")).is_none());
        assert!(matches!(spares.clone().take("iqn.a", 0, &old.config), Some(DiskStore::Memory(_))));
        let config = old.config.clone();
        drop(old);
        assert!(spares.take("iqn.a", 0, &config).is_none());
    }
}
