//! EXTENDED COPY, and the commands that report on copies.

use std::sync::Arc;

use lunette_device::{Command, Input, LogicalUnit, LogicalUnitConfig, LunMap, Nexus, Place, QuantaOptions, Step, Task};
use lunette_scsi::{AdditionalSense, FieldPointer, Lun, SenseData, SenseKey, Status, TaskAttribute};
use lunette_store::filters::{Fault, ReadOnly, Rule, Trace};
use lunette_store::{FileStore, MemoryStore, Op, OpKind, OpenOptions, Outcome, Store, StoreError, execute};
use proptest::prelude::*;

use crate::fixture::{Fixture, Medium, THIN, code, name, sense};

const BLOCK: usize = 512;

/// LUN 1, in its eight bytes.
const SECOND: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// Adds a second logical unit over `store`.
fn add(fixture: &Fixture, store: Arc<dyn Store>, block_size: u32) -> Arc<LogicalUnit> {
    add_unit(fixture, LogicalUnitConfig { block_size, ..LogicalUnitConfig::new(store, "serial-2") })
}

fn add_removable(fixture: &Fixture, store: Arc<dyn Store>) -> Arc<LogicalUnit> {
    add_unit(fixture, LogicalUnitConfig { removable: true, ..LogicalUnitConfig::new(store, "serial-2") })
}

fn add_unit(fixture: &Fixture, config: LogicalUnitConfig) -> Arc<LogicalUnit> {
    let unit = Arc::new(LogicalUnit::new(config).unwrap());
    fixture.device.add(Lun::new(1).unwrap(), Arc::clone(&unit)).unwrap();
    // Takes the unit attentions of both units.
    assert_eq!(fixture.run(&[0x00], &[]).status, Status::CHECK_CONDITION);
    assert_eq!(fixture.run_on(&fixture.nexus, SECOND, [0; 16], &[]).status, Status::CHECK_CONDITION);
    unit
}

/// The identification descriptor of a logical unit: its first designator.
fn target(fixture: &Fixture, lun: [u8; 8]) -> Vec<u8> {
    let mut cdb = [0; 16];
    cdb[..5].copy_from_slice(&[0x12, 1, 0x83, 1, 0]);
    let page = fixture.run_on(&fixture.nexus, lun, cdb, &[]).data_in.to_vec();
    let designator = &page[4..16];
    let mut descriptor = [&[0xe4, 0, 0, 0], designator].concat();
    descriptor.resize(32, 0);
    descriptor
}

/// A copy of `blocks` blocks, counted in those of the source.
fn segment(from: u16, to: u16, blocks: u16, from_lba: u64, to_lba: u64) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 24];
    for value in [from, to, 0, blocks] {
        bytes.extend(value.to_be_bytes());
    }
    bytes.extend(from_lba.to_be_bytes());
    bytes.extend(to_lba.to_be_bytes());
    bytes
}

fn list(id: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (targets, segments) = (targets.concat(), segments.concat());
    let mut header = vec![0; 16];
    header[0] = id;
    header[2..4].copy_from_slice(&(targets.len() as u16).to_be_bytes());
    header[8..12].copy_from_slice(&(segments.len() as u32).to_be_bytes());
    [header, targets, segments].concat()
}

fn copy_cdb(action: u8, len: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x83, action);
    cdb[10..14].copy_from_slice(&(len as u32).to_be_bytes());
    cdb
}

fn status_of(fixture: &Fixture, id: u8) -> Vec<u8> {
    fixture.read(&[0x84, 0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0])
}

fn run_by(fixture: &Fixture, nexus: &Nexus, list: &[u8]) -> lunette_device::Response {
    fixture.run_on(nexus, [0; 8], copy_cdb(0, list.len()), list)
}

fn run(fixture: &Fixture, list: &[u8]) -> Result<(), SenseData> {
    let response = run_by(fixture, &fixture.nexus, list);
    if response.status == Status::GOOD { Ok(()) } else { Err(sense(&response)) }
}

fn aborted(code: AdditionalSense) -> (SenseKey, AdditionalSense) {
    (SenseKey::COPY_ABORTED, code)
}

/// Fills every block with its number.
fn fill(fixture: &Fixture) {
    for (index, block) in fixture.store.bytes.lock().unwrap().chunks_mut(BLOCK).enumerate() {
        block.fill((index % 251) as u8 + 1);
    }
}

