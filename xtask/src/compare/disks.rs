//! The served disks: files in the page cache, all with the same bytes.

use std::fs;
use std::io::Write;
use std::iter;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};
use lunette_quanta::{Cipher, Codec, DataKey, Holes, KeyRing, QuantumSize, Sealing, Seed, VolumeId};

use super::cells::QUANTUM_BLOCK_LEN;
use super::measure::{DISK_LEN, QUANTA_LEN};

/// The mount point of tmpfs on every Linux.
const TMPFS: &str = "/dev/shm";

/// Quanta of the disk of quanta, behind the two blocks of the header.
const QUANTA: u64 = QUANTA_LEN / QUANTUM_BLOCK_LEN as u64 - 2;

/// One file for each server that serves one.
pub(crate) struct Disks {
    pub(crate) tgt: DiskFile,
    pub(crate) file: DiskFile,
    pub(crate) zero_copy: DiskFile,
    /// EDUs of quanta, to be copied to memory.
    pub(crate) quanta: DiskFile,
}

impl Disks {
    pub(crate) fn create() -> Result<Self> {
        Ok(Self {
            tgt: DiskFile::create("tgt")?,
            file: DiskFile::create("file")?,
            zero_copy: DiskFile::create("zero-copy")?,
            quanta: DiskFile::create_quanta("quanta")?,
        })
    }
}

/// A file in memory, full of bytes that are not zero. Removed when dropped.
pub(crate) struct DiskFile(PathBuf);

impl DiskFile {
    pub(crate) fn create(name: &str) -> Result<Self> {
        Self::of_len(name, DISK_LEN)
    }

    /// A file of a whole number of MiB.
    pub(crate) fn of_len(name: &str, len_bytes: u64) -> Result<Self> {
        let piece = vec![0x5a; 1 << 20];
        Self::of(name, (0..len_bytes >> 20).map(|_| &piece))
    }

    /// A file of EDUs in their places, behind two blocks of zeroes.
    fn create_quanta(name: &str) -> Result<Self> {
        let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([1; 32]))?;
        let codec = Codec::new(VolumeId([1; 16]), QuantumSize::B4096, Holes::Allowed, ring);
        let edu = |position| {
            let mut edu = vec![0; QuantumSize::B4096.edu_len()];
            codec.seal(Sealing { position, version: 1, seed: Seed::new([2; 32]) }, &[0x5a; 4096], &mut edu);
            edu
        };
        let header = vec![0; 2 * QuantumSize::B4096.edu_len()];
        Self::of(name, iter::once(header).chain((0..QUANTA).map(edu)))
    }

    fn of(name: &str, pieces: impl Iterator<Item = impl AsRef<[u8]>>) -> Result<Self> {
        let disk = Self(Path::new(TMPFS).join(format!("lunette-compare-{}-{name}", process::id())));
        let mut file = fs::File::create_new(&disk.0).with_context(|| format!("cannot create {}", disk.0.display()))?;
        for piece in pieces {
            file.write_all(piece.as_ref()).with_context(|| format!("cannot write {}", disk.0.display()))?;
        }
        Ok(disk)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
