//! The files and space that opening or extending a file has made, as long as they can be taken back.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FallocateFlags, SeekFrom, StatVfs, fallocate, fstatvfs, seek};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::FileIdentity;
use super::extents::Extents;
use super::op::{PUNCH, retry};

/// The unit in which stat(2) counts the blocks of a file.
pub(super) const STAT_BLOCK_BYTES: u64 = 512;

/// The most ranges that are remembered.
const MAX_RANGES: usize = 1 << 16;

/// One thing that was made. It is taken back only while nothing was written to the file.
#[derive(Debug)]
pub(super) enum Made {
    /// The file itself, which was changed last at this time.
    File { path: PathBuf, changed: Option<SystemTime> },
    /// Space for these ranges, beyond the blocks that the file had; `None` when they are not known.
    Space { ranges: Option<Vec<Range<u64>>>, blocks: u64 },
    /// A greater length than this one.
    Len { before: u64, now: u64 },
}

impl Made {
    /// The new file at `path`.
    pub(super) fn new_file(path: &Path, file: &File) -> Self {
        Self::File { path: path.to_owned(), changed: changed(file) }
    }

    /// Takes it back. What fails here is logged: the caller has another error to report.
    pub(super) fn take_back(self, file: &File) {
        let result = match &self {
            Self::File { path, changed } => remove(path, *changed, file),
            Self::Space { ranges: Some(ranges), blocks } => release(file, ranges, *blocks),
            Self::Space { ranges: None, blocks } => keep(file, *blocks),
            Self::Len { before, now } => shorten(file, *before, *now),
        };
        if let Err(error) = result {
            tracing::warn!(made = self.what(), %error, "what was made on a file system cannot be taken back");
        }
    }
}

impl Made {
    fn what(&self) -> &'static str {
        match self {
            Self::File { .. } => "a file",
            Self::Space { .. } => "space",
            Self::Len { .. } => "a length",
        }
    }
}

/// Allocates all holes between two offsets, without changing existing data, if there is [space](check_space). After a
/// failure the file has the space that it had before.
pub(super) fn reserve(file: &File, from: u64, to: u64) -> io::Result<Made> {
    let blocks = file.metadata()?.blocks();
    if from >= to {
        return Ok(Made::Space { ranges: Some(Vec::new()), blocks });
    }
    check_space(file, from, to)?;
    // A file without blocks needs no question, which some file systems do not answer.
    let ranges = if blocks == 0 { Some(std::iter::once(from..to).collect()) } else { without_space(file, from, to) };
    let made = Made::Space { ranges, blocks };
    match retry(|| fallocate(file, FallocateFlags::KEEP_SIZE, from, to - from)) {
        Ok(()) => Ok(made),
        Err(error) => {
            // The system may have allocated a part (fallocate(2)).
            made.take_back(file);
            Err(error.into())
        }
    }
}

/// Allocates all holes between two offsets like [`reserve`], without taking anything back after a failure: another
/// process may be writing there.
pub(super) fn reserve_for_good(file: &File, from: u64, to: u64) -> io::Result<()> {
    if from < to {
        check_space(file, from, to)?;
        retry(|| fallocate(file, FallocateFlags::KEEP_SIZE, from, to - from))?;
    }
    Ok(())
}

/// The ranges between two offsets that have no space, which seeking does not tell apart from space that was never
/// written. `None` where the system does not tell, or there are too many.
fn without_space(file: &File, from: u64, to: u64) -> Option<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let mut next = from;
    for extent in Extents::of(file, from..to) {
        let Range { start, end } = extent.ok()?.range;
        if start > next {
            ranges.push(next..start);
        }
        if ranges.len() > MAX_RANGES {
            return None;
        }
        next = end;
    }
    if next < to {
        ranges.push(next..to);
    }
    Some(ranges)
}

/// Fails with ENOSPC when the holes between two offsets certainly need more space than is free. Bytes below `from` are
/// taken to have theirs. A server tries again and again: without this check, each attempt takes all space for a while.
pub(super) fn check_space(file: &File, from: u64, to: u64) -> io::Result<()> {
    let allocated_bytes = file.metadata()?.blocks().saturating_mul(STAT_BLOCK_BYTES);
    let missing_bytes = to.saturating_sub(allocated_bytes.max(from));
    if lacks_space(&fstatvfs(file)?, missing_bytes) { Err(Errno::NOSPC.into()) } else { Ok(()) }
}

/// Whether a file system certainly has less free space than this for the process. Quotas are not asked for, and some
/// file systems have no length.
pub(super) fn lacks_space(system: &StatVfs, len_bytes: u64) -> bool {
    // Others than root do not get the blocks that are kept for root.
    let free_blocks = if geteuid().is_root() { system.f_bfree } else { system.f_bavail };
    system.f_blocks > 0 && free_blocks.saturating_mul(system.f_frsize) < len_bytes
}

/// Removes a file, unless something was written to it, or another one has taken its place.
fn remove(path: &Path, made: Option<SystemTime>, file: &File) -> io::Result<()> {
    if changed(file) == made && FileIdentity::at(path)? == FileIdentity::of_file(file)? {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn changed(file: &File) -> Option<SystemTime> {
    file.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// Punches what had no space before and still reads as a hole: nothing was written there.
fn release(file: &File, ranges: &[Range<u64>], blocks: u64) -> io::Result<()> {
    let end = file.metadata()?.len();
    for range in ranges {
        let (mut next, end) = (range.start, range.end.min(end));
        while next < end && file.metadata()?.blocks() > blocks {
            let hole = match seek(file, SeekFrom::Hole(next)) {
                Ok(hole) if hole < end => hole,
                Ok(_) | Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            let data = match seek(file, SeekFrom::Data(hole)) {
                Ok(data) => data.min(end),
                Err(Errno::NXIO) => end,
                Err(error) => return Err(error.into()),
            };
            fallocate(file, PUNCH, hole, data - hole)?;
            next = data;
        }
    }
    Ok(())
}

/// Leaves the space: to punch it could take away what the file had before.
fn keep(file: &File, blocks: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    let bytes = metadata.blocks().saturating_sub(blocks).saturating_mul(STAT_BLOCK_BYTES);
    if bytes > 0 {
        let inode = metadata.ino();
        tracing::warn!(inode, bytes, "space that was set aside for a file stays: which ranges had none is not known");
    }
    Ok(())
}

/// Cuts a file to the length that it had, unless another program has changed the length since.
fn shorten(file: &File, before: u64, now: u64) -> io::Result<()> {
    if file.metadata()?.len() == now {
        file.set_len(before)?;
        file.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To take space changes a file, even when it is given back.
    #[test]
    fn space_that_is_not_there_is_not_taken() {
        const TOO_LONG: u64 = 8 << 40;
        let file = tempfile::tempfile().unwrap();
        file.set_len(TOO_LONG).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let error = reserve(&file, 0, TOO_LONG).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(changed(&file), Some(SystemTime::UNIX_EPOCH));
        reserve(&file, 0, 1 << 20).unwrap();
        assert_ne!(changed(&file), Some(SystemTime::UNIX_EPOCH));
    }
}
