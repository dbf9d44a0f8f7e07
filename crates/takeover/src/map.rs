//! The map: which chunks are in the target, and of which the medium says so.
//!
//! A chunk is *local* when all of its bytes in the target are right. It is *mapped* when the map on the medium tells
//! that, which it does only after its bytes are on the medium. So a map that a power cut leaves never claims too much.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_buffer::Pool;
use lunette_store::{Op, Store, StoreError, execute};

use crate::error::OpenError;
use crate::limits::{CHUNK_BYTES, MAX_LEN_BYTES};

/// Bytes of the map that are written at once.
pub(crate) const PAGE_BYTES: u64 = 4096;

const WORD_BITS: u64 = 64;
const PAGE_WORDS: usize = PAGE_BYTES as usize / size_of::<u64>();

/// The number of chunks of a disk of this length.
pub(crate) fn chunks_of(len_bytes: u64) -> u64 {
    len_bytes.div_ceil(CHUNK_BYTES)
}

/// Bytes of the map of a disk of this length.
pub fn map_len(len_bytes: u64) -> u64 {
    chunks_of(len_bytes).div_ceil(8).next_multiple_of(PAGE_BYTES).max(PAGE_BYTES)
}

/// The place of the map, and the buffers for its pages.
struct Medium {
    store: Arc<dyn Store>,
    pool: Pool,
}

/// The chunks of which the medium does not tell yet.
#[derive(Default)]
struct Changed {
    /// The pages that it has in an older state.
    pages: BTreeSet<usize>,
    /// The flushes of the target that have failed.
    failed_flushes: u64,
}

pub(crate) struct Map {
    chunks: u64,
    local: Box<[AtomicU64]>,
    mapped: Box<[AtomicU64]>,
    local_chunks: AtomicU64,
    mapped_chunks: AtomicU64,
    changed: Mutex<Changed>,
    /// The medium, held while the map is written. Nothing when it tells of all chunks.
    writing: Mutex<Option<Medium>>,
}

