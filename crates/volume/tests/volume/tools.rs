//! Finding, formatting, verifying, rewriting with newer keys, recovering.

use std::ops::ControlFlow;
use std::sync::Arc;

use lunette_quanta::packed::record::{self, Shape};
use lunette_quanta::packed::{Layout, replay};
use lunette_quanta::{
    Cipher, Codec, DataKey, HeaderError, Holes, KeyRing, Placement, QuantumSize, SLOT_LEN, Sealing, Seed, Slot,
};
use lunette_store::filters::ReadOnly;
use lunette_store::{
    Capabilities, Completion, FileIo, FileStore, Geometry, MemoryStore, Op, OpenOptions as FileOptions, Store,
    StoreError,
};
use lunette_volume::{
    Bad, FormatOptions, JournalState, OpenOptions, TailLoss, Verdict, Volume, VolumeError, find, format, recover,
    rekey, verify,
};

use crate::common::{
    Blocks, Kind, VOLUME, flush, fresh, keys, memory, open, open_with, read, wait_for_the_thread_of_the_volume, write,
};

const NATIVE: Kind = Kind::Native(QuantumSize::B512);
const PACKED: Kind = Kind::Packed(QuantumSize::B512, 512);

#[test]
fn a_unit_without_a_volume_says_so() {
    for kind in Kind::ALL {
        let unit = kind.blocks(memory(kind.unit_bytes(16)));
        assert!(matches!(find(&unit), Err(VolumeError::NoVolume)));
    }
    let tiny: Arc<dyn Store> = memory(512);
    assert!(matches!(find(&tiny), Err(VolumeError::NoVolume)));
}

#[test]
fn each_copy_of_the_header_is_enough() {
    for kind in Kind::ALL {
        let second = if let Kind::Native(size) = kind { size.edu_len() as u64 } else { 4096 };
        for at in [0, second] {
            let (memory, unit, volume) = fresh(kind, 16);
            write(&volume, 0, &vec![3; kind.size().bytes()], true).unwrap();
            drop(volume);
            memory.write(at + 100, &[1]).unwrap();
            let found = find(&unit).unwrap();
            assert_eq!(found.copies().iter().filter(|copy| copy.is_ok()).count(), 1, "{kind:?}");
            let volume = open(&unit);
            assert_eq!(read(&volume, 0, 1).err().map(|_| ()), Some(()), "whole quanta");
            assert_eq!(read(&volume, 0, kind.size().bytes()).unwrap()[0], 3);
            memory.write(second - at + 100, &[1]).unwrap();
            assert!(matches!(find(&unit), Err(VolumeError::Header(HeaderError::Damaged))));
        }
    }
}

#[test]
fn the_placement_follows_the_units_blocks() {
    let formatted = |block_len: u32, size| {
        let unit: Arc<dyn Store> = Arc::new(Blocks { inner: memory(1 << 20), block_len, unmap: false });
        let options = FormatOptions { size, ..FormatOptions::default() };
        format(&unit, VOLUME, &keys(&[1]), &options, &mut |_| {}).map(|header| (header.placement, header.size))
    };
    for size in QuantumSize::ALL {
        assert_eq!(formatted(size.edu_len() as u32, None).unwrap(), (Placement::Native, size));
    }
    for (block_len, packed) in [(1, 512), (512, 512), (1024, 4096), (4096, 4096)] {
        let (placement, size) = formatted(block_len, None).unwrap();
        assert!(matches!(placement, Placement::Packed { block_len, .. } if block_len == packed), "{placement:?}");
        assert_eq!(size, QuantumSize::B4096);
    }
    assert!(matches!(formatted(520, None), Err(VolumeError::BlockLen(520))));
    assert!(matches!(formatted(4096, Some(QuantumSize::B512)), Err(VolumeError::QuantumSize { .. })));
    assert!(matches!(formatted(576, Some(QuantumSize::B4096)), Err(VolumeError::QuantumSize { .. })));
}

#[test]
fn formatting_refuses_what_it_would_destroy_and_what_does_not_fit() {
    let (_, unit, volume) = fresh(PACKED, 16);
    drop(volume);
    let plain = PACKED.options(Holes::Allowed);
    let again = |unit: &Arc<dyn Store>, options| format(unit, VOLUME, &keys(&[1]), &options, &mut |_| {});
    assert!(matches!(again(&unit, plain), Err(VolumeError::Exists(VOLUME))));
    assert!(again(&unit, FormatOptions { overwrite: true, ..plain }).is_ok());
    let read_only: Arc<dyn Store> = Arc::new(ReadOnly::new(Arc::clone(&unit)));
    assert!(matches!(again(&read_only, plain), Err(VolumeError::ReadOnly)));
    let small: Arc<dyn Store> = memory(30 << 10);
    assert!(matches!(again(&small, plain), Err(VolumeError::NoRoom { .. })));
    let odd = FormatOptions { journal_bytes: Some(4096), ..plain };
    assert!(matches!(again(&small, odd), Err(VolumeError::JournalLen(4096))));
}

