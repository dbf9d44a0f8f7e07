//! Volumes with parity groups: damage is repaired, and parity follows writes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lunette_quanta::{Group, Holes, QuantumSize};
use lunette_store::filters::{Fault, Rule};
use lunette_store::{
    Capabilities, Completion, FileIo, Geometry, InlineIo, MemoryStore, Op, OpKind, Outcome, Store, StoreError, execute,
};
use lunette_volume::{FormatOptions, OpenOptions, Scrubbed, Volume, VolumeError, find, format, scrub};
use proptest::prelude::*;

use crate::common::{Blocks, VOLUME, flush, keys, memory, open, open_with, read, refused_at, write};

const SIZE: QuantumSize = QuantumSize::B512;
const LEN: usize = SIZE.bytes();
const EDU: u64 = SIZE.edu_len() as u64;

/// A formatted unit in memory with room for `quanta` quanta and their parity.
fn unit(quanta: u64, group: Group, holes: Holes) -> (Arc<MemoryStore>, Arc<dyn Store>) {
    let parity = quanta.div_ceil(group.data.into()) * u64::from(group.parity);
    let memory = memory((2 + quanta + parity) * EDU);
    let inner = Arc::<MemoryStore>::clone(&memory);
    let unit: Arc<dyn Store> = Arc::new(Blocks { inner, block_len: EDU as u32, unmap: true });
    let options = FormatOptions { holes, parity: Some(group), ..FormatOptions::default() };
    let header = format(&unit, VOLUME, &keys(&[1]), &options, &mut |_| {}).unwrap();
    assert_eq!((header.quanta, header.group), (quanta, Some(group)));
    (memory, unit)
}

fn content(quanta: u64) -> Vec<u8> {
    (0..quanta as usize * LEN).map(|at| (at / LEN * 7 + at * 31 + 1) as u8).collect()
}

/// Flips a bit of the quantum's EDU.
fn damage(memory: &MemoryStore, position: u64) {
    let offset = (2 + position) * EDU + position * 131 % EDU;
    let byte = read(memory, offset, 1).unwrap()[0];
    write(memory, offset, &[byte ^ 0x10], false).unwrap();
}

fn raw(memory: &MemoryStore) -> Vec<u8> {
    read(memory, 0, memory.geometry().len_bytes as usize).unwrap()
}

#[test]
fn as_many_damaged_quanta_of_each_group_are_repaired_as_it_has_parity() {
    for (data, parity) in [(4, 1), (4, 2), (5, 3), (1, 1)] {
        let (memory, unit) = unit(11, Group { data, parity }, Holes::Allowed);
        let volume = open(&unit);
        write(&volume, 0, &content(11), false).unwrap();
        let whole = raw(&memory);
        let damaged = (0..11).filter(|position| position % u64::from(data) < u64::from(parity)).collect::<Vec<_>>();
        for position in &damaged {
            damage(&memory, *position);
        }
        assert_eq!(read(&volume, 0, 11 * LEN).unwrap(), content(11), "{data}+{parity}");
        assert_eq!(volume.counts().repaired, damaged.len() as u64);
        assert_eq!(raw(&memory), whole, "what was repaired is on the unit again");
    }
}

#[test]
fn one_damaged_quantum_too_many_is_refused_and_the_others_are_not() {
    let (memory, unit) = unit(8, Group { data: 4, parity: 2 }, Holes::Allowed);
    let volume = open(&unit);
    write(&volume, 0, &content(8), false).unwrap();
    for position in [0, 1, 2, 5] {
        damage(&memory, position);
    }
    let (error, bytes) = read(&volume, 0, 8 * LEN).unwrap_err();
    assert_eq!(refused_at(&error), Some(0));
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert_eq!(read(&volume, 3 * LEN as u64, 5 * LEN).unwrap(), content(8)[3 * LEN..]);
    // Others of the group can be written, and nothing is made of the lost ones, which have fewer damaged companions
    // now.
    write(&volume, 0, &content(2), false).unwrap();
    let (error, _) = read(&volume, 0, 8 * LEN).unwrap_err();
    assert_eq!(refused_at(&error), Some(2 * LEN as u64));
    assert!(error.to_string().contains("damaged"), "{error}");
    // With the last of them the group is whole, and has parity again.
    write(&volume, 2 * LEN as u64, &content(8)[2 * LEN..3 * LEN], false).unwrap();
    for position in [0, 3] {
        damage(&memory, position);
    }
    assert_eq!(read(&volume, 0, 8 * LEN).ok(), Some(content(8)));
}

#[test]
fn a_read_only_volume_repairs_what_it_reads_and_writes_nothing() {
    let (memory, unit) = unit(4, Group { data: 4, parity: 1 }, Holes::Allowed);
    write(&open(&unit), 0, &content(4), false).unwrap();
    damage(&memory, 2);
    let before = raw(&memory);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let volume = Volume::open(Arc::clone(&unit), &find(&unit).unwrap(), keys(&[1]), options).unwrap();
    assert_eq!(read(&volume, 0, 4 * LEN).unwrap(), content(4));
    assert_eq!(raw(&memory), before);
    assert!(matches!(scrub(&volume, &mut |_| {}), Err(VolumeError::ReadOnly)));
}