impl Map {
    /// Reads the map of a disk of this length. One of zeroes says that nothing is copied.
    pub(crate) fn read(medium: Arc<dyn Store>, len_bytes: u64) -> Result<Self, OpenError> {
        if len_bytes > MAX_LEN_BYTES {
            return Err(OpenError::TooLong(len_bytes));
        }
        let (needed, there) = (map_len(len_bytes), medium.geometry().len_bytes);
        if there < needed {
            return Err(OpenError::MapLength { there, needed });
        }
        let chunks = chunks_of(len_bytes);
        let words = (needed / PAGE_BYTES) as usize * PAGE_WORDS;
        let pool = Pool::new(4 * PAGE_BYTES as usize);
        let mut found = Vec::with_capacity(words);
        for page in 0..words / PAGE_WORDS {
            let into = pool.take(PAGE_BYTES as usize).ok_or(OpenError::Memory)?;
            let outcome = execute(&*medium, Op::Read { offset: page as u64 * PAGE_BYTES, into });
            outcome.result.map_err(OpenError::Map)?;
            let bytes = outcome.buffer.ok_or(OpenError::Memory)?;
            found.extend(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
        }
        let mut mapped_chunks = 0;
        for (index, word) in found.iter_mut().enumerate() {
            // What lies beyond the last chunk counts for nothing.
            *word &= bits_below(chunks.saturating_sub(index as u64 * WORD_BITS));
            mapped_chunks += u64::from(word.count_ones());
        }
        Ok(Self {
            chunks,
            local: found.iter().copied().map(AtomicU64::new).collect(),
            mapped: found.into_iter().map(AtomicU64::new).collect(),
            local_chunks: AtomicU64::new(mapped_chunks),
            mapped_chunks: AtomicU64::new(mapped_chunks),
            changed: Mutex::default(),
            writing: Mutex::new((mapped_chunks < chunks).then_some(Medium { store: medium, pool })),
        })
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.chunks
    }

    pub(crate) fn local_chunks(&self) -> u64 {
        self.local_chunks.load(Ordering::Acquire)
    }

    /// The local chunks of which the medium does not tell.
    pub(crate) fn unmapped_chunks(&self) -> u64 {
        self.local_chunks().saturating_sub(self.mapped_chunks.load(Ordering::Acquire))
    }

    /// Whether the medium tells of all chunks that they are local.
    pub(crate) fn is_whole(&self) -> bool {
        self.mapped_chunks.load(Ordering::Acquire) == self.chunks
    }

    pub(crate) fn is_local(&self, chunks: &Range<u64>) -> bool {
        has_all(&self.local, chunks)
    }

    pub(crate) fn is_mapped(&self, chunks: &Range<u64>) -> bool {
        has_all(&self.mapped, chunks)
    }

    /// The first run of chunks within `chunks` that are not local, of `most` at most.
    pub(crate) fn absent(&self, chunks: &Range<u64>, most: u64) -> Option<Range<u64>> {
        let is_absent = |chunk: u64| word(&self.local, chunk) & bit(chunk) == 0;
        let mut at = chunks.start;
        while at < chunks.end && !is_absent(at) {
            let is_full = word(&self.local, at) == u64::MAX;
            at = if is_full { (at / WORD_BITS + 1) * WORD_BITS } else { at + 1 };
        }
        if at >= chunks.end {
            return None;
        }
        let last = chunks.end.min(at.saturating_add(most));
        let end = (at..last).find(|chunk| !is_absent(*chunk)).unwrap_or(last);
        Some(at..end)
    }

    /// The number of flushes of the target that have failed.
    pub(crate) fn failed_flushes(&self) -> u64 {
        self.changed().failed_flushes
    }

    /// Notes that chunks are local whose bytes were written since this many flushes of the target had failed. One that
    /// has failed meanwhile may have lost them. The medium learns of it by [`write_all`](Self::write_all).
    pub(crate) fn set_local(&self, chunks: Range<u64>, failed_flushes: u64) {
        let mut changed = self.changed();
        if changed.failed_flushes != failed_flushes {
            return;
        }
        for (index, bits) in words(&chunks) {
            let before = self.local[index].fetch_or(bits, Ordering::AcqRel);
            self.local_chunks.fetch_add(u64::from((bits & !before).count_ones()), Ordering::AcqRel);
            if bits & !before != 0 {
                changed.pages.insert(index / PAGE_WORDS);
            }
        }
    }

    /// Brings the content of all local chunks to the medium, and then that they are. Nothing is done when the medium
    /// tells of `chunks` already: another thread may have brought them there meanwhile. The call fails when the medium
    /// does not tell of all of them afterwards.
    ///
    /// When a flush of the target fails, the system may have dropped what was copied. So chunks that are not mapped are
    /// local no more. They have nothing that a client was told to be written.
    pub(crate) fn write_for(&self, target: &dyn Store, chunks: &Range<u64>) -> Result<(), StoreError> {
        self.write(target, Some(chunks))?;
        if self.is_mapped(chunks) { Ok(()) } else { Err(StoreError::Io(std::io::ErrorKind::Interrupted.into())) }
    }

    /// Brings the content of all local chunks to the medium, and then that they are.
    pub(crate) fn write_all(&self, target: &dyn Store) -> Result<(), StoreError> {
        self.write(target, None)
    }

    fn write(&self, target: &dyn Store, chunks: Option<&Range<u64>>) -> Result<(), StoreError> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_needless = chunks.is_some_and(|chunks| self.is_mapped(chunks));
        let Some(medium) = writing.as_ref().filter(|_| !is_needless) else { return Ok(()) };
        let pages = std::mem::take(&mut self.changed().pages);
        let written = self.write_pages(target, medium, &pages);
        if written.is_err() {
            self.changed().pages.extend(pages);
        }
        if self.is_whole() {
            *writing = None;
        }
        written
    }

    fn write_pages(&self, target: &dyn Store, medium: &Medium, pages: &BTreeSet<usize>) -> Result<(), StoreError> {
        // These chunks were local before the flush, so it covers their content.
        let range = |page: &usize| page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
        let load = |page: &usize| self.local[range(page)].iter().map(|word| word.load(Ordering::Acquire)).collect();
        let states: Vec<Vec<u64>> = pages.iter().map(load).collect();
        execute(target, Op::Flush).result.inspect_err(|_| self.take_back(pages))?;
        for (page, state) in pages.iter().zip(&states) {
            let mut from = medium.pool.take(PAGE_BYTES as usize).ok_or_else(no_memory)?;
            for (bytes, word) in from.as_chunks_mut().0.iter_mut().zip(state) {
                *bytes = word.to_le_bytes();
            }
            execute(&*medium.store, Op::Write { offset: *page as u64 * PAGE_BYTES, from, fua: false }).result?;
        }
        execute(&*medium.store, Op::Flush).result?;
        for (page, state) in pages.iter().zip(&states) {
            for (word, bits) in self.mapped[range(page)].iter().zip(state) {
                let before = word.fetch_or(*bits, Ordering::AcqRel);
                self.mapped_chunks.fetch_add(u64::from((bits & !before).count_ones()), Ordering::AcqRel);
            }
        }
        Ok(())
    }