#[test]
fn progress_comes_to_its_end() {
    for holes in [Holes::Allowed, Holes::Refused] {
        for kind in [NATIVE, PACKED] {
            let unit = kind.blocks(memory(kind.unit_bytes(500)));
            let mut last = None;
            format(&unit, VOLUME, &keys(&[1]), &kind.options(holes), &mut |progress| last = Some(progress)).unwrap();
            let last = last.unwrap();
            assert_eq!(last.done_bytes, last.total_bytes);
        }
    }
}

#[test]
fn a_volume_opens_only_with_its_keys_and_on_its_unit() {
    let (_, unit, volume) = fresh(NATIVE, 16);
    drop(volume);
    let opened = |unit: &Arc<dyn Store>, keys| {
        Volume::open(Arc::clone(unit), &find(unit).unwrap(), keys, OpenOptions::default()).err()
    };
    let wrong = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([9; 32])).unwrap();
    assert!(matches!(opened(&unit, wrong), Some(VolumeError::Header(HeaderError::NotAuthentic))));
    let other = KeyRing::new(Cipher::Aes256GcmSiv, 1, &DataKey::new([1; 32])).unwrap();
    assert!(matches!(opened(&unit, other), Some(VolumeError::OtherCipher { .. })));
    assert!(matches!(opened(&unit, keys(&[2])), Some(VolumeError::Header(HeaderError::UnknownEpoch(1)))));
    let cut: Arc<dyn Store> = {
        let cut = MemoryStore::new(NATIVE.unit_bytes(15)).unwrap();
        cut.write(0, &read(&*unit, 0, NATIVE.unit_bytes(15) as usize).unwrap()).unwrap();
        NATIVE.blocks(Arc::new(cut))
    };
    assert!(matches!(opened(&cut, keys(&[1])), Some(VolumeError::UnitTooSmall(_))));
}

#[test]
fn a_read_only_volume_changes_nothing() {
    for kind in [NATIVE, PACKED] {
        let (memory, unit, volume) = fresh(kind, 16);
        write(&volume, 0, &[1; 512], true).unwrap();
        drop(volume);
        let all = |memory: &MemoryStore| {
            let mut bytes = vec![0; memory.geometry().len_bytes as usize];
            memory.read(0, &mut bytes).unwrap();
            bytes
        };
        let before = all(&memory);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let volume = Volume::open(Arc::clone(&unit), &find(&unit).unwrap(), keys(&[1, 2]), options).unwrap();
        assert!(volume.capabilities().read_only);
        assert_eq!(read(&volume, 0, 512).unwrap(), [1; 512]);
        assert!(matches!(write(&volume, 0, &[2; 512], false), Err(StoreError::ReadOnly)));
        assert!(matches!(rekey(&volume, 0, &mut |_| ControlFlow::Continue(())), Err(VolumeError::ReadOnly)));
        flush(&volume).unwrap();
        volume.close().unwrap();
        assert!(all(&memory) == before);
    }
}

#[test]
fn verify_counts_what_is_bad_and_does_not_stop() {
    for kind in [NATIVE, PACKED] {
        let (memory, unit, volume) = fresh(kind, 16);
        write(&volume, 0, &[1; 8 * 512], true).unwrap();
        volume.close().unwrap();
        let header = volume.header();
        drop(volume);
        let len = unit.geometry().len_bytes;
        let place = |position: u64| match kind {
            Kind::Native(_) => (2 + position) * 576,
            Kind::Packed(..) => Layout::of(&header, len).unwrap().data(position),
        };
        for position in [2, 5] {
            let mut byte = [0];
            memory.read(place(position) + 7, &mut byte).unwrap();
            memory.write(place(position) + 7, &[!byte[0]]).unwrap();
        }
        for ring in [None, Some(keys(&[1]))] {
            let mut calls = 0;
            let report = verify(&unit, &find(&unit).unwrap(), ring.as_ref(), None, &mut |_| calls += 1).unwrap();
            assert!(calls > 0 && !report.is_whole());
            assert_eq!((report.intact, report.holes), (6, header.quanta - 8));
            let bad = |position| Bad { position, verdict: Verdict::Damaged };
            assert_eq!(report.first_bad, [bad(2), bad(5)]);
            assert_eq!(report.bad.into_iter().collect::<Vec<_>>(), [(Verdict::Damaged, 2)]);
            assert_eq!(report.header_copies, [true, true]);
        }
    }
}

