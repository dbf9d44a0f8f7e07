//! The comparison of a volume with its snapshot, byte by byte, where the medium tells only what may differ. In Ceph
//! that is all that a roll back has written.

use lunette_api::Problem;
use lunette_buffer::{Buffer, Pool as Buffers};
use lunette_pools::{Change, Name, Place, Pool};
use lunette_store::{Op, OpenOptions, Store, execute};

use super::At;
use crate::disks::file::FilePath;
use crate::disks::{Opened, Place as Blocks};

/// Bytes that are compared at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Whether a volume has the content of its snapshot in these ranges. Both have one length.
pub(super) fn is_like(pool: &dyn Pool, at: &At, snapshot: &Name, ranges: &[Change]) -> Result<bool, Problem> {
    if ranges.is_empty() {
        return Ok(true);
    }
    let (now, then) = (open(pool, at, None)?, open(pool, at, Some(snapshot))?);
    let buffers = Buffers::new(2 * PIECE_BYTES as usize);
    for Change { range, .. } in ranges {
        let mut offset = range.start;
        while offset < range.end {
            let len = (range.end - offset).min(PIECE_BYTES);
            let read = |disk: &Opened| read(&*disk.store, &buffers, offset, len);
            let is_same = match (read(&now), read(&then)) {
                (Ok(now), Ok(then)) => now[..] == then[..],
                (Err(why), _) | (_, Err(why)) => {
                    return Err(Problem::internal(format!("volume {at} cannot be compared with {snapshot}: {why}")));
                }
            };
            if !is_same {
                return Ok(false);
            }
            offset += len;
        }
    }
    Ok(true)
}

fn open(pool: &dyn Pool, at: &At, snapshot: Option<&Name>) -> Result<Opened, Problem> {
    let blocks = match pool.place(&at.volume, snapshot) {
        Place::File(path) => Blocks::File(FilePath(path)),
        Place::Image(url) => Blocks::Image(*url),
    };
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    blocks.open(&options).map_err(|failure| Problem::internal(failure.to_string()))
}

fn read(store: &dyn Store, buffers: &Buffers, offset: u64, len: u64) -> Result<Buffer, String> {
    let none = || "no memory for a buffer".to_owned();
    let len = usize::try_from(len).map_err(|error| error.to_string())?;
    // A store that uses other threads may hold on to a buffer for a moment after its request has ended.
    let one_more = || Buffers::new(PIECE_BYTES as usize).take(len);
    let into = buffers.take(len).or_else(one_more).ok_or_else(none)?;
    let outcome = execute(store, Op::Read { offset, into });
    outcome.result.map_err(|error| error.to_string())?;
    outcome.buffer.ok_or_else(none)
}
