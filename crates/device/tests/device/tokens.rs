//! ROD tokens: POPULATE TOKEN, WRITE USING TOKEN and RECEIVE ROD TOKEN INFORMATION.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lunette_device::{LogicalUnit, LogicalUnitConfig, Response};
use lunette_scsi::copy::tokens::{TOKEN_LEN, zero_token};
use lunette_scsi::{AdditionalSense, FieldPointer, Lun, SenseData, Status};
use lunette_store::{MemoryStore, OpKind};

use crate::fixture::{Fixture, THIN, name, sense};

const BLOCK: usize = 512;
const SECOND: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

type Ranges<'a> = &'a [(u64, u32)];

fn ranges(mut header: Vec<u8>, ranges: Ranges<'_>) -> Vec<u8> {
    let (at, len) = (header.len(), ranges.len() as u16 * 16);
    header[at - 2..].copy_from_slice(&len.to_be_bytes());
    header[..2].copy_from_slice(&(at as u16 - 2 + len).to_be_bytes());
    for (lba, blocks) in ranges {
        header.extend(lba.to_be_bytes());
        header.extend(blocks.to_be_bytes());
        header.extend([0; 4]);
    }
    header
}

fn token_cdb(action: u8, id: u32, len: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x83, action);
    cdb[6..10].copy_from_slice(&id.to_be_bytes());
    cdb[10..14].copy_from_slice(&(len as u32).to_be_bytes());
    cdb
}

fn information(fixture: &Fixture, id: u32) -> Vec<u8> {
    let mut cdb = [0x84, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0];
    cdb[2..6].copy_from_slice(&id.to_be_bytes());
    fixture.read(&cdb)
}

pub(crate) fn populate(fixture: &Fixture, all: Ranges<'_>) -> [u8; TOKEN_LEN] {
    let list = ranges(vec![0; 16], all);
    let response = fixture.run(&token_cdb(0x10, 5, list.len()), &list);
    assert_eq!(response.status, Status::GOOD, "{response:?}");
    let information = information(fixture, 5);
    assert_eq!((information.len(), &information[32..38]), (36 + 514, &[0, 0, 2, 2, 0, 0][..]));
    assert_eq!((information[4], information[5], information[15]), (0x10, 1, 0xf1));
    *information[38..].first_chunk().unwrap()
}

fn write_on(fixture: &Fixture, lun: [u8; 8], token: &[u8; TOKEN_LEN], offset: u64, all: Ranges<'_>) -> Response {
    let mut header = vec![0; 536];
    header[8..16].copy_from_slice(&offset.to_be_bytes());
    header[16..16 + TOKEN_LEN].copy_from_slice(token);
    let list = ranges(header, all);
    fixture.run_on(&fixture.nexus, lun, token_cdb(0x11, 6, list.len()), &list)
}

pub(crate) fn write(fixture: &Fixture, token: &[u8; TOKEN_LEN], offset: u64, all: Ranges<'_>) -> Result<(), SenseData> {
    let response = write_on(fixture, [0; 8], token, offset, all);
    if response.status == Status::GOOD { Ok(()) } else { Err(sense(&response)) }
}

/// Fills every block with its number.
fn filled() -> Fixture {
    let fixture = Fixture::new(THIN);
    for (index, block) in fixture.store.bytes.lock().unwrap().chunks_mut(BLOCK).enumerate() {
        block.fill((index % 251) as u8 + 1);
    }
    fixture
}

fn blocks(fixture: &Fixture, lba: usize, count: usize) -> Vec<u8> {
    fixture.bytes(lba * BLOCK, count * BLOCK).chunks(BLOCK).map(|block| block[0]).collect()
}

#[test]
fn a_token_carries_its_blocks_to_other_places() {
    let fixture = filled();
    let token = populate(&fixture, &[(10, 3), (0, 0), (20, 3)]);
    assert_eq!((&token[..8], token[63], token[62]), (&[0, 0x80, 0, 1, 0, 0, 1, 0xf8][..], 0, 12), "six blocks");
    assert_eq!(write(&fixture, &token, 1, &[(500, 4), (600, 1)]), Ok(()));
    assert_eq!(blocks(&fixture, 499, 6), [249, 12, 13, 21, 22, 3]);
    assert_eq!(blocks(&fixture, 600, 2), [23, 100]);
    let information = information(&fixture, 6);
    assert_eq!((information.len(), information[4], information[5], information[23]), (36, 0x11, 1, 5));
    assert_eq!(write(&fixture, &token, 0, &[(700, 6)]), Ok(()), "it is good until its blocks change");
}

