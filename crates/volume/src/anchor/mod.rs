//! The anchor of a volume: the version of each quantum, in a file that the server of the blocks cannot change.
//!
//! A server can give an older EDU of a quantum, or none, and tag and CRC are right. A client with an anchor knows the
//! version that it wrote or read last, and refuses what is older. The file belongs to one client: what another client
//! writes has a higher version, which is accepted and remembered.
//!
//! - **Entry.** 8 bytes for each quantum: the lowest version that is accepted. A hole counts as version 0, so it is
//!   accepted where nothing is known.
//! - **Order.** An entry rises in memory when a write has ended, before it is acknowledged, and when a read has opened
//!   something newer. It reaches the file with the next flush: entries are copied, the unit is flushed, then the copies
//!   are written and synced ([`Anchor::save`]). So no entry of the file is ahead of what the unit has on stable
//!   storage, and no crash of either side makes a quantum unreadable.
//! - **No new holes.** A hole has no version, so one that survives a crash could not be told from a deletion. Zeroes
//!   are sealed, and unmaps ignored.
//! - **Writers.** The entry of a quantum must be that of its last write, so writes of an anchored volume have their
//!   quanta to themselves (`Shared::begin`).

mod file;
mod saver;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lunette_quanta::{Header, SLOT_LEN, Slot, VolumeId};
use lunette_store::{Op, Store, StoreError, execute};

use crate::limits::MAX_ANCHORED_QUANTA;
use file::AnchorFile;
pub(crate) use saver::AnchorSaver;

/// Entries that are written to the file together: 4096 bytes of it.
const PAGE_ENTRIES: usize = 512;

/// Why an anchor cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnchorError {
    /// The system refuses a request to the file.
    #[error("the anchor {path} cannot be {what}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        #[source]
        error: std::io::Error,
    },
    /// The file is no anchor, or that of another volume.
    #[error("{path} is not the anchor of volume {volume}, or was cut; name the file that was made for this volume")]
    OtherVolume {
        /// The file.
        path: PathBuf,
        /// The volume whose anchor it should be.
        volume: VolumeId,
    },
    /// Another process has it.
    #[error("the anchor {path} is in use; one client at a time opens a volume with it")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The volume is too long for an anchor.
    #[error("the volume has {0} quanta, and an anchor holds at most {MAX_ANCHORED_QUANTA}; use longer quanta")]
    TooLong(u64),
}

/// The version of a quantum that was opened with this slot: 0 for a hole.
pub(crate) fn version(slot: &[u8; SLOT_LEN]) -> u64 {
    Slot::decode(slot).version
}

/// The anchor of a volume, open.
#[derive(Debug)]
pub struct Anchor {
    file: AnchorFile,
    entries: Box<[AtomicU64]>,
    /// One bit for each page with entries that the file does not have yet.
    changed: Box<[AtomicU64]>,
}

impl Anchor {
    /// Makes the anchor of a volume of which nothing is known: any authentic content of a quantum is accepted the first
    /// time.
    ///
    /// # Errors
    ///
    /// [`AnchorError`], also when the file is there already.
    pub fn create(path: &Path, header: &Header) -> Result<Self, AnchorError> {
        check_len(header)?;
        let file = AnchorFile::create(path, header.volume, header.quanta)?;
        Ok(Self::new(file, (0..header.quanta).map(|_| 0)))
    }

    /// Opens the anchor of a volume. One that is opened read-only is never saved.
    ///
    /// # Errors
    ///
    /// [`AnchorError`].
    pub fn open(path: &Path, header: &Header, read_only: bool) -> Result<Self, AnchorError> {
        check_len(header)?;
        let (file, bytes) = AnchorFile::open(path, header.volume, header.quanta, read_only)?;
        let (entries, _) = bytes.as_chunks();
        Ok(Self::new(file, entries.iter().map(|entry| u64::from_le_bytes(*entry))))
    }

    fn new(file: AnchorFile, entries: impl Iterator<Item = u64>) -> Self {
        let entries: Box<[_]> = entries.map(AtomicU64::new).collect();
        let pages = entries.len().div_ceil(PAGE_ENTRIES);
        Self { file, entries, changed: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Flushes the unit, and then makes everything that was known before survive a crash.
    ///
    /// # Errors
    ///
    /// The failure of the flush, or of the file. What is known stays to be saved.
    pub fn save(&self, unit: &dyn Store) -> Result<(), StoreError> {
        let runs = if self.file.is_read_only() { Vec::new() } else { self.take_changed() };
        let flushed = execute(unit, Op::Flush).result;
        let saved = flushed.and_then(|()| self.file.write(&runs).map_err(|error| std::io::Error::other(error).into()));
        if saved.is_err() {
            for (first, bytes) in &runs {
                let pages = first / PAGE_ENTRIES..(first + bytes.len() / 8).div_ceil(PAGE_ENTRIES);
                pages.for_each(|page| self.set_changed(page));
            }
        }
        saved
    }

    /// Gives the file up, so that the volume can be opened with it again. Nothing is saved after that.
    pub(crate) fn close(&self) {
        self.file.close();
    }

    /// Whether a quantum that was opened may have this version. What is newer than what was known is remembered.
    pub(crate) fn admit(&self, position: u64, version: u64) -> bool {
        let lowest = self.entries[position as usize].load(Ordering::Acquire);
        if version > lowest {
            self.written(position, version);
        }
        version >= lowest
    }

    /// Whether a version of this quantum is known that is higher.
    pub(crate) fn is_newer(&self, position: u64, version: u64) -> bool {
        self.entries[position as usize].load(Ordering::Acquire) > version
    }

    /// How many quanta it knows a version of: all that were read or written with it.
    pub fn known(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.load(Ordering::Acquire) != 0).count() as u64
    }

    /// Remembers the version of what was written.
    pub(crate) fn written(&self, position: u64, version: u64) {
        if self.entries[position as usize].fetch_max(version, Ordering::AcqRel) < version {
            self.set_changed(position as usize / PAGE_ENTRIES);
        }
    }

    /// The highest version that is known.
    pub(crate) fn highest(&self) -> u64 {
        self.entries.iter().map(|entry| entry.load(Ordering::Acquire)).max().unwrap_or(0)
    }

    fn set_changed(&self, page: usize) {
        self.changed[page / 64].fetch_or(1 << (page % 64), Ordering::AcqRel);
    }

    /// The entries that the file does not have: the number of the first one of each run of pages, and their bytes.
    fn take_changed(&self) -> Vec<(usize, Vec<u8>)> {
        let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
        for (word, bits) in self.changed.iter().enumerate() {
            // Cleared before the entries are read: one that rises after that has its bit set again.
            let mut bits = if bits.load(Ordering::Acquire) == 0 { 0 } else { bits.swap(0, Ordering::AcqRel) };
            while bits != 0 {
                let first = (word * 64 + bits.trailing_zeros() as usize) * PAGE_ENTRIES;
                bits &= bits - 1;
                let page = &self.entries[first..self.entries.len().min(first + PAGE_ENTRIES)];
                let bytes = page.iter().flat_map(|entry| entry.load(Ordering::Acquire).to_le_bytes());
                match runs.last_mut() {
                    Some((from, run)) if *from + run.len() / 8 == first => run.extend(bytes),
                    _ => runs.push((first, bytes.collect())),
                }
            }
        }
        runs
    }
}

fn check_len(header: &Header) -> Result<(), AnchorError> {
    if header.quanta > MAX_ANCHORED_QUANTA { Err(AnchorError::TooLong(header.quanta)) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
