//! Disks: from the name that a user writes to an open store.
//!
//! Each kind of disks has a file, which says what its names mean, what it cannot do, and how one is opened:
//!
//! | names | kind |
//! |---|---|
//! | `mem:SIZE` | [`memory`] |
//! | the path of a file or block device | [`mod@file`] |
//! | `iscsi://…`, `ecl://…`, `ecl+eth://…` | [`iscsi`] |
//! | `rbd:POOL/IMAGE` | [`image`] |
//! | any but the first, with `?keys=…` behind it | [`encrypted`] over that kind |
//!
//! A new kind is a file with a type that is a [`Kind`], a variant of [`Place`], its row in [`Place::kind`], and its
//! names in [`name`]. [`Opened`] is all that the rest of the program knows of a disk.

pub(crate) mod encrypted;
pub(crate) mod file;
pub(crate) mod image;
pub(crate) mod iscsi;
pub(crate) mod memory;
mod name;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};

use lunette_device::LogicalUnit;
use lunette_rbd::RbdUrl;
use lunette_store::{FileStore, OpenOptions, Store};

use crate::answers::Rounds;
use crate::failure::Failure;
use crate::size::Size;
use file::FilePath;
use iscsi::RemoteName;
use memory::Memory;
pub(crate) use name::{DiskName, DiskNameError};

/// The location of a disk's blocks, as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Memory(Memory),
    File(FilePath),
    Iscsi(RemoteName),
    Image(RbdUrl),
}

impl Place {
    /// The kind, for all that kinds have in common.
    fn kind(&self) -> &dyn Kind {
        match self {
            Self::Memory(memory) => memory,
            Self::File(path) => path,
            Self::Iscsi(name) => name,
            Self::Image(url) => url,
        }
    }
}

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

    /// Opens the disk.
    fn open(&self, options: &OpenOptions) -> Result<Opened, Failure>;
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

impl Place {
    pub(crate) fn path(&self) -> Option<&Path> {
        self.kind().path()
    }

    pub(crate) fn named_len(&self) -> Option<Size> {
        self.kind().named_len()
    }

    /// The identity as far as the name alone tells it; see [`Kind::identity`].
    pub(crate) fn plain_identity(&self) -> Option<String> {
        self.kind().identity()
    }

    /// Why a missing disk is not created, if `creates`, or does not get all of its space at once, if `is_full`.
    pub(crate) fn refusal(&self, creates: bool, is_full: bool) -> Option<&'static str> {
        let create = if creates { self.kind().refuses_create() } else { None };
        create.or_else(|| if is_full { self.kind().refuses_full() } else { None })
    }

    /// Opens the disk as it is. A missing file is created as `options` say.
    pub(crate) fn open(&self, options: &OpenOptions) -> Result<Opened, Failure> {
        match self.refusal(options.create.is_some(), options.preallocate) {
            Some(why) => Err(Failure::Usage(format!("{self}: {why}"))),
            None => self.kind().open(options),
        }
    }
}

impl DiskName {
    /// Opens the disk: the plain text of one with keys. A missing file is created as `options` say.
    pub(crate) fn open(&self, options: &OpenOptions) -> Result<Opened, Failure> {
        match &self.keys {
            Some(keys) => encrypted::open(&self.place, keys, options),
            None => self.place.open(options),
        }
    }
}

/// The common identities of two names of one place: portal, target and LUN, the path without links, or pool and image.
/// `None` for memory. A host under two names is not recognized; what carries the session makes no difference. Neither
/// are the links of a path that does not answer.
pub(crate) fn identities(places: &[&Place]) -> Vec<Option<String>> {
    static ROUNDS: Rounds = Rounds::new();
    let paths: Vec<_> = places.iter().filter_map(|place| Some(place.path()?.to_owned())).collect();
    let names = paths.iter().map(|path| format!("links of {}", path.display())).collect();
    let mut found = ROUNDS.ask(names, move |index| paths[index].canonicalize().ok()).into_iter();
    let identity = |place: &&Place| {
        let canonical = place.path().and_then(|_| found.next().flatten().flatten());
        canonical.map_or_else(|| place.plain_identity(), |path| Some(path.display().to_string()))
    };
    places.iter().map(identity).collect()
}

/// A disk that is open.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    facts: Facts,
    /// The file or block device that it lies in, if any.
    file: Option<Arc<FileStore>>,
}

/// The facts that distinguish an open disk from others. They do not keep it open.
#[derive(Clone, Default)]
struct Facts {
    /// The file has ciphertext, whose own length stands in its header.
    is_encrypted: bool,
    /// The blocks of the disk may be longer than the configuration says.
    has_own_blocks: bool,
    on_served: Option<OnServed>,
}

/// Told of the logical unit that serves a disk.
type OnServed = Arc<dyn Fn(&Arc<LogicalUnit>) + Send + Sync>;

/// Bytes of a logical block that is whole quanta of any size.
const LONG_BLOCK: u32 = 4096;

impl Opened {
    /// An open disk of which nothing more is to be said.
    fn new(store: Arc<dyn Store>) -> Self {
        Self { store, facts: Facts::default(), file: None }
    }

    /// The file or block device that it lies in, if any.
    pub(crate) fn file(&self) -> Option<&Arc<FileStore>> {
        self.file.as_ref()
    }

    /// The file or block device whose bytes are those of the disk, if any.
    pub(crate) fn plain_file(&self) -> Option<&Arc<FileStore>> {
        self.file().filter(|_| !self.facts.is_encrypted)
    }

    /// Bytes of a logical block, when the configuration says `wanted`. A quantum is no part of a block.
    pub(crate) fn block_size(&self, wanted: u32) -> u32 {
        let granularity_bytes = self.store.geometry().granularity_bytes.max(1);
        let fits = !self.facts.has_own_blocks || wanted.is_multiple_of(granularity_bytes);
        if fits { wanted } else { LONG_BLOCK.max(granularity_bytes) }
    }

    /// Lets the kind of the disk know the unit that serves it.
    pub(crate) fn served(&self, unit: &Arc<LogicalUnit>) {
        if let Some(on_served) = &self.facts.on_served {
            on_served(unit);
        }
    }

    /// The disk as long as others hold it.
    pub(crate) fn downgrade(&self) -> WeakOpened {
        let file = self.file.as_ref().map(Arc::downgrade);
        WeakOpened { store: Arc::downgrade(&self.store), facts: self.facts.clone(), file }
    }
}

/// A disk that is open as long as others hold it.
#[derive(Clone)]
pub(crate) struct WeakOpened {
    store: Weak<dyn Store>,
    facts: Facts,
    file: Option<Weak<FileStore>>,
}

impl WeakOpened {
    pub(crate) fn upgrade(&self) -> Option<Opened> {
        let file = self.file.as_ref().and_then(Weak::upgrade);
        Some(Opened { store: self.store.upgrade()?, facts: self.facts.clone(), file })
    }
}
