//! Bits that flip in the journal: what is read back from it is checked before it replaces anything.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex};

use lunette_quanta::packed::Layout;
use lunette_quanta::{Holes, QuantumSize};
use lunette_store::filters::Trace;
use lunette_store::{Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, OpKind, Outcome, Store, StoreError};
use lunette_volume::{JournalState, OpenOptions, TailLoss, Verdict, Volume, VolumeError, find, recover, rekey, verify};

use crate::common::{Kind, flush, keys, make, memory, open, read, refused_at, write};

const PACKED: Kind = Kind::Packed(QuantumSize::B512, 512);

/// A unit whose reads of a range flip a bit there, for a while.
struct Flips {
    inner: Arc<MemoryStore>,
    rule: Mutex<FlipRule>,
}

#[derive(Default)]
struct FlipRule {
    range: Range<u64>,
    /// Reads of the range that pass before the first flip.
    skip: u64,
    /// Reads that flip a bit.
    times: u64,
}

impl Flips {
    fn new() -> (Arc<Self>, Arc<dyn Store>, Volume) {
        let flips = Arc::new(Self { inner: memory(PACKED.unit_bytes(64)), rule: Mutex::default() });
        let unit = PACKED.blocks(Arc::<Self>::clone(&flips));
        make(&unit, PACKED, Holes::Allowed);
        let volume = open(&unit);
        (flips, unit, volume)
    }

    fn flip(&self, range: Range<u64>, skip: u64, times: u64) {
        *self.rule.lock().unwrap() = FlipRule { range, skip, times };
    }

    /// Whether this read is to flip a bit, and where.
    fn flips(&self, op: &Op) -> Option<usize> {
        let mut rule = self.rule.lock().unwrap();
        let (offset, len) = op.range();
        if op.kind() != OpKind::Read || rule.range.end <= offset || offset + len <= rule.range.start {
            return None;
        }
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.times = rule.times.checked_sub(1)?;
        Some(rule.range.start.saturating_sub(offset) as usize)
    }
}

impl Store for Flips {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let Some(at) = self.flips(&op) else { return self.inner.submit(op, io, done) };
        let flipped = move |mut outcome: Outcome| {
            outcome.buffer.as_mut().unwrap()[at] ^= 0x10;
            done.complete(outcome);
        };
        self.inner.submit(op, io, Completion::call(flipped));
    }
}

/// The ciphertext of the first record that is written after this.
fn next_ciphertext(unit: &Arc<dyn Store>, volume: &Volume, records_before: u64) -> Range<u64> {
    let layout = Layout::of(&volume.header(), unit.geometry().len_bytes).unwrap();
    // A record of one quantum: a block of header and table, and the ciphertext.
    let at = layout.journal_offset() + 8192 + records_before * 1024 + 512;
    at..at + 512
}

/// A volume whose first quantum is 1 in its place and 2 in the journal.
fn half_moved() -> (Arc<Flips>, Arc<dyn Store>, Volume, Range<u64>) {
    let (flips, unit, volume) = Flips::new();
    write(&volume, 0, &[1; 512], true).unwrap();
    volume.close().unwrap();
    let ciphertext = next_ciphertext(&unit, &volume, 1);
    write(&volume, 0, &[2; 512], true).unwrap();
    (flips, unit, volume, ciphertext)
}

#[test]
fn a_checkpoint_reads_once_more_what_it_read_wrongly() {
    let (flips, unit, volume, ciphertext) = half_moved();
    flips.flip(ciphertext, 0, 1);
    volume.close().unwrap();
    assert_eq!(flips.rule.lock().unwrap().times, 0, "the bit was flipped");
    assert_eq!(read(&volume, 0, 512).unwrap(), [2; 512]);
    drop(volume);
    let report = verify(&unit, &find(&unit).unwrap(), Some(&keys(&[1])), None, &mut |_| {}).unwrap();
    assert!(report.is_whole() && report.journal == Some(JournalState::Empty), "{report:?}");
}

#[test]
fn a_checkpoint_fails_rather_than_move_a_damaged_quantum() {
    let (flips, unit, volume, ciphertext) = half_moved();
    flips.flip(ciphertext, 0, 2);
    let error = match volume.close() {
        Err(VolumeError::Unit { error, .. }) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused_at(&error), Some(0), "{error}");
    // The record is still there, and the unit reads right again.
    assert_eq!(read(&volume, 0, 512).unwrap(), [2; 512]);
    volume.close().unwrap();
    drop(volume);
    assert_eq!(read(&open(&unit), 0, 512).unwrap(), [2; 512]);
}