#[test]
fn an_erased_quantum_is_repaired_where_there_are_no_holes() {
    let (memory, unit) = unit(6, Group { data: 4, parity: 2 }, Holes::Refused);
    let volume = open(&unit);
    let clean = Scrubbed { groups: 2, ..Scrubbed::default() };
    assert_eq!(scrub(&volume, &mut |_| {}).unwrap(), clean, "formatting computes parity");
    write(&volume, 0, &content(6), false).unwrap();
    write(&*memory, (2 + 3) * EDU, &[0; EDU as usize], false).unwrap();
    assert_eq!(read(&volume, 0, 6 * LEN).ok(), Some(content(6)));
}

/// A client that stopped between data and parity leaves stale parity, which gives no wrong bytes.
#[test]
fn stale_parity_gives_no_wrong_bytes_and_a_scrub_encodes_it_again() {
    for parity in [1, 2, 3] {
        let group = Group { data: 4, parity };
        let parity_at = (2 + 4) * EDU;
        let (memory, unit) = unit(4, group, Holes::Allowed);
        let volume = open(&unit);
        write(&volume, 0, &content(4), false).unwrap();
        let old = raw(&memory)[parity_at as usize..].to_vec();
        let mut expected = content(4);
        expected[LEN..2 * LEN].fill(0xaa);
        write(&volume, LEN as u64, &expected[LEN..2 * LEN], false).unwrap();
        write(&*memory, parity_at, &old, false).unwrap();

        assert_eq!(read(&volume, 0, 4 * LEN).unwrap(), expected, "nothing is damaged");
        let whole = raw(&memory);
        damage(&memory, 3);
        let (error, _) = read(&volume, 0, 4 * LEN).unwrap_err();
        assert_eq!(refused_at(&error), Some(3 * LEN as u64));
        let lost = scrub(&volume, &mut |_| {}).unwrap();
        assert_eq!(lost, Scrubbed { groups: 1, lost: 1, ..Scrubbed::default() }, "the parity is all there is");
        assert_eq!(raw(&memory)[parity_at as usize..], old);

        write(&*memory, 0, &whole, false).unwrap();
        let encoded = scrub(&volume, &mut |_| {}).unwrap();
        assert_eq!(encoded, Scrubbed { groups: 1, encoded: 1, ..Scrubbed::default() });
        damage(&memory, 3);
        assert_eq!(read(&volume, 0, 4 * LEN).unwrap(), expected);
    }
}

#[test]
fn a_scrub_repairs_data_and_rotten_parity() {
    let (memory, unit) = unit(8, Group { data: 4, parity: 2 }, Holes::Allowed);
    let volume = open(&unit);
    write(&volume, 0, &content(8), false).unwrap();
    let whole = raw(&memory);
    damage(&memory, 1);
    // The parity EDUs of the two groups are behind the last quantum.
    damage(&memory, 8);
    damage(&memory, 11);
    let found = scrub(&volume, &mut |_| {}).unwrap();
    assert_eq!(found, Scrubbed { groups: 2, repaired: 1, encoded: 1, lost: 0 });
    assert_eq!(raw(&memory), whole);
    assert_eq!(volume.counts().repaired, 1);
}

/// A unit that cannot read one of its blocks.
struct BadBlock {
    inner: Arc<dyn Store>,
    lba: AtomicU64,
}

impl Store for BadBlock {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let ((offset, len), bad) = (op.range(), self.lba.load(Ordering::Relaxed) * EDU);
        match op {
            Op::Read { .. } if offset <= bad && bad < offset + len => {
                done.complete(Outcome::of(op, Err(io::Error::other("medium error").into())));
            }
            op => self.inner.submit(op, io, done),
        }
    }
}

#[test]
fn a_block_that_cannot_be_read_is_repaired_and_two_are_not() {
    let (memory, unit) = unit(8, Group { data: 4, parity: 1 }, Holes::Allowed);
    let bad = Arc::new(BadBlock { inner: unit, lba: AtomicU64::new(u64::MAX / EDU) });
    let unit: Arc<dyn Store> = Arc::<BadBlock>::clone(&bad);
    let volume = open(&unit);
    write(&volume, 0, &content(8), false).unwrap();
    bad.lba.store(2 + 6, Ordering::Relaxed);
    assert_eq!(read(&volume, 0, 8 * LEN).unwrap(), content(8));
    damage(&memory, 4);
    let (error, _) = read(&volume, 0, 8 * LEN).unwrap_err();
    assert!(matches!(error, StoreError::Io(_)), "{error}");
}

