//! Units of quanta: writes that are checked, damage that is found, and digests that are known.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lunette_device::{LogicalUnit, LogicalUnitConfig, LogicalUnitError, QuantaCounts, QuantaOptions, StoredDigests};
use lunette_quanta::{Cipher, Codec, DataKey, Holes, KeyRing, QuantumSize, Sealing, Seed, VolumeId};
use lunette_scsi::{AdditionalSense, Lun, SenseKey, Status};
use lunette_store::{MemoryStore, OpKind, StoreError};

use crate::atomic::SteppedTask;
use crate::fixture::{Fixture, Medium, THIN, code};

const EDU: usize = 576;

const CHECKED: QuantaOptions = QuantaOptions { check_writes: true, scrub_rate: None, stored_digests: false };
const DIGESTS: QuantaOptions = QuantaOptions { check_writes: false, scrub_rate: None, stored_digests: true };

const REFUSED: (SenseKey, AdditionalSense) =
    (SenseKey::ABORTED_COMMAND, AdditionalSense::LOGICAL_BLOCK_GUARD_CHECK_FAILED);
const MEDIUM_ERROR: (SenseKey, AdditionalSense) = (SenseKey::MEDIUM_ERROR, AdditionalSense::UNRECOVERED_READ_ERROR);

/// A thousand blocks of 576 bytes.
fn medium(quanta: QuantaOptions) -> Medium {
    Medium { len_bytes: 1000 * EDU as u64, block_size: EDU as u32, quanta, ..THIN }
}

/// EDUs as they belong at `lba` and behind it.
fn edus(lba: u64, count: usize) -> Vec<u8> {
    let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32])).unwrap();
    let codec = Codec::new(VolumeId([1; 16]), QuantumSize::B512, Holes::Allowed, ring);
    let mut edus = vec![0; count * EDU];
    codec.seal(
        Sealing { position: lba - 2, version: 1, seed: Seed::new([9; 32]) },
        &vec![0x5a; count * 512],
        &mut edus,
    );
    edus
}

fn flipped(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] ^= 0x40;
    bytes
}

/// A 16-byte CDB with the form of WRITE(16).
fn cdb(opcode: u8, lba: u8, blocks: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[9], cdb[13]) = (opcode, lba, blocks);
    cdb
}

fn wrote(fixture: &Fixture) -> bool {
    fixture.seen().iter().any(|seen| !matches!(seen.kind, OpKind::Read | OpKind::Flush))
}

/// Writes EDUs to blocks 2 to 11, past the unit, and flips a bit of the one at `damaged`.
fn rotten(fixture: &Fixture, damaged: usize) {
    let mut bytes = fixture.store.bytes.lock().unwrap();
    bytes[2 * EDU..12 * EDU].copy_from_slice(&edus(2, 10));
    bytes[damaged * EDU + 100] ^= 1;
}

#[test]
fn a_damaged_block_is_refused_by_every_command_and_nothing_is_written() {
    let intact = edus(10, 3);
    let damaged = flipped(intact.clone(), EDU + 5);
    let first = &intact[..EDU];
    let atomic = [0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 3, 0, 0];
    let xd_write_read = [0x53, 0, 0, 0, 0, 10, 0, 0, 3, 0];
    for (name, cdb, data, lba) in [
        ("WRITE(16)", &cdb(0x8a, 10, 3)[..], damaged.clone(), 11),
        ("WRITE AND VERIFY(16)", &cdb(0x8e, 10, 3), damaged.clone(), 11),
        ("ORWRITE(16)", &cdb(0x8b, 10, 3), damaged.clone(), 11),
        ("WRITE ATOMIC(16)", &atomic, damaged.clone(), 11),
        ("XDWRITEREAD(10)", &xd_write_read, damaged.clone(), 11),
        ("COMPARE AND WRITE", &cdb(0x89, 10, 3), [vec![0; 3 * EDU], damaged.clone()].concat(), 11),
        ("WRITE SAME(16)", &cdb(0x93, 10, 2), first.to_vec(), 11),
        ("one block too far", &cdb(0x8a, 11, 3), intact.clone(), 11),
        ("over the header", &cdb(0x8a, 1, 3), intact.clone(), 1),
    ] {
        let fixture = Fixture::new(medium(CHECKED));
        let sense = fixture.refused(cdb, &data);
        assert_eq!((code(sense), sense.information), (REFUSED, Some(lba)), "{name}");
        assert!(!wrote(&fixture), "{name}");
        let counts = QuantaCounts { refused_writes: 1, ..QuantaCounts::default() };
        assert_eq!(fixture.unit.quanta_counts(), Some(counts), "{name}");
    }
}