#[test]
fn verify_looks_into_the_journal() {
    let (_, unit, volume) = fresh(PACKED, 16);
    write(&volume, 512, &[1; 1024], true).unwrap();
    drop(volume);
    let report = verify(&unit, &find(&unit).unwrap(), Some(&keys(&[1])), None, &mut |_| {}).unwrap();
    assert_eq!((report.journal, report.intact), (Some(JournalState::Quanta(2)), 2));
}

#[test]
fn quanta_are_rewritten_with_the_newest_key_in_steps() {
    for kind in [NATIVE, PACKED] {
        let (memory, unit, volume) = fresh(kind, 400);
        let content: Vec<u8> = (0..300 * 512_u32).map(|at| (at / 512) as u8 | 1).collect();
        write(&volume, 0, &content, false).unwrap();
        volume.set_keys(keys(&[1, 2])).unwrap();
        write(&volume, 10 * 512, &content[10 * 512..20 * 512], false).unwrap();
        let first = rekey(&volume, 0, &mut |_| ControlFlow::Break(())).unwrap();
        let next = first.next.expect("it was stopped");
        assert!(next < 300 && first.rewritten == next - 10, "{first:?}");
        let rest = rekey(&volume, next, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((rest.rewritten, rest.next, rest.first_epoch), (300 - next, None, 1));
        // A run over all of it finds nothing left, and says so in the header.
        let all = rekey(&volume, 0, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((all.rewritten, all.refused, all.first_epoch), (0, 0, 2));
        drop(volume);
        assert_eq!(find(&unit).unwrap().header().first_epoch, 2);
        let volume = open_with(&unit, keys(&[2]));
        assert!(read(&volume, 0, content.len()).unwrap() == content);
        assert_eq!(read(&volume, 300 * 512, 512).unwrap(), [0; 512], "holes stay holes");
        let report = verify(&unit, &find(&unit).unwrap(), Some(&keys(&[2])), None, &mut |_| {}).unwrap();
        assert_eq!((report.intact, report.older_epochs), (300, 0));
        drop(memory);
    }
}

#[test]
fn rewriting_passes_by_what_cannot_be_opened() {
    let (memory, _, volume) = fresh(NATIVE, 400);
    write(&volume, 0, &vec![1; 100 * 512], false).unwrap();
    volume.set_keys(keys(&[1, 2])).unwrap();
    memory.write((2 + 40) * 576, &[0xff; 3]).unwrap();
    let done = rekey(&volume, 0, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((done.rewritten, done.refused, done.first_refused, done.first_epoch), (99, 1, Some(40), 1));
}

#[test]
fn older_keys_are_refused() {
    let (_, unit, volume) = fresh(NATIVE, 16);
    volume.set_keys(keys(&[1, 3])).unwrap();
    assert!(matches!(volume.set_keys(keys(&[1, 2])), Err(VolumeError::OldKeys { keys: 2, volume: 3 })));
    drop(volume);
    let volume = Volume::open(Arc::clone(&unit), &find(&unit).unwrap(), keys(&[1]), OpenOptions::default());
    assert!(matches!(volume.err(), Some(VolumeError::Header(HeaderError::UnknownEpoch(3)))));
}

#[test]
fn recovery_empties_the_journal() {
    let (_, unit, volume) = fresh(PACKED, 16);
    write(&volume, 0, &[1; 2048], true).unwrap();
    drop(volume);
    let again = || recover(&unit, &find(&unit).unwrap(), &keys(&[1]), None, TailLoss::Refuse).unwrap();
    assert_eq!((again().moved, again().moved), (4, 0));
    let report = verify(&unit, &find(&unit).unwrap(), Some(&keys(&[1])), None, &mut |_| {}).unwrap();
    assert_eq!((report.journal, report.intact), (Some(JournalState::Empty), 4));
}

#[test]
fn a_journal_without_tails_is_recovered_with_force_alone() {
    let (memory, unit, volume) = fresh(PACKED, 16);
    write(&volume, 0, &[1; 2048], true).unwrap();
    volume.close().unwrap();
    // The first record of the journal is still there, and older than what is in its place after this.
    write(&volume, 512, &[2; 512], true).unwrap();
    volume.close().unwrap();
    write(&volume, 1024, &[3; 512], true).unwrap();
    drop(volume);
    for tail in [8192, 8192 + 4096] {
        memory.write(tail, &[0; 64]).unwrap();
    }
    let found = find(&unit).unwrap();
    let opened = Volume::open(Arc::clone(&unit), &found, keys(&[1]), OpenOptions::default());
    assert!(matches!(opened.err(), Some(VolumeError::TailLost)));
    let report = verify(&unit, &found, Some(&keys(&[1])), None, &mut |_| {}).unwrap();
    assert!(report.journal == Some(JournalState::TailLost) && !report.is_whole());
    assert!(matches!(recover(&unit, &found, &keys(&[1]), None, TailLoss::Refuse), Err(VolumeError::TailLost)));
    let recovered = recover(&unit, &found, &keys(&[1]), None, TailLoss::Force).unwrap();
    assert!(recovered.tail_lost && recovered.moved >= 1, "{recovered:?}");
    let content = read(&open(&unit), 0, 2048).unwrap();
    assert_eq!([content[0], content[512], content[1024], content[1536]], [1, 2, 3, 1]);
}

#[test]
fn forced_recovery_brings_nothing_older_over_what_is_in_its_place() {
    let (memory, unit, volume) = fresh(PACKED, 16);
    write(&volume, 0, &[1; 512], true).unwrap();
    volume.close().unwrap();
    let mut record = vec![0; 1024];
    memory.read(8192 + 8192, &mut record).unwrap();
    write(&volume, 0, &[2; 512], true).unwrap();
    volume.close().unwrap();
    drop(volume);
    // The older record alone is left, as if the newer one had been overwritten.
    memory.write(8192, &vec![0; Kind::ALL.len() * 8192]).unwrap();
    memory.write(8192 + 8192, &record).unwrap();
    let recovered = recover(&unit, &find(&unit).unwrap(), &keys(&[1]), None, TailLoss::Force).unwrap();
    assert_eq!(recovered.moved, 0);
    assert_eq!(read(&open(&unit), 0, 512).unwrap(), [2; 512]);
}

#[test]
fn a_volume_lives_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let options = FileOptions { create: Some(4 << 20), ..FileOptions::default() };
    let unit: Arc<dyn Store> = Arc::new(FileStore::open(&path, &options).unwrap());
    format(&unit, VOLUME, &keys(&[1]), &FormatOptions::default(), &mut |_| {}).unwrap();
    let volume = open(&unit);
    assert!(volume.capabilities().volatile_cache);
    let content: Vec<u8> = (0..1_u32 << 20).map(|at| (at / 4096) as u8).collect();
    write(&volume, 4096, &content, false).unwrap();
    volume.close().unwrap();
    drop(volume);
    wait_for_the_thread_of_the_volume(&unit);
    drop(unit);
    let unit: Arc<dyn Store> = Arc::new(FileStore::open(&path, &FileOptions::default()).unwrap());
    assert!(read(&open(&unit), 4096, content.len()).unwrap() == content);
    assert!(matches!(find(&unit).unwrap().header().placement, Placement::Packed { block_len: 512, .. }));
}

/// Where the first record of a journal is on its unit.
const FIRST_RECORD: u64 = 8192 + 8192;

/// A unit whose journal has one record: this content of the first quantum, of a version that no clock has given yet.
fn with_a_record_of_the_future(keys: &KeyRing) -> (Arc<MemoryStore>, Arc<dyn Store>, Layout, u64) {
    let (memory, unit, volume) = fresh(PACKED, 16);
    write(&volume, 0, &[1; 512], true).unwrap();
    volume.close().unwrap();
    let layout = Layout::of(&volume.header(), unit.geometry().len_bytes).unwrap();
    drop(volume);
    let mut journal = replay(&journal_bytes(&memory, &layout), &layout, VOLUME).unwrap();
    let shape = Shape { sealed: 1, holes: 0 };
    let ticket = journal.reserve(shape).unwrap();
    let mut bytes = vec![0; shape.len(&layout)];
    let (slots, data) = record::places(&mut bytes, shape, &layout);
    let codec = Codec::new(VOLUME, QuantumSize::B512, Holes::Allowed, keys.clone());
    let version = u64::MAX / 2;
    codec.seal_split(Sealing { position: 0, version, seed: Seed::new([5; 32]) }, &[2; 512], data, slots);
    record::finish(&mut bytes, &layout, VOLUME, &ticket, [0].into_iter());
    memory.write(FIRST_RECORD, &bytes).unwrap();
    (memory, unit, layout, version)
}

fn journal_bytes(memory: &MemoryStore, layout: &Layout) -> Vec<u8> {
    let mut area = vec![0; layout.journal_len() as usize];
    memory.read(layout.journal_offset(), &mut area).unwrap();
    area
}

#[test]
fn versions_rise_above_those_of_the_journal_but_not_above_forged_ones() {
    for (key, rises) in [(keys(&[1]), true), (forger(), false)] {
        let (memory, unit, layout, future) = with_a_record_of_the_future(&key);
        let volume = open(&unit);
        write(&volume, 512, &[3; 512], true).unwrap();
        drop(volume);
        let journal = replay(&journal_bytes(&memory, &layout), &layout, VOLUME).unwrap();
        let live: Vec<_> = journal.live(1..2).map(|(_, live)| Slot::decode(&live.slot).version).collect();
        assert_eq!(live.iter().map(|version| *version > future).collect::<Vec<_>>(), [rises]);
    }
}

/// Keys of another volume, with the epochs of the volume's.
fn forger() -> KeyRing {
    KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([99; 32])).unwrap()
}

#[test]
fn forced_recovery_does_not_replace_a_quantum_by_a_forged_one() {
    for (key, moved, content) in [(keys(&[1]), 1, 2), (forger(), 0, 1)] {
        let (memory, unit, ..) = with_a_record_of_the_future(&key);
        for tail in [8192, 8192 + 4096] {
            memory.write(tail, &[0; SLOT_LEN]).unwrap();
        }
        let recovered = recover(&unit, &find(&unit).unwrap(), &keys(&[1]), None, TailLoss::Force).unwrap();
        assert_eq!(recovered.moved, moved);
        assert_eq!(read(&open(&unit), 0, 512).unwrap(), [content; 512]);
    }
}

/// A unit that claims to free space in very large pieces.
struct Huge(Arc<dyn Store>);

impl Store for Huge {
    fn geometry(&self) -> Geometry {
        Geometry { unmap_bytes: u32::MAX, ..self.0.geometry() }
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        self.0.submit(op, io, done);
    }
}

#[test]
fn any_geometry_of_a_unit_makes_one_of_whole_quanta() {
    for kind in Kind::ALL {
        let (_, unit, volume) = fresh(kind, 16);
        drop(volume);
        let unit: Arc<dyn Store> = Arc::new(Huge(unit));
        let unmap_bytes = open(&unit).geometry().unmap_bytes as usize;
        assert!(unmap_bytes > 0 && unmap_bytes.is_multiple_of(kind.size().bytes()), "{unmap_bytes}");
    }
}

#[test]
fn of_two_writers_of_a_packed_volume_the_first_is_closed() {
    for later in 1..4 {
        let (_, unit, first) = fresh(PACKED, 16);
        write(&first, 0, &[1; 512], true).unwrap();
        // Each opening writes the other copy of the tail.
        let mut later: Vec<Volume> = (0..later).map(|_| open(&unit)).collect();
        let last = later.pop().unwrap();
        for closed in later.iter().chain([&first]) {
            let error = closed.close().unwrap_err();
            assert!(format!("{error}").contains("another client has opened"), "{error}");
            assert!(matches!(write(closed, 0, &[9; 512], false), Err(StoreError::FlushFailed(_))));
        }
        write(&last, 512, &[2; 512], true).unwrap();
        last.close().unwrap();
        drop((first, later, last));
        let content = read(&open(&unit), 0, 1024).unwrap();
        assert_eq!((content[0], content[512]), (1, 2));
    }
}

/// A packed volume as the first version of this program left it, with content in its places and in its journal, for
/// ever.
#[test]
fn a_packed_volume_of_the_first_version_is_opened() {
    let bytes = include_bytes!("../../../quanta/tests/vectors/volume-1-packed.bin");
    let memory = memory(bytes.len() as u64);
    memory.write(0, bytes).unwrap();
    let unit = PACKED.blocks(memory);
    let key = |first: u8| DataKey::new(std::array::from_fn(|at| at as u8 + first));
    let mut ring = KeyRing::new(Cipher::Aegis256, 1, &key(0)).unwrap();
    ring.add(2, &key(32)).unwrap();
    let found = find(&unit).unwrap();
    let report = verify(&unit, &found, Some(&ring), None, &mut |_| {}).unwrap();
    assert!(report.is_whole());
    assert_eq!((report.journal, report.intact), (Some(JournalState::Quanta(3)), 4));
    let written = |at| match at {
        1 | 7 => at as u8 + 1,
        2 => 51,
        9 => 10,
        _ => 0,
    };
    let check = |volume: &Volume| {
        for at in 0..report.quanta {
            assert_eq!(read(volume, at * 512, 512).unwrap(), vec![written(at); 512], "quantum {at}");
        }
    };
    let volume = open_with(&unit, ring.clone());
    check(&volume);
    volume.close().unwrap();
    drop(volume);
    check(&open_with(&unit, ring));
}
