//! What is seen of one file: its length, and what is wrong with it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use lunette_device::LogicalUnit;
use lunette_store::{FileIdentity, FileStore, Store, whole_blocks};

/// Something that is wrong with a file, and that stays until someone mends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// It is shorter than the disk was.
    Shorter,
    /// Another file has its path.
    Replaced,
    /// It has no path any more.
    Deleted,
    /// A flush has failed.
    LostWrites,
}

impl Trouble {
    /// What is wrong, and what to do.
    fn text(self) -> &'static str {
        match self {
            Self::Shorter => {
                "the file is shorter than the disk was; commands beyond its end fail. Make it as long as it was and send SIGHUP; \
                 what it has lost reads as zeroes then"
            }
            Self::Replaced => {
                "another file has its path; the old one is served until SIGHUP lets the server open the new one"
            }
            Self::Deleted => {
                "the file was deleted; it is served until the server stops, and is lost then: copy the disk before, or put a file \
                 in its place and send SIGHUP"
            }
            Self::LostWrites => {
                "a flush has failed, and acknowledged writes may be lost; all flushes fail until the cause is mended and SIGHUP \
                 lets initiators know"
            }
        }
    }

    /// All that is wrong now. A file system that does not answer says nothing.
    pub(super) fn find(path: &Path, store: &FileStore, unit: &LogicalUnit, seen: &Seen) -> BTreeSet<Self> {
        let mut found = BTreeSet::new();
        match FileIdentity::at(path) {
            Ok(identity) if identity != store.identity() => drop(found.insert(Self::Replaced)),
            Err(error) if error.kind() == ErrorKind::NotFound => drop(found.insert(Self::Deleted)),
            Ok(_) | Err(_) => {}
        }
        if unit.blocks() < seen.most_blocks {
            found.insert(Self::Shorter);
        }
        if store.has_lost_writes() {
            found.insert(Self::LostWrites);
        }
        found
    }
}

/// What was seen last.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The most blocks that the disk has had.
    most_blocks: u64,
    troubles: BTreeSet<Trouble>,
}

impl Seen {
    /// Nothing is wrong yet.
    pub(super) fn new(unit: &LogicalUnit) -> Self {
        Self { most_blocks: unit.blocks(), troubles: BTreeSet::new() }
    }

    /// Lets a file that has become shorter be served so, at once: a write beyond its end would make it longer again. A file
    /// that has become longer stays as it is served until the administrator says so, because it may be half written.
    pub(super) fn cut(&mut self, name: &str, path: &Path, store: &FileStore, unit: &LogicalUnit) -> bool {
        self.most_blocks = self.most_blocks.max(unit.blocks());
        let before = store.geometry().len_bytes;
        let now = match store.current_len() {
            Ok(now) => now,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "the length of a file cannot be told");
                return false;
            }
        };
        if now >= before {
            return false;
        }
        store.serve_len(now);
        tracing::warn!(path = %path.display(), before, now, "{name}: the file has become shorter");
        true
    }

    /// Logs what has changed since the last look.
    pub(super) fn tell(&mut self, name: &str, path: &Path, now: BTreeSet<Trouble>) {
        for trouble in now.difference(&self.troubles) {
            tracing::error!(path = %path.display(), "{name}: {}", trouble.text());
        }
        if now.is_empty() && !self.troubles.is_empty() {
            tracing::info!(path = %path.display(), "{name}: the file is in order again");
        }
        self.troubles = now;
    }
}

/// Says that the bytes behind the last whole block of a file are not served.
pub(crate) fn warn_of_partial_block(name: &str, path: &str, store: &FileStore, unit: &LogicalUnit) {
    let Ok(len) = store.file_len() else { return };
    let whole = whole_blocks(len, unit.block_size());
    // The length of a file of quanta is no whole number of them in general.
    if whole < len && unit.block_size().is_multiple_of(512) {
        tracing::warn!(path, len, whole, "{name}: the last block of the file is not whole, and is not served");
    }
}