#[test]
fn edus_in_their_place_and_holes_are_written() {
    let fixture = Fixture::new(medium(CHECKED));
    let blocks = [edus(10, 2), vec![0; EDU], edus(13, 1)].concat();
    assert_eq!(fixture.run(&cdb(0x8a, 10, 4), &blocks).status, Status::GOOD);
    assert_eq!(fixture.bytes(10 * EDU, 4 * EDU), blocks);
    assert_eq!(fixture.run(&cdb(0x93, 0, 12), &[0; EDU]).status, Status::GOOD, "zeroes are holes everywhere");
    let other = edus(13, 1);
    let compare = [blocks[3 * EDU..].to_vec(), other].concat();
    assert_eq!(fixture.run(&cdb(0x89, 13, 1), &compare).status, Status::GOOD);
    assert_eq!(fixture.unit.quanta_counts(), Some(QuantaCounts::default()));
}

#[test]
fn units_write_what_they_are_not_to_check() {
    for quanta in [QuantaOptions::default(), DIGESTS] {
        let fixture = Fixture::new(medium(quanta));
        let damaged = flipped(edus(10, 3), 0);
        assert_eq!(fixture.run(&cdb(0x8a, 10, 3), &damaged).status, Status::GOOD);
        assert_eq!(fixture.bytes(10 * EDU, 3 * EDU), damaged);
    }
}

#[test]
fn verify_finds_damage_where_quanta_are_looked_at() {
    for quanta in [CHECKED, DIGESTS] {
        let fixture = Fixture::new(medium(quanta));
        rotten(&fixture, 7);
        assert_eq!(fixture.run(&cdb(0x8f, 2, 5), &[]).status, Status::GOOD, "up to the block before");
        let sense = fixture.refused(&cdb(0x8f, 2, 8), &[]);
        assert_eq!((code(sense), sense.information), (MEDIUM_ERROR, Some(7)));
        assert_eq!(fixture.unit.quanta_counts().unwrap().damaged_reads, 1);
    }
    let fixture = Fixture::new(medium(QuantaOptions::default()));
    rotten(&fixture, 7);
    assert_eq!(fixture.run(&cdb(0x8f, 2, 8), &[]).status, Status::GOOD);
}

#[test]
fn reads_name_their_blocks_for_digests() {
    let fixture = Fixture::new(medium(DIGESTS));
    rotten(&fixture, 11);
    let response = fixture.run(&cdb(0x88, 1, 10), &[]);
    let digests = StoredDigests { block_len: EDU as u32, first_lba: 1 };
    assert_eq!(response.digests, Some(digests));
    let crc = lunette_crc32c::crc32c(&fixture.bytes(EDU, 10 * EDU));
    assert_eq!(StoredDigests::crc32c(EDU as u32, 1, &response.data_in), crc);
    let response = fixture.run(&cdb(0x88, 11, 1), &[]);
    assert_eq!(response.status, Status::GOOD);
    let crc = lunette_crc32c::crc32c(&fixture.bytes(11 * EDU, EDU));
    assert_ne!(StoredDigests::crc32c(EDU as u32, 11, &response.data_in), crc, "the block is damaged");
    assert_eq!(Fixture::new(medium(CHECKED)).run(&cdb(0x88, 1, 10), &[]).digests, None);
}

#[test]
fn a_unit_that_doubts_its_medium_checks_what_it_reads_for_a_minute() {
    let fixture = Fixture::new(medium(DIGESTS));
    rotten(&fixture, 7);
    let read = cdb(0x88, 2, 8);
    assert_eq!(fixture.run(&read, &[]).status, Status::GOOD);
    fixture.device.doubt_digests();
    for _ in 0..2 {
        let sense = fixture.refused(&read, &[]);
        assert_eq!((code(sense), sense.information), (MEDIUM_ERROR, Some(7)));
    }
    let intact = fixture.run(&cdb(0x88, 2, 5), &[]);
    assert_eq!(intact.data_in.to_vec(), edus(2, 5));
    assert!(intact.digests.is_some(), "the digest of an intact block is known, doubt or not");
    fixture.now_ms.fetch_add(59_999, Ordering::Relaxed);
    assert_eq!(code(fixture.refused(&read, &[])), MEDIUM_ERROR);
    fixture.now_ms.fetch_add(1, Ordering::Relaxed);
    assert_eq!(fixture.run(&read, &[]).status, Status::GOOD);
}

#[test]
fn units_without_stored_digests_have_nothing_to_doubt() {
    let fixture = Fixture::new(medium(CHECKED));
    rotten(&fixture, 7);
    fixture.device.doubt_digests();
    assert_eq!(fixture.run(&cdb(0x88, 2, 8), &[]).status, Status::GOOD);
}