/// Nothing is lost that another server may well read.
#[test]
fn a_scrub_of_a_unit_that_serves_nothing_fails_and_counts_nothing() {
    let (_, unit) = unit(8, Group { data: 4, parity: 1 }, Holes::Allowed);
    let fault = Arc::new(Fault::new(unit));
    let unit: Arc<dyn Store> = Arc::<Fault>::clone(&fault);
    let volume = open(&unit);
    let shut_out = || StoreError::ShutOut("another server has it".into());
    fault.add(Rule { kind: Some(OpKind::Read), ..Rule::always(shut_out) });
    let error = scrub(&volume, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("another server has it"), "{error}");
    let (error, _) = read(&volume, 0, LEN).unwrap_err();
    assert!(matches!(error, StoreError::ShutOut(_)), "{error}");
}

#[test]
fn packed_volumes_have_no_parity() {
    let unit: Arc<dyn Store> = memory(1 << 20);
    let options = FormatOptions { parity: Some(Group { data: 4, parity: 1 }), ..FormatOptions::default() };
    let error = format(&unit, VOLUME, &keys(&[1]), &options, &mut |_| {}).unwrap_err();
    assert!(matches!(error, VolumeError::PackedParity), "{error}");
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, u64, u8),
    Zero(u64, u64),
    Unmap(u64, u64),
    Damage(u64),
}

fn change(quanta: u64) -> impl Strategy<Value = Change> {
    let range = (0..quanta).prop_flat_map(move |from| (Just(from), 1..=quanta - from));
    prop_oneof![
        4 => (range.clone(), any::<u8>()).prop_map(|((from, len), byte)| Change::Write(from, len, byte)),
        1 => range.clone().prop_map(|(from, len)| Change::Zero(from, len)),
        1 => range.prop_map(|(from, len)| Change::Unmap(from, len)),
        2 => (0..quanta).prop_map(Change::Damage),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever is written, zeroed, unmapped and damaged (one quantum between two reads): all is read again, and the
    /// parity is that of the data.
    #[test]
    fn parity_follows_every_change(
        data in 1..6_u16,
        parity in 1..4_u16,
        changes in prop::collection::vec(change(13), 1..20),
    ) {
        let (memory, unit) = unit(13, Group { data, parity }, Holes::Allowed);
        let volume = open(&unit);
        let mut model = vec![0; 13 * LEN];
        let bytes = |from: u64, len: u64| from as usize * LEN..(from + len) as usize * LEN;
        for change in changes {
            let at = |quanta: u64| quanta * LEN as u64;
            match change {
                Change::Write(from, len, byte) => {
                    model[bytes(from, len)].fill(byte);
                    write(&volume, at(from), &vec![byte; len as usize * LEN], false).unwrap();
                }
                Change::Zero(from, len) => {
                    model[bytes(from, len)].fill(0);
                    let op = Op::WriteZeroes { offset: at(from), len: at(len), may_unmap: true, fua: false };
                    execute(&volume, op).result.unwrap();
                }
                Change::Unmap(from, len) => {
                    model[bytes(from, len)].fill(0);
                    execute(&volume, Op::Unmap { offset: at(from), len: at(len) }).result.unwrap();
                }
                Change::Damage(position) => {
                    damage(&memory, position);
                    prop_assert_eq!(&read(&volume, 0, 13 * LEN).unwrap(), &model);
                }
            }
        }
        flush(&volume).unwrap();
        prop_assert_eq!(&read(&volume, 0, 13 * LEN).unwrap(), &model);
        let groups = 13_u64.div_ceil(data.into());
        prop_assert_eq!(scrub(&volume, &mut |_| {}).unwrap(), Scrubbed { groups, ..Scrubbed::default() });
    }
}

/// Requests of one group that come at the same time take turns.
#[test]
fn concurrent_writes_of_a_group_leave_its_parity_right() {
    let (_memory, unit) = unit(8, Group { data: 8, parity: 2 }, Holes::Allowed);
    let volume = open(&unit);
    let (ended, ends) = std::sync::mpsc::channel();
    for round in 0..50_u8 {
        for position in 0..8 {
            let mut from = lunette_buffer::Pool::new(usize::MAX).take(LEN).unwrap();
            from.fill(round);
            let ended = ended.clone();
            let done = Completion::call(move |outcome| ended.send(outcome.result).unwrap());
            volume.submit(Op::Write { offset: position * LEN as u64, from, fua: false }, &InlineIo, done);
        }
    }
    (0..400).for_each(|_| ends.recv().unwrap().unwrap());
    assert_eq!(scrub(&volume, &mut |_| {}).unwrap(), Scrubbed { groups: 1, ..Scrubbed::default() });
}

#[test]
fn a_volume_with_parity_takes_new_keys() {
    let (_, unit) = unit(11, Group { data: 4, parity: 2 }, Holes::Allowed);
    let volume = open(&unit);
    write(&volume, 0, &content(11), false).unwrap();
    volume.set_keys(keys(&[1, 2])).unwrap();
    assert_eq!(volume.header().newest_epoch, 2);
    drop(volume);
    let volume = open_with(&unit, keys(&[1, 2, 3]));
    assert_eq!((volume.header().newest_epoch, read(&volume, 0, 11 * LEN).unwrap()), (3, content(11)));
}