#[test]
fn a_token_of_one_unit_is_written_to_another() {
    let fixture = filled();
    let memory = Arc::new(MemoryStore::new(1 << 20).unwrap());
    let config = LogicalUnitConfig::new(Arc::<MemoryStore>::clone(&memory), "serial-2");
    fixture.device.add(Lun::new(1).unwrap(), Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
    fixture.run(&[0x00], &[]);
    fixture.run_on(&fixture.nexus, SECOND, [0; 16], &[]);
    let token = populate(&fixture, &[(10, 3)]);
    assert_eq!(write_on(&fixture, SECOND, &token, 0, &[(7, 3)]).status, Status::GOOD);
    let mut bytes = [0; 4 * BLOCK];
    memory.read(7 * BLOCK as u64, &mut bytes).unwrap();
    assert_eq!(bytes.chunks(BLOCK).map(|block| block[0]).collect::<Vec<_>>(), [11, 12, 13, 0]);
}

#[test]
fn a_token_ends_when_one_of_its_blocks_changes() {
    let writes: [(&[u8], usize); 4] = [
        (&[0x2a, 0, 0, 0, 0, 12, 0, 0, 1, 0], BLOCK),
        (&[0x41, 0, 0, 0, 0, 0, 0, 0, 11, 0], BLOCK),
        (&[0x93, 1, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0], 0),
        (&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24),
    ];
    for (cdb, len) in writes {
        let fixture = filled();
        let token = populate(&fixture, &[(100, 1), (10, 3)]);
        let beside = fixture.run(&[0x2a, 0, 0, 0, 0, 13, 0, 0, 1, 0], &[9; BLOCK]);
        assert_eq!(beside.status, Status::GOOD);
        let mut data = vec![1; len];
        if cdb[0] == 0x42 {
            data = vec![0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 1, 0, 0, 0, 0];
        }
        assert_eq!(write(&fixture, &token, 0, &[(500, 4)]), Ok(()));
        assert_eq!(fixture.run(cdb, &data).status, Status::GOOD);
        fixture.seen();
        let revoked = write(&fixture, &token, 0, &[(600, 1)]).unwrap_err();
        assert_eq!(revoked.code, AdditionalSense::TOKEN_REVOKED);
        assert_eq!(fixture.seen(), []);
    }
}

#[test]
fn a_token_ends_when_others_change_the_medium() {
    let fixture = filled();
    let token = populate(&fixture, &[(10, 3)]);
    fixture.unit.medium_changed();
    fixture.run(&[0x00], &[]);
    assert_eq!(write(&fixture, &token, 0, &[(600, 1)]).unwrap_err().code, AdditionalSense::TOKEN_REVOKED);
}

#[test]
fn no_other_bytes_are_a_token() {
    let fixture = filled();
    let token = populate(&fixture, &[(10, 3)]);
    let tries = [
        (8, AdditionalSense::TOKEN_UNKNOWN),
        (15, AdditionalSense::TOKEN_UNKNOWN),
        (130, AdditionalSense::TOKEN_UNKNOWN),
        (511, AdditionalSense::TOKEN_UNKNOWN),
        (3, AdditionalSense::UNSUPPORTED_TOKEN_TYPE),
        (7, AdditionalSense::INVALID_TOKEN_LENGTH),
    ];
    for (at, expected) in tries {
        let mut forged = token;
        forged[at] ^= 1;
        assert_eq!(write(&fixture, &forged, 0, &[(500, 1)]).unwrap_err().code, expected, "byte {at}");
    }
    assert_ne!(populate(&fixture, &[(10, 3)])[128..160], token[128..160], "two tokens have nothing secret in common");
}

#[test]
fn a_token_is_unknown_to_a_nexus_that_does_not_see_its_unit() {
    let fixture = filled();
    let token = populate(&fixture, &[(10, 3)]);
    let config = LogicalUnitConfig::new(Arc::new(MemoryStore::new(1 << 20).unwrap()), "serial-2");
    fixture.device.add(Lun::new(1).unwrap(), Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
    fixture.run_on(&fixture.nexus, SECOND, [0; 16], &[]);
    fixture.device.assign(Lun::ZERO, None);
    let _ = fixture.run_on(&fixture.nexus, SECOND, [0; 16], &[]);
    let unknown = sense(&write_on(&fixture, SECOND, &token, 0, &[(0, 1)]));
    assert_eq!(unknown.code, AdditionalSense::TOKEN_UNKNOWN);
}

#[test]
fn zeroes_need_no_unit() {
    let fixture = filled();
    fixture.seen();
    assert_eq!(write(&fixture, &zero_token(), 77, &[(10, 3), (20, 1)]), Ok(()));
    assert_eq!((blocks(&fixture, 9, 5), blocks(&fixture, 20, 2)), (vec![10, 0, 0, 0, 14], vec![0, 22]));
    assert!(fixture.seen().iter().all(|seen| seen.kind == OpKind::WriteZeroes));
}

#[test]
fn ranges_lie_within_both_sides() {
    let fixture = filled();
    let list = ranges(vec![0; 16], &[(0, 1), (1023, 2)]);
    let sense = fixture.refused(&token_cdb(0x10, 5, list.len()), &list);
    assert_eq!((sense.code, sense.field), (AdditionalSense::LBA_OUT_OF_RANGE, Some(FieldPointer::data(32))));
    let mut list = ranges(vec![0; 16], &[(0, 1)]);
    list[2] = 2;
    list[8..12].copy_from_slice(&[0, 1, 0, 0]);
    assert_eq!(fixture.refused(&token_cdb(0x10, 5, list.len()), &list).field, Some(FieldPointer::data(8)), "ROD TYPE");
    let token = populate(&fixture, &[(10, 3)]);
    for (offset, blocks) in [(0, 4), (3, 1), (u64::MAX, 1)] {
        let sense = write(&fixture, &token, offset, &[(500, blocks)]).unwrap_err();
        assert_eq!(sense.field, Some(FieldPointer::data(8)), "OFFSET INTO ROD");
    }
    let sense = write(&fixture, &token, 0, &[(500, 1), (12, 1)]).unwrap_err();
    assert_eq!(sense.field, Some(FieldPointer::data(536 + 16)), "a block of its own token");
    let sense = write(&fixture, &token, 0, &[(1024, 1)]).unwrap_err();
    assert_eq!((sense.code, sense.field), (AdditionalSense::LBA_OUT_OF_RANGE, Some(FieldPointer::data(536))));
    assert_eq!(fixture.run(&token_cdb(0x10, 5, 0), &[]).status, Status::GOOD, "no list is no error");
}

#[test]
fn tokens_expire_are_deleted_and_are_listed() {
    let fixture = filled();
    let time = Arc::new(AtomicU64::new(1000));
    let now = Arc::clone(&time);
    let config = LogicalUnitConfig {
        clock: Arc::new(move || Duration::from_secs(now.load(Ordering::Relaxed))),
        ..LogicalUnitConfig::new(fixture.store.clone(), "serial-9")
    };
    fixture.device.assign(Lun::ZERO, Some(Arc::new(LogicalUnit::new(config).unwrap())));
    let changed = [fixture.run(&[0x00], &[]).status, fixture.run(&[0x00], &[]).status];
    assert_eq!(changed, [Status::CHECK_CONDITION; 2]);
    let token = populate(&fixture, &[(10, 3)]);
    let list = || fixture.read(&[0x84, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0]);
    assert_eq!(list()[8..], token[..96]);
    for seconds in [1060, 1120, 1180] {
        time.store(seconds, Ordering::Relaxed);
        assert_eq!(write(&fixture, &token, 0, &[(500, 3)]), Ok(()), "each use counts");
    }
    time.store(1241, Ordering::Relaxed);
    assert_eq!(write(&fixture, &token, 0, &[(500, 3)]).unwrap_err().code, AdditionalSense::TOKEN_EXPIRED);
    assert_eq!(list().len(), 8);
    let token = populate(&fixture, &[(10, 3)]);
    let mut header = vec![0; 536];
    header[2] = 0x02;
    header[16..16 + TOKEN_LEN].copy_from_slice(&token);
    let deleting = ranges(header, &[(500, 1)]);
    assert_eq!(fixture.run(&token_cdb(0x11, 6, deleting.len()), &deleting).status, Status::GOOD);
    assert_eq!(write(&fixture, &token, 0, &[(500, 1)]).unwrap_err().code, AdditionalSense::TOKEN_UNKNOWN);
}

/// The maximum number of tokens, all revoked: they make room.
#[test]
fn revoked_tokens_make_room_for_new_ones() {
    const MOST: usize = 1024;
    let fixture = filled();
    for _ in 0..MOST {
        populate(&fixture, &[(10, 3)]);
    }
    let list = ranges(vec![0; 16], &[(10, 3)]);
    let full = fixture.refused(&token_cdb(0x10, 5, list.len()), &list);
    assert_eq!(full.code, AdditionalSense::INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN);
    assert_eq!(fixture.run(&[0x2a, 0, 0, 0, 0, 12, 0, 0, 1, 0], &[9; BLOCK]).status, Status::GOOD);
    let token = populate(&fixture, &[(10, 3)]);
    assert_eq!(write(&fixture, &token, 0, &[(500, 3)]), Ok(()));
}

#[test]
fn reservations_of_others_keep_a_token_from_being_read() {
    let fixture = filled();
    let token = populate(&fixture, &[(10, 3)]);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    fixture.run_on(&other, [0; 8], [0; 16], &[]);
    let mut reserve = [0; 16];
    reserve[0] = 0x16;
    assert_eq!(fixture.run_on(&other, [0; 8], reserve, &[]).status, Status::GOOD);
    assert_eq!(write_on(&fixture, [0; 8], &token, 0, &[(500, 1)]).status, Status::RESERVATION_CONFLICT);
}

#[test]
fn sanitizing_ends_all_tokens() {
    let fixture = filled();
    let token = populate(&fixture, &[(10, 3)]);
    assert_eq!(fixture.run(&[0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], &[]).status, Status::GOOD, "BLOCK ERASE");
    assert_eq!(write(&fixture, &token, 0, &[(500, 3)]).unwrap_err().code, AdditionalSense::TOKEN_REVOKED);
    assert_eq!(blocks(&fixture, 500, 1), [0]);
}