#[test]
fn the_scrub_finds_damage_again_and_again_at_its_rate() {
    let rate = 1 << 20;
    let fixture = Fixture::new(medium(QuantaOptions { scrub_rate: Some(rate), ..QuantaOptions::default() }));
    rotten(&fixture, 7);
    fixture.store.bytes.lock().unwrap()[900 * EDU] = 1;
    fixture.resume_background();
    assert!(fixture.device.background().is_empty(), "once is enough");
    let counts = || fixture.unit.quanta_counts().unwrap();
    for scrubs in 1..4 {
        while counts().scrubs < scrubs {
            assert!(fixture.step_background());
        }
        let expected = QuantaCounts {
            scrubbed_bytes: scrubs * 1000 * EDU as u64,
            scrubs,
            scrubbed_damage: 2 * scrubs,
            ..QuantaCounts::default()
        };
        assert_eq!(counts(), expected);
    }
    let most = fixture.seen().iter().map(|seen| seen.len).max().unwrap();
    assert_eq!(most, (256 << 10) / EDU as u64 * EDU as u64, "whole blocks");
    // The pause after the last request is not over yet.
    let paused = *fixture.paused.lock().unwrap();
    let due = Duration::from_micros(3 * 1000 * EDU as u64 * 1_000_000 / rate);
    assert!(paused <= due && paused + Duration::from_millis(250) > due, "{paused:?} of {due:?}");
}

/// Two requests make a pass. Each of the first two fails three times, while another server has the disk.
#[test]
fn the_scrub_waits_while_the_store_serves_nothing_and_goes_on_where_it_was() {
    let fixture = Fixture::new(medium(QuantaOptions { scrub_rate: Some(1 << 20), ..QuantaOptions::default() }));
    fixture.resume_background();
    let step_to_request = |fails: bool| {
        *fixture.store.fails.lock().unwrap() = fails.then(|| StoreError::ShutOut("another gateway".into()));
        while fixture.store.seen.lock().unwrap().is_empty() {
            assert!(fixture.step_background());
        }
        fixture.seen()[0].offset
    };
    let (first, second) = (0, (256 << 10) / EDU as u64 * EDU as u64);
    for offset in [first, second] {
        assert_eq!([true, true, true, false].map(step_to_request), [offset; 4]);
    }
    assert!(*fixture.paused.lock().unwrap() >= 6 * Duration::from_secs(1), "it asks no more than once in a second");
}

#[test]
fn the_scrub_ends_with_its_unit() {
    let mut fixture = Fixture::new(medium(QuantaOptions { scrub_rate: Some(1 << 20), ..QuantaOptions::default() }));
    fixture.resume_background();
    while fixture.unit.quanta_counts().unwrap().scrubbed_bytes == 0 {
        assert!(fixture.step_background());
    }
    let config = LogicalUnitConfig::new(Arc::new(MemoryStore::new(1 << 20).unwrap()), "serial-2");
    let other = Arc::new(LogicalUnit::new(config).unwrap());
    fixture.device.assign(Lun::ZERO, Some(Arc::clone(&other)));
    fixture.unit = other;
    fixture.finish_background();
}

#[test]
fn options_of_quanta_need_blocks_of_quanta_and_a_scrub_a_rate_that_ends() {
    let unit = Fixture::new(medium(CHECKED)).unit.config().clone();
    let slow = QuantaOptions { scrub_rate: Some(1000), ..CHECKED };
    let config = LogicalUnitConfig { quanta: slow, ..unit.clone() };
    assert_eq!(LogicalUnit::new(config).err(), Some(LogicalUnitError::ScrubRate(1000)));
    let config = LogicalUnitConfig { block_size: 512, ..unit };
    assert_eq!(LogicalUnit::new(config).err(), Some(LogicalUnitError::Quanta(512)));
}

/// A client that opens EDUs would take the half of one for damage, whatever the unit does with them.
#[test]
fn a_read_waits_for_a_write_of_its_edus() {
    for (medium, waits) in [(medium(QuantaOptions::default()), true), (THIN, false)] {
        let fixture = Fixture::new(medium);
        let bytes = vec![0x5a; 2 * medium.block_size as usize];
        let begin = |cdb, data_out| {
            SteppedTask::new(&fixture, &fixture.nexus, cdb, data_out).until_it_has_its_buffers(&fixture)
        };
        let write = begin(cdb(0x8a, 10, 2), bytes);
        assert!(!write.waits());
        let read = begin(cdb(0x88, 11, 1), Vec::new());
        assert_eq!(read.waits(), waits);
        assert_eq!(write.finish(&fixture).status, Status::GOOD);
        assert_eq!(read.finish(&fixture).status, Status::GOOD);
    }
}