#[test]
fn blocks_go_from_one_unit_to_another() {
    let fixture = Fixture::new(THIN);
    let memory = Arc::new(MemoryStore::new(1 << 20).unwrap());
    add(&fixture, Arc::<MemoryStore>::clone(&memory), 512);
    fill(&fixture);
    let targets = [target(&fixture, [0; 8]), target(&fixture, SECOND)];
    let segments = [segment(0, 1, 5, 10, 100), segment(0xffff, 0, 1, 3, 500), segment(1, 0, 1, 104, 0)];
    assert_eq!(run(&fixture, &list(7, &targets, &segments)), Ok(()));
    let mut copied = [0; 7 * BLOCK];
    memory.read(99 * BLOCK as u64, &mut copied).unwrap();
    let expected: Vec<u8> = [0, 11, 12, 13, 14, 15, 0].into_iter().flat_map(|byte| [byte; BLOCK]).collect();
    assert_eq!(copied[..], expected);
    assert_eq!((fixture.bytes(500 * BLOCK, 1), fixture.bytes(0, 1)), (vec![4], vec![15]));
    assert_eq!(status_of(&fixture, 7), [0, 0, 0, 8, 1, 0, 3, 0, 0, 0, 0x0e, 0], "three segments, seven blocks");
}

#[test]
fn a_quantum_is_not_copied_to_where_it_does_not_belong() {
    let quanta = QuantaOptions { check_writes: true, ..QuantaOptions::default() };
    let fixture = Fixture::new(Medium { len_bytes: 1000 * 576, block_size: 576, quanta, ..THIN });
    fixture.store.bytes.lock().unwrap()[10 * 576..][..8].fill(0x5a);
    let targets = [target(&fixture, [0; 8])];
    assert_eq!(run(&fixture, &list(1, &targets, &[segment(0, 0, 5, 20, 30)])), Ok(()), "holes go anywhere");
    fixture.seen();
    let refused = run(&fixture, &list(2, &targets, &[segment(0, 0, 5, 9, 30)])).unwrap_err();
    assert_eq!(code(refused), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
    assert!(fixture.seen().iter().all(|seen| seen.kind == OpKind::Read), "nothing is written");
}

#[test]
fn both_forms_of_the_command_do_the_same() {
    let fixture = Fixture::new(THIN);
    fill(&fixture);
    let (targets, segments) = (target(&fixture, [0; 8]), segment(0, 0, 2, 10, 100));
    let mut long = vec![0; 48];
    (long[0], long[3], long[16]) = (1, 32, 0xff);
    long[20..24].copy_from_slice(&[1, 2, 3, 4]);
    (long[43], long[45]) = (32, 28);
    let long = [long, targets, segments].concat();
    let response = fixture.run(&copy_cdb(1, long.len()), &long);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 108));
    assert_eq!(fixture.bytes(100 * BLOCK, 2 * BLOCK), fixture.bytes(10 * BLOCK, 2 * BLOCK));
    let status = fixture.read(&[0x84, 5, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!((status.len(), status[4], status[5], &status[22..26]), (32, 1, 1, &[4, 0, 0, 1][..]));
    let unknown = fixture.refused(&[0x84, 5, 1, 2, 3, 5, 0, 0, 0, 0, 0, 0, 1, 0], &[]);
    assert_eq!((unknown.code, unknown.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(2))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn ranges_that_overlap_are_copied_as_if_read_first(from in 0..5000_u64, by in -4000..4000_i64, blocks in 1..5000_u16) {
        let fixture = Fixture::new(Medium { len_bytes: 8192 * BLOCK as u64, ..THIN });
        fill(&fixture);
        let to = from.saturating_add_signed(by).min(8192 - u64::from(blocks));
        let from = from.min(8192 - u64::from(blocks));
        let (len, at) = (usize::from(blocks) * BLOCK, |lba: u64| lba as usize * BLOCK);
        let mut expected = fixture.bytes(0, 8192 * BLOCK);
        expected.copy_within(at(from)..at(from) + len, at(to));
        prop_assert_eq!(run(&fixture, &list(1, &[target(&fixture, [0; 8])], &[segment(0, 0, blocks, from, to)])), Ok(()));
        prop_assert!(fixture.bytes(0, 8192 * BLOCK) == expected);
    }
}

#[test]
fn blocks_of_two_sizes_are_counted_as_the_segment_says() {
    let fixture = Fixture::new(THIN);
    let memory = Arc::new(MemoryStore::new(1 << 20).unwrap());
    add(&fixture, Arc::<MemoryStore>::clone(&memory), 4096);
    fill(&fixture);
    let targets = [target(&fixture, [0; 8]), target(&fixture, SECOND)];
    assert_eq!(run(&fixture, &list(1, &targets, &[segment(0, 1, 16, 0, 3)])), Ok(()));
    let mut counted_there = segment(0, 1, 1, 8, 10);
    counted_there[1] = 0x02;
    assert_eq!(run(&fixture, &list(1, &targets, &[counted_there])), Ok(()));
    let mut copied = [0; 2];
    memory.read(4 * 4096 - 1, &mut copied).unwrap();
    assert_eq!(copied, [8, 9]);
    memory.read(11 * 4096 - 1, &mut copied).unwrap();
    assert_eq!(copied, [16, 0]);
    let inexact = run(&fixture, &list(1, &targets, &[segment(0, 1, 9, 0, 0)])).unwrap_err();
    assert_eq!(code(inexact), aborted(AdditionalSense::INEXACT_SEGMENT));
    let mut wrong = targets.clone();
    wrong[1][30] = 2;
    let wrong = run(&fixture, &list(1, &wrong, &[segment(0, 1, 16, 0, 0)])).unwrap_err();
    assert_eq!(wrong.field, Some(FieldPointer::data(16 + 32 + 29)), "DISK BLOCK LENGTH");
}

#[test]
fn a_unit_that_the_initiator_does_not_see_is_unreachable() {
    let fixture = Fixture::new(THIN);
    let other = lunette_device::TargetDevice::new("iqn.2026-11.lunette:other");
    let hidden = LogicalUnitConfig::new(Arc::new(MemoryStore::new(1 << 20).unwrap()), "hidden");
    other.add(Lun::ZERO, Arc::new(LogicalUnit::new(hidden).unwrap())).unwrap();
    let other = Arc::new(other);
    let nexus = other.attach(name("iqn.2026-11.host:a"));
    let mut cdb = [0; 16];
    cdb[..5].copy_from_slice(&[0x12, 1, 0x83, 1, 0]);
    let page = fixture.run_on(&nexus, [0; 8], cdb, &[]).data_in.to_vec();
    let mut hidden = [&[0xe4, 0, 0, 0], &page[4..16]].concat();
    hidden.resize(32, 0);
    let targets = [target(&fixture, [0; 8]), hidden];
    for (from, to, field) in [(0, 1, 6), (1, 0, 4)] {
        let sense = run(&fixture, &list(1, &targets, &[segment(from, to, 1, 0, 0)])).unwrap_err();
        assert_eq!(code(sense), aborted(AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE));
        assert_eq!(sense.field, Some(FieldPointer::data(16 + 64 + field)));
    }
    let beyond = run(&fixture, &list(1, &targets, &[segment(0, 2, 1, 0, 0)])).unwrap_err();
    assert_eq!(code(beyond), aborted(AdditionalSense::UNREACHABLE_COPY_TARGET));
    let mut tape = targets.clone();
    tape[0][1] = 1;
    let tape = run(&fixture, &list(1, &tape, &[segment(0, 0, 1, 0, 0)])).unwrap_err();
    assert_eq!(code(tape), aborted(AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE));
    assert_eq!(fixture.seen(), [], "no store was asked");
}

#[test]
fn reservations_of_others_hold_on_either_side() {
    let fixture = Fixture::new(THIN);
    add(&fixture, Arc::new(MemoryStore::new(1 << 20).unwrap()), 512);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    fixture.run_on(&other, SECOND, [0; 16], &[]);
    let targets = [target(&fixture, [0; 8]), target(&fixture, SECOND)];
    let register = [vec![0; 8], 5_u64.to_be_bytes().to_vec(), vec![0; 8]].concat();
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x5f, 24);
    assert_eq!(fixture.run_on(&other, SECOND, cdb, &register).status, Status::GOOD);
    let held = [5_u64.to_be_bytes().to_vec(), vec![0; 16]].concat();
    (cdb[1], cdb[2]) = (1, 1);
    assert_eq!(fixture.run_on(&other, SECOND, cdb, &held).status, Status::GOOD, "write exclusive");
    let failed = aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE);
    assert_eq!(run(&fixture, &list(1, &targets, &[segment(0, 1, 1, 0, 0)])).map_err(code), Err(failed), "writes there");
    assert_eq!(run(&fixture, &list(1, &targets, &[segment(1, 0, 1, 0, 0)])), Ok(()), "reads there");
    (cdb[1], cdb[2]) = (2, 1);
    assert_eq!(fixture.run_on(&other, SECOND, cdb, &held).status, Status::GOOD, "released");
    (cdb[1], cdb[2]) = (1, 3);
    assert_eq!(fixture.run_on(&other, SECOND, cdb, &held).status, Status::GOOD, "exclusive access");
    assert_eq!(run(&fixture, &list(1, &targets, &[segment(1, 0, 1, 0, 0)])).map_err(code), Err(failed), "reads there");
    assert_eq!(fixture.run_on(&fixture.nexus, SECOND, copy_cdb(0, 0), &[]).status, Status::RESERVATION_CONFLICT);
}

