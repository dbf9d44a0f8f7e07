//! The file of an anchor: a header, and 8 bytes for each quantum.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_files::{Content, FileProblem};
use lunette_quanta::VolumeId;

use super::AnchorError;
use crate::limits::MAX_ANCHORED_QUANTA;

const MAGIC: [u8; 8] = *b"LUNANCH1";
const ENTRY_LEN: u64 = 8;

/// Bytes before the entries.
const HEADER_LEN: u64 = 4096;

/// Bytes of zeroes that a new file is filled with at once.
const ZEROES_LEN: usize = 64 << 10;

/// The content of the file.
const ANCHOR: Content =
    Content { name: "an anchor", max_bytes: (HEADER_LEN + MAX_ANCHORED_QUANTA * ENTRY_LEN) as usize };

/// The file of an anchor, open and locked.
#[derive(Debug)]
pub(super) struct AnchorFile {
    path: PathBuf,
    /// `None` when the volume is gone: another opening may have it then.
    file: Mutex<Option<File>>,
    read_only: bool,
}

impl AnchorFile {
    /// Makes a file whose entries are zero. It has all of its space at once, so that no flush fails for lack of it
    /// later.
    pub(super) fn create(path: &Path, volume: VolumeId, quanta: u64) -> Result<Self, AnchorError> {
        let failed = |what| move |error| AnchorError::File { path: path.into(), what, error };
        let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let mut file = options.map_err(failed("created"))?;
        lock(path, &file, false)?;
        let mut fill = || -> io::Result<()> {
            let header = header(volume, quanta);
            file.write_all(&header)?;
            let zeroes = vec![0; ZEROES_LEN];
            let mut left = len_of(quanta) - header.len() as u64;
            while left > 0 {
                let now = left.min(ZEROES_LEN as u64);
                file.write_all(&zeroes[..now as usize])?;
                left -= now;
            }
            file.sync_all()?;
            // The name, too, is to survive a crash.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()
        };
        fill().map_err(|error| {
            // What is incomplete would be in the way of the next attempt; that it may stay there changes nothing.
            let _ = std::fs::remove_file(path);
            failed("written")(error)
        })?;
        Ok(Self { path: path.into(), file: Mutex::new(Some(file)), read_only: false })
    }

    /// Opens the file of a volume. Gives its entries, too.
    pub(super) fn open(
        path: &Path,
        volume: VolumeId,
        quanta: u64,
        read_only: bool,
    ) -> Result<(Self, Vec<u8>), AnchorError> {
        let failed = |what| move |error| AnchorError::File { path: path.into(), what, error };
        let opened = lunette_files::open_with(path, ANCHOR, OpenOptions::new().read(true).write(!read_only));
        let mut file = opened.map_err(FileProblem::into_io).map_err(failed("opened"))?;
        lock(path, &file, read_only)?;
        let len = file.metadata().map_err(failed("read"))?.len();
        let expected = header(volume, quanta);
        let mut found = expected;
        if len != len_of(quanta) || file.read_exact_at(&mut found, 0).is_err() || found != expected {
            return Err(AnchorError::OtherVolume { path: path.into(), volume });
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(HEADER_LEN)).map_err(failed("read"))?;
        (&file).take(quanta * ENTRY_LEN).read_to_end(&mut bytes).map_err(failed("read"))?;
        if bytes.len() as u64 != quanta * ENTRY_LEN {
            return Err(AnchorError::OtherVolume { path: path.into(), volume });
        }
        Ok((Self { path: path.into(), file: Mutex::new(Some(file)), read_only }, bytes))
    }

    /// Gives the file up. Waits for what is being written to it.
    pub(super) fn close(&self) {
        *self.file() = None;
    }

    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Writes entries, each run from the number of its first one on, and syncs them. An entry lies within a sector, so
    /// a power cut leaves the old or the new one.
    pub(super) fn write(&self, runs: &[(usize, Vec<u8>)]) -> Result<(), AnchorError> {
        let failed = |what| move |error| AnchorError::File { path: self.path.clone(), what, error };
        let file = self.file();
        let file = file.as_ref().ok_or_else(|| failed("written")(io::Error::other("the volume was closed")))?;
        for (first, bytes) in runs {
            file.write_all_at(bytes, HEADER_LEN + *first as u64 * ENTRY_LEN).map_err(failed("written"))?;
        }
        if runs.is_empty() { Ok(()) } else { file.sync_data().map_err(failed("flushed")) }
    }
}

/// Readers share the file; whoever changes it has it alone.
fn lock(path: &Path, file: &File, read_only: bool) -> Result<(), AnchorError> {
    match if read_only { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(AnchorError::InUse { path: path.into() }),
        Err(TryLockError::Error(error)) => Err(AnchorError::File { path: path.into(), what: "locked", error }),
    }
}

fn len_of(quanta: u64) -> u64 {
    HEADER_LEN + quanta * ENTRY_LEN
}

fn header(volume: VolumeId, quanta: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..24].copy_from_slice(&volume.0);
    bytes[24..].copy_from_slice(&quanta.to_le_bytes());
    bytes
}