#[test]
fn recovery_checks_what_it_moves() {
    for (times, ends_well) in [(1, true), (2, false)] {
        let (flips, unit, volume, ciphertext) = half_moved();
        drop(volume);
        let recover = || recover(&unit, &find(&unit).unwrap(), &keys(&[1]), None, TailLoss::Refuse);
        // The replay reads right.
        flips.flip(ciphertext, 1, times);
        match recover() {
            Ok(recovered) => assert!(ends_well && recovered.moved == 1),
            Err(VolumeError::Unit { error: StoreError::Refused { offset: 0, .. }, .. }) if !ends_well => {
                assert_eq!(recover().unwrap().moved, 1);
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(read(&open(&unit), 0, 512).unwrap(), [2; 512]);
    }
}

#[test]
fn a_rotten_record_before_a_whole_one_is_reported() {
    for (rotten, missing, content) in [(0, 1, [0, 2, 3]), (1, 1, [1, 0, 3]), (2, 0, [1, 2, 0])] {
        let (flips, unit, volume) = Flips::new();
        (0..3).for_each(|at| write(&volume, at * 512, &[at as u8 + 1; 512], true).unwrap());
        let ciphertext = next_ciphertext(&unit, &volume, rotten);
        drop(volume);
        flips.inner.write(ciphertext.start + 9, &[0xff; 3]).unwrap();
        let report = verify(&unit, &find(&unit).unwrap(), Some(&keys(&[1])), None, &mut |_| {}).unwrap();
        assert_eq!((report.missing_records, report.intact), (missing, 2));
        let found = read(&open(&unit), 0, 3 * 512).unwrap();
        assert_eq!([found[0], found[512], found[1024]], content);
        let recovered = recover(&unit, &find(&unit).unwrap(), &keys(&[1]), None, TailLoss::Refuse).unwrap();
        assert_eq!((recovered.missing_records, recovered.moved), (missing, 2));
        let recovered = recover(&unit, &find(&unit).unwrap(), &keys(&[1]), None, TailLoss::Refuse).unwrap();
        assert_eq!(recovered.missing_records, 0, "a checkpoint gives the number up");
    }
}

#[test]
fn rewriting_is_not_misled_by_a_slot_that_was_read_wrongly() {
    for kind in [Kind::Native(QuantumSize::B512), PACKED] {
        let flips = Arc::new(Flips { inner: memory(kind.unit_bytes(64)), rule: Mutex::default() });
        let unit = kind.blocks(Arc::<Flips>::clone(&flips));
        make(&unit, kind, Holes::Allowed);
        let volume = open(&unit);
        write(&volume, 0, &[1; 512], true).unwrap();
        // The flipped bit makes epoch 17 of epoch 1.
        volume.set_keys(keys(&[1, 17])).unwrap();
        volume.close().unwrap();
        let slot = match kind {
            Kind::Native(_) => 2 * 576 + 512,
            Kind::Packed(..) => Layout::of(&volume.header(), unit.geometry().len_bytes).unwrap().slot(0),
        };
        flips.flip(slot + 56..slot + 57, 0, 1);
        let done = rekey(&volume, 0, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(flips.rule.lock().unwrap().times, 0, "the bit was flipped");
        assert_eq!((done.rewritten, done.refused, done.first_epoch), (1, 0, 17), "{kind:?}");
        drop(volume);
        let report = verify(&unit, &find(&unit).unwrap(), Some(&keys(&[17])), None, &mut |_| {}).unwrap();
        assert_eq!(report.bad.get(&Verdict::UnknownEpoch), None, "{kind:?}");
    }
}

/// A volume whose first quantum is 1 in its place, and of two records in the journal that were flushed and noted the
/// last one has rotted.
fn rotten_end() -> (Arc<dyn Store>, Arc<Flips>) {
    let (flips, unit, volume) = Flips::new();
    write(&volume, 0, &[1; 512], false).unwrap();
    volume.close().unwrap();
    write(&volume, 512, &[2; 512], false).unwrap();
    let ciphertext = next_ciphertext(&unit, &volume, 2);
    write(&volume, 0, &[2; 512], false).unwrap();
    flush(&volume).unwrap();
    volume.stop();
    let mut byte = [0];
    flips.inner.read(ciphertext.start, &mut byte).unwrap();
    flips.inner.write(ciphertext.start, &[!byte[0]]).unwrap();
    (unit, flips)
}

#[test]
fn a_flushed_record_that_has_rotted_is_not_passed_over_even_when_it_is_the_last() {
    let (unit, _flips) = rotten_end();
    let found = find(&unit).unwrap();
    let opened = Volume::open(Arc::clone(&unit), &found, keys(&[1]), OpenOptions::default());
    assert!(matches!(opened, Err(VolumeError::RecordsLost(1))));
    let report = verify(&unit, &found, Some(&keys(&[1])), None, &mut |_| {}).unwrap();
    assert_eq!((report.journal, report.missing_records), (Some(JournalState::RecordsLost(1)), 1));
    assert!(!report.is_whole());
    let recover = |loss| recover(&unit, &found, &keys(&[1]), None, loss);
    assert!(matches!(recover(TailLoss::Refuse), Err(VolumeError::RecordsLost(1))));
    let recovered = recover(TailLoss::Force).unwrap();
    assert_eq!((recovered.moved, recovered.missing_records, recovered.tail_lost), (1, 1, false));
    let content = read(&open(&unit), 0, 1024).unwrap();
    assert_eq!(content, [[1; 512], [2; 512]].concat(), "the older content, after it was asked for");
}

#[test]
fn a_note_follows_each_flush_that_has_something_to_tell_and_no_other_request() {
    let trace = Arc::new(Trace::new(memory(PACKED.unit_bytes(64))));
    let unit = PACKED.blocks(Arc::<Trace>::clone(&trace));
    make(&unit, PACKED, Holes::Allowed);
    let volume = open(&unit);
    let notes = || {
        let tails = 8192..16384;
        let records = trace.take();
        records.iter().filter(|record| record.kind == OpKind::Write && tails.contains(&record.offset)).count()
    };
    notes();
    write(&volume, 0, &[1; 512], false).unwrap();
    flush(&volume).unwrap();
    flush(&volume).unwrap();
    assert_eq!(read(&volume, 0, 512).unwrap(), [1; 512]);
    volume.stop();
    assert_eq!(notes(), 1);
}