#[test]
fn a_copy_to_a_unit_that_the_host_may_only_read_is_refused() {
    let fixture = Fixture::new(THIN);
    add(&fixture, Arc::new(MemoryStore::new(1 << 20).unwrap()), 512);
    let place = |number, read_only| (Lun::new(number).unwrap(), Place { lun: Lun::new(number).unwrap(), read_only });
    let map = LunMap::only([place(0, false), place(1, true)], false).unwrap();
    fixture.device.set_lun_maps([("reader".into(), map)].into());
    let reader = fixture.device.attach_host(name("iqn.2026-11.host:r"), Some("reader".into()));
    for lun in [[0; 8], SECOND] {
        fixture.run_on(&reader, lun, [0; 16], &[]);
    }
    let targets = [target(&fixture, [0; 8]), target(&fixture, SECOND)];
    let copy = |from, to| run_by(&fixture, &reader, &list(1, &targets, &[segment(from, to, 1, 0, 0)]));
    assert_eq!(code(sense(&copy(0, 1))), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
    assert_eq!(copy(1, 0).status, Status::GOOD);
}

#[test]
fn a_protected_destination_is_not_written() {
    let fixture = Fixture::new(THIN);
    let store = Arc::new(ReadOnly::new(Arc::new(MemoryStore::new(1 << 20).unwrap())));
    add(&fixture, store, 512);
    let targets = [target(&fixture, [0; 8]), target(&fixture, SECOND)];
    let sense = run(&fixture, &list(1, &targets, &[segment(0, 1, 1, 0, 0)])).unwrap_err();
    assert_eq!(code(sense), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
    assert_eq!(run(&fixture, &list(1, &targets, &[segment(1, 0, 1, 0, 0)])), Ok(()));
    for (from, to, field) in [(1024, 0, 12), (0, 1023, 20), (u64::MAX, 0, 12)] {
        let sense = run(&fixture, &list(1, &targets, &[segment(0, 0, 2, from, to)])).unwrap_err();
        assert_eq!((sense.key, sense.field), (SenseKey::COPY_ABORTED, Some(FieldPointer::data(16 + 64 + field))));
    }
}

#[test]
fn a_failure_ends_the_copy_and_is_remembered() {
    let fixture = Fixture::new(THIN);
    let broken = Arc::new(Fault::new(Arc::new(MemoryStore::new(1 << 20).unwrap())));
    broken.add(Rule { kind: Some(OpKind::Write), ..Rule::always(|| StoreError::NoSpace) });
    add(&fixture, broken, 512);
    let targets = [target(&fixture, [0; 8]), target(&fixture, SECOND)];
    let segments = [segment(0, 0, 1, 0, 1), segment(0, 1, 1, 0, 0), segment(0, 0, 1, 0, 2)];
    let failed = run(&fixture, &list(9, &targets, &segments)).unwrap_err();
    assert_eq!(code(failed), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
    assert_eq!(status_of(&fixture, 9)[4..7], [2, 0, 1], "an error, and one segment before it");
    let details = |id| fixture.run(&[0x84, 4, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[]);
    let data = details(9).data_in.to_vec();
    assert_eq!((data[56], usize::from(data[59])), (2, data.len() - 60));
    assert_eq!(SenseData::decode(&data[60..]), Ok(failed));
    assert_eq!(details(9).status, Status::CHECK_CONDITION, "it was told");
}

#[test]
fn without_an_identifier_nothing_is_remembered_and_reports_are_bounded() {
    let fixture = Fixture::new(THIN);
    let targets = [target(&fixture, [0; 8])];
    let mut quiet = list(0, &targets, &[segment(0, 0, 1, 0, 1)]);
    quiet[1] = 0x18;
    assert_eq!(run(&fixture, &quiet), Ok(()));
    let unknown = fixture.refused(&[0x84, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[]);
    assert_eq!(unknown.field, Some(FieldPointer::cdb(2)));
    for id in 0..=100 {
        assert_eq!(run(&fixture, &list(id, &targets, &[segment(0, 0, 1, 0, 1)])), Ok(()));
    }
    assert_eq!(status_of(&fixture, 100)[4], 1);
    assert_eq!(status_of(&fixture, 37)[4], 1, "the last 64");
    assert!(fixture.refused(&[0x84, 0, 36, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[]).field.is_some());
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    fixture.run_on(&other, [0; 8], [0; 16], &[]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[2], cdb[13]) = (0x84, 100, 255);
    assert_eq!(fixture.run_on(&other, [0; 8], cdb, &[]).status, Status::CHECK_CONDITION, "nor by another initiator");
}

#[test]
fn a_parameter_list_must_fit_and_be_complete() {
    let fixture = Fixture::new(THIN);
    let good = list(1, &[target(&fixture, [0; 8])], &[segment(0, 0, 1, 0, 1)]);
    let length = AdditionalSense::PARAMETER_LIST_LENGTH_ERROR;
    assert_eq!(fixture.run(&copy_cdb(0, 0), &[]).status, Status::GOOD, "no list is no error");
    assert_eq!(fixture.refused(&copy_cdb(0, good.len()), &good[..40]).code, length);
    assert_eq!(fixture.refused(&copy_cdb(0, 16 + 4097), &vec![0; 16 + 4097]).code, length);
    assert_eq!(fixture.seen(), []);
}

#[test]
fn reported_copy_limits_are_enforced() {
    let fixture = Fixture::new(THIN);
    let parameters = fixture.read(&[0x84, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let most = |at: usize| usize::from(u16::from_be_bytes([parameters[at], parameters[at + 1]]));
    let (targets, segments) = (most(8), most(10));
    let one = (target(&fixture, [0; 8]), segment(0, 0, 1, 0, 1));
    assert_eq!(run(&fixture, &list(1, &vec![one.0.clone(); targets], &vec![one.1.clone(); segments])), Ok(()));
    let many = run(&fixture, &list(1, &vec![one.0.clone(); targets + 1], std::slice::from_ref(&one.1))).unwrap_err();
    assert_eq!(many.code, AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS);
    let many = run(&fixture, &list(1, &[one.0], &vec![one.1; segments + 1])).unwrap_err();
    assert_eq!(many.code, AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS);
}

#[test]
fn a_target_is_verified_without_touching_it() {
    let fixture = Fixture::new(Medium { removable: true, ..THIN });
    let verify = |id: u8, ready: u8| vec![0x07, 0, 0, 8, 0, id, 0, 0, ready, 0, 0, 0];
    let targets = [target(&fixture, [0; 8])];
    fixture.seen();
    assert_eq!(run(&fixture, &list(1, &targets, &[verify(0, 1)])), Ok(()));
    assert_eq!(fixture.seen(), []);
    fixture.unit.eject().unwrap();
    assert_eq!(run(&fixture, &list(1, &targets, &[verify(0, 0)])), Ok(()));
    let failed = run(&fixture, &list(1, &targets, &[verify(0, 1)])).unwrap_err();
    assert_eq!(code(failed), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
    let unreachable = run(&fixture, &list(1, &targets, &[verify(1, 0)])).unwrap_err();
    assert_eq!(code(unreachable), aborted(AdditionalSense::UNREACHABLE_COPY_TARGET));
}

#[test]
fn a_target_that_is_sanitized_is_not_ready() {
    let fixture = Fixture::new(THIN);
    add(&fixture, Arc::new(MemoryStore::new(1 << 20).unwrap()), 512);
    let verify = |ready: u8| vec![0x07, 0, 0, 8, 0, 0, 0, 0, ready, 0, 0, 0];
    let targets = [target(&fixture, SECOND)];
    let mut erase = [0; 16];
    (erase[0], erase[1]) = (0x48, 0x82);
    assert_eq!(fixture.run_on(&fixture.nexus, SECOND, erase, &[]).status, Status::GOOD, "BLOCK ERASE with IMMED");
    assert_eq!(run(&fixture, &list(1, &targets, &[verify(0)])), Ok(()));
    let failed = run(&fixture, &list(1, &targets, &[verify(1)])).unwrap_err();
    assert_eq!(code(failed), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
    fixture.finish_background();
    assert_eq!(run(&fixture, &list(1, &targets, &[verify(1)])), Ok(()));
}

/// A file whose first MiB is filled with `fill`.
fn file(folder: &tempfile::TempDir, name: &str, fill: u8) -> Arc<FileStore> {
    let options = OpenOptions { create: Some(40 << 20), ..OpenOptions::default() };
    let store = FileStore::open(folder.path().join(name), &options).unwrap();
    let mut from = lunette_buffer::Pool::new(4 << 20).take(1 << 20).unwrap();
    from.fill(fill);
    assert!(execute(&store, Op::Write { offset: 0, from, fua: false }).result.is_ok());
    Arc::new(store)
}

#[test]
fn files_are_copied_by_the_system_and_filters_see_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let source = file(&folder, "a", 7);
    for traced in [false, true] {
        let fixture = Fixture::new(THIN);
        let target_file = file(&folder, if traced { "b" } else { "c" }, 1);
        let trace = Arc::new(Trace::new(Arc::<FileStore>::clone(&target_file)));
        let store: Arc<dyn Store> = if traced { Arc::<Trace>::clone(&trace) } else { target_file.clone() };
        add(&fixture, store, 512);
        let config = LogicalUnitConfig::new(Arc::<FileStore>::clone(&source), "serial-3");
        fixture.device.add(Lun::new(2).unwrap(), Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
        let third = [0, 2, 0, 0, 0, 0, 0, 0];
        let targets = [target(&fixture, third), target(&fixture, SECOND)];
        // LUN 0 and 1 have a unit attention for the new one.
        fixture.run(&[0x00], &[]);
        assert_eq!(run(&fixture, &list(1, &targets, &[segment(0, 1, 0xffff, 0, 0)])), Ok(()));
        let into = lunette_buffer::Pool::new(4 << 20).take(1 << 20).unwrap();
        let copied = execute(&*target_file, Op::Read { offset: 0, into }).buffer.unwrap();
        assert!(copied.iter().all(|byte| *byte == 7));
        let writes = trace.records().iter().filter(|record| record.kind == OpKind::Write).count();
        assert_eq!(writes > 0, traced);
    }
}

#[test]
fn a_copy_waits_while_either_of_its_units_is_frozen() {
    let folder = tempfile::tempdir().unwrap();
    for by_system in [false, true] {
        let fixture = Fixture::new(THIN);
        let [source, to] = ["a", "b"].map(|name| {
            let file: Arc<dyn Store> = file(&folder, &format!("{name}{by_system}"), 7);
            if by_system { file } else { Arc::new(Trace::new(file)) }
        });
        let units = [(1, source), (2, to)].map(|(number, store)| {
            let config = LogicalUnitConfig::new(store, format!("copied-{number}"));
            let unit = Arc::new(LogicalUnit::new(config).unwrap());
            fixture.device.add(Lun::new(number).unwrap(), Arc::clone(&unit)).unwrap();
            unit
        });
        let targets = [SECOND, [0, 2, 0, 0, 0, 0, 0, 0]].map(|lun| target(&fixture, lun));
        fixture.run(&[0x00], &[]);
        let list = list(1, &targets, &[segment(0, 1, 8, 0, 0)]);
        for (unit, requests_before) in units.iter().zip([0, usize::from(!by_system)]) {
            let (mut task, mut input) = begun_with(&fixture, &list, 0);
            let frozen = unit.freeze().unwrap();
            let mut requests = 0;
            loop {
                input = match task.step(input) {
                    Step::Wait { .. } => break,
                    other => {
                        requests += usize::from(matches!(other, Step::Store { .. }));
                        answered(&fixture, &list, other)
                    }
                };
            }
            assert_eq!(requests, requests_before, "by system: {by_system}");
            drop(frozen);
            assert!(matches!(task.step(Input::Waited), Step::Store { .. }), "by system: {by_system}");
        }
    }
}

/// Drives a copy of blocks onto themselves until it has sent `requests` requests to its store.
fn begun(fixture: &Fixture, requests: usize) -> (Task, Input) {
    begun_with(fixture, &list(1, &[target(fixture, [0; 8])], &[segment(0, 0, 0xffff, 0, 0)]), requests)
}

/// Drives the copy of `list` until it has sent `requests` requests to its stores.
fn begun_with(fixture: &Fixture, list: &[u8], requests: usize) -> (Task, Input) {
    let command = Command {
        lun: [0; 8],
        cdb: copy_cdb(0, list.len()).into(),
        attribute: TaskAttribute::Simple,
        data_out_len: list.len() as u32,
        data_in_len: 0,
    };
    let mut task = fixture.device.start(&fixture.nexus, command);
    let (mut input, mut asked) = (Input::Start, 0);
    while asked < requests {
        let step = task.step(input);
        asked += usize::from(matches!(step, Step::Store { .. }));
        input = answered(fixture, list, step);
    }
    (task, input)
}

/// The answer to a step of the copy of `list`.
fn answered(fixture: &Fixture, list: &[u8], step: Step) -> Input {
    match step {
        Step::Buffer { len } => Input::Buffer(fixture.buffer(len)),
        Step::DataOut { len } => {
            let mut buffer = fixture.buffer(len);
            buffer.copy_from_slice(&list[..len]);
            Input::DataOut(buffer)
        }
        Step::Store { store, op } => Input::Store(execute(&*store, op)),
        Step::Work(work) => Input::Store(Outcome::new(work(), None)),
        other => panic!("{other:?}"),
    }
}

const LARGE: Medium = Medium { len_bytes: 40 << 20, ..THIN };

#[test]
fn a_copy_that_is_dropped_was_aborted() {
    let fixture = Fixture::new(LARGE);
    // Twice the limit: each dropped copy makes room for another.
    for _ in 0..128 {
        let (task, _) = begun(&fixture, 4);
        assert_eq!(
            status_of(&fixture, 1),
            [0, 0, 0, 8, 0, 0, 0, 0, 0, 0x10, 0, 0],
            "one of its pieces, and not yet counted"
        );
        let busy = run(&fixture, &list(1, &[target(&fixture, [0; 8])], &[])).unwrap_err();
        assert_eq!(busy.code, AdditionalSense::OPERATION_IN_PROGRESS);
        drop(task);
        assert_eq!(status_of(&fixture, 1)[4], 2);
    }
}

#[test]
fn an_aborted_copy_ends_before_its_next_chunk() {
    let fixture = Fixture::new(LARGE);
    let abort = |id: u8| fixture.run(&[0x83, 0x1c, 0, 0, 0, id], &[]);
    assert_eq!(sense(&abort(1)).field, Some(FieldPointer::cdb(2)), "there is none such");
    let (mut task, mut input) = begun(&fixture, 3);
    assert_eq!(abort(1).status, Status::GOOD);
    let mut asked = 0;
    let response = loop {
        input = match task.step(input) {
            Step::Store { store, op } => {
                asked += 1;
                Input::Store(execute(&*store, op))
            }
            Step::Done(response) => break response,
            other => panic!("{other:?}"),
        };
    };
    assert_eq!((asked, code(sense(&response))), (1, aborted(AdditionalSense::NONE)), "the write of its piece, no more");
    assert_eq!(fixture.read(&[0x84, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0])[5], 0x60);
}

/// Drives a copy to its end, and returns the number of its requests to stores and the response.
fn ended(fixture: &Fixture, (mut task, mut input): (Task, Input)) -> (usize, lunette_device::Response) {
    let mut asked = 0;
    loop {
        input = match task.step(input) {
            Step::Buffer { len } => Input::Buffer(fixture.buffer(len)),
            Step::Store { store, op } => {
                asked += 1;
                Input::Store(execute(&*store, op))
            }
            Step::Work(work) => Input::Store(Outcome::new(work(), None)),
            Step::Done(response) => return (asked, response),
            other => panic!("{other:?}"),
        };
    }
}

#[test]
fn a_copy_holds_no_buffer_while_it_waits_for_one() {
    let fixture = Fixture::new(LARGE);
    // A small chunk; a large one and a rest; a large one again.
    let segments = [1, 0x801, 0x800].map(|blocks| segment(0, 0, blocks, 0, 10_000));
    let (mut task, mut input) = begun_with(&fixture, &list(1, &[target(&fixture, [0; 8])], &segments), 0);
    let mut asked = Vec::new();
    let response = loop {
        input = match task.step(input) {
            Step::Buffer { len } => {
                asked.push((len, fixture.buffer_bytes()));
                Input::Buffer(fixture.buffer(len))
            }
            Step::DataOut { len } => {
                let mut buffer = fixture.buffer(len);
                buffer.copy_from_slice(&list(1, &[target(&fixture, [0; 8])], &segments)[..len]);
                Input::DataOut(buffer)
            }
            Step::Store { store, op } => Input::Store(execute(&*store, op)),
            Step::Work(work) => Input::Store(Outcome::new(work(), None)),
            Step::Done(response) => break response,
            other => panic!("{other:?}"),
        };
    };
    assert_eq!(response.status, Status::GOOD);
    assert_eq!(asked, [(BLOCK, 0), (1 << 20, 0)]);
}

#[test]
fn a_copy_ends_when_it_may_not_go_on() {
    let ends: [fn(&Fixture, &LogicalUnit); 3] = [
        |fixture, _| {
            let other = fixture.device.attach(name("iqn.2026-11.host:b"));
            fixture.run_on(&other, SECOND, [0; 16], &[]);
            let mut reserve = [0; 16];
            reserve[0] = 0x16;
            assert_eq!(fixture.run_on(&other, SECOND, reserve, &[]).status, Status::GOOD);
            // The loss of this nexus would release the unit.
            std::mem::forget(other);
        },
        |_, unit| unit.eject().unwrap(),
        |fixture, _| {
            let control = [0x1a, 0x08, 0x0a, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let mut protect = fixture.run_on(&fixture.nexus, SECOND, control, &[]).data_in.to_vec();
            // The length and DPOFUA are reserved in MODE SELECT.
            protect[..4].fill(0);
            protect[4 + 4] |= 0x08;
            let cdb = [0x15, 0x10, 0, 0, protect.len() as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            assert_eq!(fixture.run_on(&fixture.nexus, SECOND, cdb, &protect).status, Status::GOOD, "SWP");
        },
    ];
    for end in ends {
        let fixture = Fixture::new(LARGE);
        let memory = Arc::new(MemoryStore::new(40 << 20).unwrap());
        let unit = add_removable(&fixture, memory);
        let list = list(1, &[target(&fixture, [0; 8]), target(&fixture, SECOND)], &[segment(0, 1, 0xffff, 0, 0)]);
        let copy = begun_with(&fixture, &list, 2);
        end(&fixture, &unit);
        let (asked, response) = ended(&fixture, copy);
        assert_eq!(code(sense(&response)), aborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE));
        assert_eq!(asked, 0, "its first piece was the last");
    }
}

#[test]
fn running_copies_are_limited() {
    let fixture = Fixture::new(LARGE);
    let most = fixture.read(&[0x84, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0])[36];
    let others: Vec<_> =
        (0..2).map(|index| fixture.device.attach(name(&format!("iqn.2026-11.host:{index}")))).collect();
    let mut quiet = list(0, &[target(&fixture, [0; 8])], &[segment(0, 0, 0xffff, 0, 0)]);
    quiet[1] = 0x18;
    let start = |nexus: &Nexus| {
        let command = Command {
            lun: [0; 8],
            cdb: copy_cdb(0, quiet.len()).into(),
            attribute: TaskAttribute::Simple,
            data_out_len: quiet.len() as u32,
            data_in_len: 0,
        };
        let mut task = fixture.device.start(nexus, command);
        let Step::DataOut { len } = task.step(Input::Start) else { panic!("the list") };
        let mut buffer = fixture.buffer(len);
        buffer.copy_from_slice(&quiet);
        let step = task.step(Input::DataOut(buffer));
        (task, step)
    };
    for nexus in &others {
        fixture.run_on(nexus, [0; 8], [0; 16], &[]);
    }
    let running: Vec<_> = (0..most).map(|index| start(&others[usize::from(index % 2)])).collect();
    assert!(running.iter().all(|(_, step)| matches!(step, Step::Buffer { .. })));
    let Step::Done(response) = start(&fixture.nexus).1 else { panic!("one too many") };
    assert_eq!(response.status, Status::TASK_SET_FULL);
    drop(running);
    assert!(matches!(start(&fixture.nexus).1, Step::Buffer { .. }));
}
