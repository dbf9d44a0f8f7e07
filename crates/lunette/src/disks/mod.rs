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
//! | `nbd://…`, `nbds://…`, `nbd+unix://…`, `nbds+unix://…` | [`nbd`] |
//! | `longhorn:SOCKET?size=BYTES` | [`longhorn`] |
//! | `volume:POOL/VOLUME` | [`volume`], over one of the kinds before |
//! | any but the first, with `?keys=…` behind it | [`encrypted`] over that kind |
//!
//! A new kind is a file with a type that is a [`Kind`], a variant of [`Place`], its row in [`Place::kind`], and its
//! names in [`name`]. [`Opened`] is all that the rest of the program knows of a disk.

pub(crate) mod encrypted;
pub(crate) mod file;
pub(crate) mod image;
pub(crate) mod iscsi;
mod kind;
mod longhorn;
pub(crate) mod memory;
mod name;
pub(crate) mod nbd;
pub(crate) mod volume;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use lunette_api::{Health, Subject};
use lunette_device::LogicalUnit;
use lunette_initiator::Url;
use lunette_longhorn::LonghornName;
use lunette_nbd::client::NbdUrl;
use lunette_rbd::RbdUrl;
use lunette_store::OpenOptions;
use lunette_target::Control;

use crate::failure::Failure;
use crate::size::Size;
use file::{FilePath, Reopening};
use iscsi::RemoteName;
use kind::Kind;
pub(crate) use kind::{Opened, WeakOpened};
use memory::Memory;
pub(crate) use name::{DiskName, DiskNameError};
use volume::VolumeName;

/// The location of a disk's blocks, as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Memory(Memory),
    File(FilePath),
    Iscsi(RemoteName),
    Image(RbdUrl),
    Nbd(NbdUrl),
    Longhorn(LonghornName),
    Volume(VolumeName),
}

impl Place {
    /// The kind, for all that kinds have in common.
    fn kind(&self) -> &dyn Kind {
        match self {
            Self::Memory(memory) => memory,
            Self::File(path) => path,
            Self::Iscsi(name) => name,
            Self::Image(url) => url,
            Self::Nbd(url) => url,
            Self::Longhorn(name) => name,
            Self::Volume(name) => name,
        }
    }
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

    /// The URL of a disk of another target.
    pub(crate) fn url(&self) -> Option<&Url> {
        if let Self::Iscsi(name) = self { Some(name.url()) } else { None }
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

/// Follows what is below the logical unit that serves a disk, once [`follow`] is called.
pub(crate) fn served(place: &Place, subject: Subject, disk: &Opened, unit: &Arc<LogicalUnit>) {
    disk.served(unit);
    file::served(place.path(), subject, disk, unit);
}

/// Lets initiators and administrators learn of what happens below the disks that are served, until the server stops.
pub(crate) fn follow(control: &Control, health: Health, reopening: Reopening) -> Result<(), Failure> {
    image::follow(control.clone())?;
    file::follow(control.clone(), health, reopening)
}

/// Closes what another system would take for open, as the process ends.
pub(crate) fn close() -> Result<(), Failure> {
    image::close()
}

/// The common identities of two names of one place: portal, target and LUN, the file behind a path, pool and image, or
/// server and export.
/// `None` for memory. A host under two names is not recognized; what carries the session makes no difference. Of a
/// file that is missing, or does not answer, the path counts.
pub(crate) fn identities(places: &[&Place]) -> Vec<Option<String>> {
    let files = file::identities_at(places.iter().filter_map(|place| Some(place.path()?.to_owned())).collect());
    let identity = |place: &&Place| {
        let file = place.path().and_then(|path| files.get(path));
        file.map_or_else(|| place.plain_identity(), |file| Some(format!("{file:?}")))
    };
    places.iter().map(identity).collect()
}