    /// Takes back that chunks are local, where they are not mapped. `pages` have changed beside those that are noted.
    fn take_back(&self, pages: &BTreeSet<usize>) {
        let mut changed = self.changed();
        changed.failed_flushes += 1;
        changed.pages.extend(pages);
        for index in changed.pages.iter().flat_map(|page| page * PAGE_WORDS..(page + 1) * PAGE_WORDS) {
            let mapped = self.mapped[index].load(Ordering::Acquire);
            let before = self.local[index].fetch_and(mapped, Ordering::AcqRel);
            self.local_chunks.fetch_sub(u64::from((before & !mapped).count_ones()), Ordering::AcqRel);
        }
    }

    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn no_memory() -> StoreError {
    StoreError::Io(std::io::ErrorKind::OutOfMemory.into())
}

/// A word with this many of its lowest bits.
fn bits_below(count: u64) -> u64 {
    if count >= WORD_BITS { u64::MAX } else { (1 << count) - 1 }
}

fn bit(chunk: u64) -> u64 {
    1 << (chunk % WORD_BITS)
}

fn word(words: &[AtomicU64], chunk: u64) -> u64 {
    words[(chunk / WORD_BITS) as usize].load(Ordering::Acquire)
}

/// The words that have bits of these chunks, with the bits.
fn words(chunks: &Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = chunks.clone();
    (start / WORD_BITS..end.div_ceil(WORD_BITS)).map(move |index| {
        let first = index * WORD_BITS;
        let bits = bits_below(end - first) & !bits_below(start.saturating_sub(first));
        (index as usize, bits)
    })
}

fn has_all(of: &[AtomicU64], chunks: &Range<u64>) -> bool {
    words(chunks).all(|(index, bits)| of[index].load(Ordering::Acquire) & bits == bits)
}

#[cfg(test)]
mod tests {
    use lunette_store::MemoryStore;

    use super::*;

    fn map(chunks: u64) -> Map {
        let medium = MemoryStore::new(map_len(chunks * CHUNK_BYTES)).unwrap();
        Map::read(Arc::new(medium), chunks * CHUNK_BYTES).unwrap()
    }

    #[test]
    fn runs_of_absent_chunks_are_found_between_local_ones() {
        let map = map(300);
        assert_eq!(map.absent(&(0..300), 4), Some(0..4));
        map.set_local(0..130, 0);
        map.set_local(132..133, 0);
        assert_eq!(map.absent(&(0..300), 4), Some(130..132));
        assert_eq!(map.absent(&(132..300), 400), Some(133..300));
        assert_eq!(map.absent(&(5..130), 4), None);
        assert!(map.is_local(&(64..130)) && !map.is_local(&(64..131)));
        assert_eq!((map.local_chunks(), map.unmapped_chunks()), (131, 131));
        map.set_local(0..300, 0);
        assert_eq!(map.absent(&(0..300), 4), None);
        assert_eq!(map.local_chunks(), 300);
    }

    #[test]
    fn a_map_is_read_as_it_was_written() {
        let medium: Arc<dyn Store> = Arc::new(MemoryStore::new(2 * PAGE_BYTES).unwrap());
        let target = MemoryStore::new(512).unwrap();
        let len_bytes = 40_000 * CHUNK_BYTES;
        let map = Map::read(Arc::clone(&medium), len_bytes).unwrap();
        map.set_local(3..4, 0);
        map.set_local(32_760..32_780, 0);
        assert!(!map.is_mapped(&(3..4)));
        map.write_for(&target, &(3..4)).unwrap();
        assert!(map.is_mapped(&(32_760..32_780)) && map.unmapped_chunks() == 0 && !map.is_whole());
        let again = Map::read(Arc::clone(&medium), len_bytes).unwrap();
        assert_eq!(again.local_chunks(), 21);
        assert!(again.is_mapped(&(32_760..32_780)) && again.is_mapped(&(3..4)));
        again.set_local(0..40_000, 0);
        again.write_all(&target).unwrap();
        assert!(again.is_whole());
        let shorter = Map::read(medium, 100 * CHUNK_BYTES).unwrap();
        assert!(shorter.is_whole() && shorter.local_chunks() == 100);
    }
}
