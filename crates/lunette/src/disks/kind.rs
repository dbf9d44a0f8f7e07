//! The contract of a kind of disks, and of a disk that is open.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};

use lunette_device::LogicalUnit;
use lunette_store::{FileStore, MemoryStore, OpenOptions, Store};

use crate::failure::Failure;
use crate::size::Size;

/// A kind of disks, by the name of one of them. Its text shows no secrets.
pub(crate) trait Kind: fmt::Display {
    /// The text that all names of the disk have in common, as far as a name tells it: nothing is asked that may not
    /// answer. `None` for a disk that is another one wherever it is named.
    fn identity(&self) -> Option<String>;

    /// The path of the disk, when it is a file or block device.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// The length that the name gives the disk.
    fn named_len(&self) -> Option<Size> {
        None
    }

    /// Why a missing disk is not created when it is opened, and the remedy.
    fn refuses_create(&self) -> Option<&'static str> {
        None
    }

    /// Why blocks cannot get their space before they are written, and the remedy.
    fn refuses_full(&self) -> Option<&'static str> {
        None
    }

    /// Why the disk cannot be opened, as far as this machine tells without asking another.
    fn lack(&self) -> Option<String> {
        None
    }

    /// Opens the disk.
    fn open(&self, options: &OpenOptions) -> Result<Opened, Failure>;
}

/// A disk that is open.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(super) facts: Facts,
    /// The file or block device that it lies in, if any.
    pub(super) file: Option<Arc<FileStore>>,
    /// The memory that it is, if it is.
    pub(super) memory: Option<Arc<MemoryStore>>,
}

/// The facts that distinguish an open disk from others. They do not keep it open.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// The file has ciphertext, whose own length stands in its header.
    pub(super) is_encrypted: bool,
    /// The blocks of the disk may be longer than the configuration says.
    pub(super) has_own_blocks: bool,
    /// Bytes of the shortest block that its content is made for, if it is known.
    pub(super) least_block: Option<u32>,
    pub(super) on_served: Option<OnServed>,
    /// The serial number that the disk has wherever it is served.
    pub(super) serial: Option<String>,
}

/// Told of the logical unit that serves a disk.
pub(super) type OnServed = Arc<dyn Fn(&Arc<LogicalUnit>) + Send + Sync>;

/// Bytes of a logical block that is whole quanta of any size.
const LONG_BLOCK: u32 = 4096;

impl Opened {
    /// An open disk of which nothing more is to be said.
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, facts: Facts::default(), file: None, memory: None }
    }

    /// The file or block device that it lies in, if any.
    pub(crate) fn file(&self) -> Option<&Arc<FileStore>> {
        self.file.as_ref()
    }

    /// The file or block device whose bytes are those of the disk, if any.
    pub(crate) fn plain_file(&self) -> Option<&Arc<FileStore>> {
        self.file().filter(|_| !self.facts.is_encrypted)
    }

    /// The memory that it is, if it is.
    pub(crate) fn memory(&self) -> Option<&Arc<MemoryStore>> {
        self.memory.as_ref()
    }

    /// Bytes of a logical block, when the configuration says `wanted`. A quantum is no part of a block.
    pub(crate) fn block_size(&self, wanted: u32) -> u32 {
        let granularity_bytes = self.store.geometry().granularity_bytes.max(1);
        let wanted = wanted.max(self.facts.least_block.unwrap_or(0));
        let fits = !self.facts.has_own_blocks || wanted.is_multiple_of(granularity_bytes);
        if fits { wanted } else { LONG_BLOCK.max(granularity_bytes) }
    }

    /// The serial number that the disk has wherever it is served, if any.
    pub(crate) fn serial(&self) -> Option<&str> {
        self.facts.serial.as_deref()
    }

    /// Lets the kind of the disk know the unit that serves it.
    pub(crate) fn served(&self, unit: &Arc<LogicalUnit>) {
        if let Some(on_served) = &self.facts.on_served {
            on_served(unit);
        }
    }

    /// The disk as long as others hold it.
    pub(crate) fn downgrade(&self) -> WeakOpened {
        let (file, memory) = (self.file.as_ref().map(Arc::downgrade), self.memory.as_ref().map(Arc::downgrade));
        WeakOpened { store: Arc::downgrade(&self.store), facts: self.facts.clone(), file, memory }
    }
}

/// A disk that is open as long as others hold it.
#[derive(Clone)]
pub(crate) struct WeakOpened {
    store: Weak<dyn Store>,
    facts: Facts,
    file: Option<Weak<FileStore>>,
    memory: Option<Weak<MemoryStore>>,
}

impl WeakOpened {
    pub(crate) fn upgrade(&self) -> Option<Opened> {
        let file = self.file.as_ref().and_then(Weak::upgrade);
        let memory = self.memory.as_ref().and_then(Weak::upgrade);
        Some(Opened { store: self.store.upgrade()?, facts: self.facts.clone(), file, memory })
    }
}
