//! A disk with a volatile cache, for simulated power cuts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, Outcome, Space, Store, StoreError};

/// A store in memory that distinguishes flushed from merely written data.
///
/// [`cut`](Self::cut) returns what a power cut would leave: everything flushed, everything written with `fua`, and an
/// arbitrary subset of the other writes, applied in the order of writing. The original store is not affected, so one
/// history can be cut with many seeds.
///
/// ```
/// use lunette_store::filters::PowerLoss;
/// use lunette_store::{Op, execute};
///
/// let disk = PowerLoss::new(4096).expect("short enough");
/// disk.write(0, b"flushed").unwrap();
/// execute(&disk, Op::Flush).result.unwrap();
/// disk.write(512, b"perhaps").unwrap();
///
/// let after = disk.cut(1);
/// let mut bytes = [0; 7];
/// after.read(0, &mut bytes).unwrap();
/// assert_eq!(&bytes, b"flushed");
/// ```
#[derive(Debug)]
pub struct PowerLoss {
    len_bytes: u64,
    /// The content that reads return.
    current: MemoryStore,
    stable: Mutex<Stable>,
}

#[derive(Debug)]
struct Stable {
    /// The content as of the last flush.
    flushed: MemoryStore,
    /// The changes since the last flush, in order.
    changes: Vec<Change>,
}

#[derive(Debug)]
struct Change {
    offset: u64,
    what: Bytes,
    /// Whether the change was acknowledged as stable. It stays in the list, so that it overwrites earlier changes.
    fua: bool,
}

#[derive(Debug)]
enum Bytes {
    Data(Box<[u8]>),
    Zeroes(u64),
}

impl Change {
    fn apply(&self, to: &MemoryStore) -> Result<(), StoreError> {
        match &self.what {
            Bytes::Data(bytes) => to.write(self.offset, bytes),
            Bytes::Zeroes(len) => to.zero(self.offset, *len),
        }
    }
}

impl PowerLoss {
    /// A store of zeroes; `None` when it is longer than [`MemoryStore::MAX_LEN_BYTES`].
    pub fn new(len_bytes: u64) -> Option<Self> {
        Some(Self::over(MemoryStore::new(len_bytes)?, MemoryStore::new(len_bytes)?))
    }

    fn over(current: MemoryStore, flushed: MemoryStore) -> Self {
        let len_bytes = current.geometry().len_bytes;
        Self { len_bytes, current, stable: Mutex::new(Stable { flushed, changes: Vec::new() }) }
    }

    /// The store as a power cut leaves it. `seed` selects the unflushed writes that survive.
    #[must_use]
    pub fn cut(&self, seed: u64) -> Self {
        let stable = self.lock();
        let after = [stable.flushed.duplicate(), stable.flushed.duplicate()];
        let mut coins = Coins(seed);
        for change in &stable.changes {
            // One toss for each change, so that a write with `fua` does not shift the tosses of the others.
            let survives = coins.toss();
            if survives || change.fua {
                for store in &after {
                    change.apply(store).expect("it was in range when it was written");
                }
            }
        }
        let [current, flushed] = after;
        Self::over(current, flushed)
    }

    /// Number of writes that a power cut could lose now.
    pub fn unflushed(&self) -> usize {
        self.lock().changes.iter().filter(|change| !change.fua).count()
    }

    /// Copies bytes out of the store.
    ///
    /// # Errors
    ///
    /// [`StoreError::OutOfRange`] for bytes outside the store.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StoreError> {
        self.current.read(offset, into)
    }

    /// Copies bytes into the store, unflushed.
    ///
    /// # Errors
    ///
    /// [`StoreError::OutOfRange`] for bytes outside the store.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), StoreError> {
        self.change(Change { offset, what: Bytes::Data(from.into()), fua: false })
    }

    fn change(&self, change: Change) -> Result<(), StoreError> {
        let mut stable = self.lock();
        change.apply(&self.current)?;
        stable.changes.push(change);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        let mut stable = self.lock();
        let changes = std::mem::take(&mut stable.changes);
        changes.iter().try_for_each(|change| change.apply(&stable.flushed))
    }

    fn lock(&self) -> MutexGuard<'_, Stable> {
        self.stable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pseudo-random coin (`SplitMix64`).
struct Coins(u64);

impl Coins {
    fn toss(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 63) != 0
    }
}

impl Store for PowerLoss {
    fn geometry(&self) -> Geometry {
        Geometry { len_bytes: self.len_bytes, ..self.current.geometry() }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { volatile_cache: true, ..self.current.capabilities() }
    }

    fn space(&self) -> std::io::Result<Option<Space>> {
        self.current.space()
    }

    fn submit(&self, mut op: Op, _: &dyn FileIo, done: Completion) {
        let fua = op.fua();
        let result = match &mut op {
            Op::Read { offset, into } => self.read(*offset, into),
            Op::Write { offset, from, .. } => {
                self.change(Change { offset: *offset, what: Bytes::Data((&**from).into()), fua })
            }
            Op::WriteZeroes { offset, len, .. } | Op::Unmap { offset, len } => {
                self.change(Change { offset: *offset, what: Bytes::Zeroes(*len), fua })
            }
            Op::Allocation { offset, len, found } => self.current.allocation(*offset, *len, found),
            Op::Copy { .. } => Err(crate::request::copy_unsupported()),
            Op::Flush => self.flush(),
        };
        done.complete(Outcome::of(op, result));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::execute;

    fn first_byte(store: &PowerLoss) -> u8 {
        let mut byte = [0];
        store.read(0, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn an_unflushed_write_survives_or_not() {
        let disk = PowerLoss::new(512).unwrap();
        disk.write(0, &[1]).unwrap();
        disk.write(0, &[2]).unwrap();
        let seen: HashSet<u8> = (0..64).map(|seed| first_byte(&disk.cut(seed))).collect();
        assert_eq!(seen, HashSet::from([0, 1, 2]));
        assert_eq!(first_byte(&disk), 2);
        assert_eq!(disk.unflushed(), 2);
    }

    #[test]
    fn the_same_seed_leaves_the_same_bytes() {
        let disk = PowerLoss::new(512).unwrap();
        (1..9).for_each(|byte| disk.write(0, &[byte]).unwrap());
        assert_eq!(first_byte(&disk.cut(7)), first_byte(&disk.cut(7)));
    }

    #[test]
    fn fua_is_stable_and_older_writes_do_not_come_back_over_it() {
        let disk = PowerLoss::new(512).unwrap();
        disk.write(0, &[1]).unwrap();
        let mut from = lunette_buffer::Pool::new(4096).take(1).unwrap();
        from[0] = 2;
        assert!(execute(&disk, Op::Write { offset: 0, from, fua: true }).result.is_ok());
        assert!((0..64).all(|seed| first_byte(&disk.cut(seed)) == 2));
        assert_eq!(disk.unflushed(), 1);
    }

    #[test]
    fn data_that_survived_a_cut_survives_the_next() {
        let disk = PowerLoss::new(512).unwrap();
        disk.write(0, &[9]).unwrap();
        let once = (0..64).map(|seed| disk.cut(seed)).find(|after| first_byte(after) == 9).unwrap();
        assert!((0..16).all(|seed| first_byte(&once.cut(seed)) == 9));
    }
}
