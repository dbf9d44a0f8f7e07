//! Whether there is something on a disk that is to be formatted.
//!
//! Looked at are the beginning and the end of the disk, where partition tables and file systems have their marks, and
//! places between them, spread over what the disk says has space. A disk that does not say so is taken to have space
//! everywhere.

use std::sync::Arc;

use lunette_buffer::Pool;
use lunette_store::{AllocationMap, Op, Store, StoreError, execute};

/// Bytes that are read at the beginning, and as many at the end.
const EDGE_BYTES: u64 = 1 << 20;

/// Bytes of one look: less than a burst, which some targets exceed in longer reads.
const PIECE_BYTES: u64 = 64 << 10;

/// Places between beginning and end that are looked at.
const SAMPLES: u64 = 256;

/// Requests for what has space. What they do not tell of is taken to have some.
const MAX_QUERIES: usize = 64;

/// Whether a disk has nothing but zeroes where it was looked at.
pub(super) fn is_blank(disk: &dyn Store) -> Result<bool, StoreError> {
    let geometry = disk.geometry();
    let block = u64::from(geometry.granularity_bytes.max(1));
    let len = geometry.len_bytes / block * block;
    let piece = (PIECE_BYTES / block * block).max(block);
    let edge = EDGE_BYTES.min(len);
    let edges = (0..edge).step_by(piece as usize).flat_map(|at| [at, len - edge + at]);
    let middle = samples(&allocated(disk, len)?);
    for at in edges.chain(middle) {
        let at = at / block * block;
        if at < len && !is_zero(disk, at, piece.min(len - at))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The allocated ranges, as offsets and lengths.
fn allocated(disk: &dyn Store, len: u64) -> Result<Vec<(u64, u64)>, StoreError> {
    let (mut runs, mut at) = (Vec::new(), 0);
    for _ in 0..MAX_QUERIES {
        if at == len {
            break;
        }
        let found = Arc::new(AllocationMap::default());
        execute(disk, Op::Allocation { offset: at, len: len - at, found: Arc::clone(&found) }).result?;
        let before = at;
        for run in found.take() {
            if run.allocated {
                runs.push((at, run.len));
            }
            at += run.len;
        }
        if at == before {
            break;
        }
    }
    if at < len {
        runs.push((at, len - at));
    }
    Ok(runs)
}

/// Offsets that are spread evenly over some runs of bytes. Runs that are far fewer than the samples have one each at
/// least.
fn samples(runs: &[(u64, u64)]) -> Vec<u64> {
    let total: u64 = runs.iter().map(|(_, len)| len).sum();
    let step = total.div_ceil(SAMPLES).max(PIECE_BYTES);
    let mut offsets: Vec<u64> = runs.iter().take(SAMPLES as usize).map(|(at, _)| *at).collect();
    let (mut passed, mut next) = (0, 0);
    for (at, len) in runs {
        while next < passed + len {
            offsets.push(at + (next - passed));
            next += step;
        }
        passed += len;
    }
    offsets
}

fn is_zero(disk: &dyn Store, offset: u64, len: u64) -> Result<bool, StoreError> {
    let none = || StoreError::from(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
    let into = Pool::new(PIECE_BYTES as usize * 2).take(len as usize).ok_or_else(none)?;
    let read = execute(disk, Op::Read { offset, into });
    read.result?;
    Ok(read.buffer.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)))
}

#[cfg(test)]
mod tests {
    use lunette_store::filters::Trace;
    use lunette_store::{MemoryStore, OpKind};

    use super::*;

    const LEN: u64 = 1 << 30;

    fn disk() -> MemoryStore {
        MemoryStore::new(LEN).unwrap()
    }

    #[test]
    fn content_anywhere_shows_where_the_disk_knows_its_space() {
        assert!(is_blank(&disk()).unwrap());
        for at in [0, EDGE_BYTES - 1, LEN - 1, LEN - EDGE_BYTES, LEN / 2, LEN / 3] {
            let disk = disk();
            // Within the first piece of its run.
            disk.write(at / 4096 * 4096, &[0; 4096]).unwrap();
            disk.write(at, &[1]).unwrap();
            assert!(!is_blank(&disk).unwrap(), "{at}");
        }
    }

    #[test]
    fn looking_is_bounded() {
        let disk = Arc::new(disk());
        for at in (0..LEN).step_by(1 << 20) {
            disk.write(at, &[0; 4096]).unwrap();
        }
        let trace = Trace::new(disk);
        assert!(is_blank(&trace).unwrap());
        let reads = trace.take().iter().filter(|record| record.kind == OpKind::Read).count() as u64;
        assert!(reads <= 2 * EDGE_BYTES / PIECE_BYTES + 2 * SAMPLES, "{reads}");
    }

    #[test]
    fn a_disk_that_does_not_know_its_space_is_sampled() {
        assert_eq!(samples(&[(0, SAMPLES << 20)]).len() as u64, SAMPLES + 1);
        assert_eq!(samples(&[(4096, 4096), (1 << 20, 4096)]), [4096, 1 << 20, 4096]);
        assert!(samples(&[]).is_empty());
    }
}
