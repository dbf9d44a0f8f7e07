//! WRITE AND VERIFY, ORWRITE, XDWRITEREAD and WRITE ATOMIC, and PRE-FETCH and READ DEFECT DATA.

use lunette_scsi::{AdditionalSense, FieldPointer, SenseKey, Status};
use lunette_store::{Capabilities, OpKind};

use crate::fixture::{Fixture, Medium, Seen, THIN, cdb, code};

/// Four blocks at LBA 8, by the operation codes of the three forms.
fn forms(ten: u8, twelve: u8, sixteen: u8, flags: u8) -> [[u8; 16]; 3] {
    [
        cdb(&[ten, flags, 0, 0, 0, 8, 0, 0, 4, 0]),
        cdb(&[twelve, flags, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0]),
        cdb(&[sixteen, flags, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0]),
    ]
}

#[test]
fn write_and_verify_reads_from_stable_storage() {
    for flags in [0x00, 0x02, 0x12] {
        for (value, cdb) in forms(0x2e, 0xae, 0x8e, flags).into_iter().enumerate() {
            let fixture = Fixture::new(THIN);
            let data = vec![value as u8 + 1; 2048];
            let response = fixture.run(&cdb, &data);
            assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 2048));
            let seen = |kind, fua| Seen { kind, offset: 8 * 512, len: 2048, fua };
            assert_eq!(fixture.seen(), [seen(OpKind::Write, true), seen(OpKind::Read, false)]);
            assert_eq!(fixture.bytes(8 * 512, 2048), data);
        }
    }
}

#[test]
fn write_and_verify_finds_bytes_that_the_medium_changed() {
    for cdb in forms(0x2e, 0xae, 0x8e, 0x02) {
        let fixture = Fixture::new(THIN);
        *fixture.store.spoils.lock().unwrap() = Some(8 * 512 + 777);
        let sense = fixture.refused(&cdb, &[3; 2048]);
        assert_eq!(code(sense), (SenseKey::MISCOMPARE, AdditionalSense::MISCOMPARE_DURING_VERIFY));
        assert_eq!(sense.information, Some(777));
    }
    let fixture = Fixture::new(THIN);
    let other_bytchk = fixture.refused(&forms(0x2e, 0xae, 0x8e, 0x04)[0], &[0; 2048]);
    assert_eq!(other_bytchk.field, Some(FieldPointer::cdb(1).bit(2)));
}

#[test]
fn orwrite_adds_bits() {
    let fixture = Fixture::new(THIN);
    fixture.store.bytes.lock().unwrap().fill(0b0011);
    let cdb = forms(0, 0, 0x8b, 0x08)[2];
    assert_eq!(fixture.run(&cdb, &[0b0101; 1024 + 100]).status, Status::GOOD, "whole blocks of a short Data-Out");
    assert_eq!(fixture.bytes(7 * 512, 2048), [vec![0b0011; 512], vec![0b0111; 1024], vec![0b0011; 512]].concat());
    let seen = |kind, fua| Seen { kind, offset: 8 * 512, len: 1024, fua };
    assert_eq!(fixture.seen(), [seen(OpKind::Read, false), seen(OpKind::Write, true)]);
}

#[test]
fn xdwriteread_writes_and_gives_the_difference() {
    let fixture = Fixture::new(THIN);
    fixture.store.bytes.lock().unwrap().fill(0b0011);
    // Two blocks at LBA 8, FUA.
    let xdwriteread = |flags, data: &[u8]| fixture.run(&[0x53, flags, 0, 0, 0, 8, 0, 0, 2, 0], data);
    let response = xdwriteread(0x08, &[0b0101; 1024]);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 1024));
    assert_eq!(response.data_in.first_run(), [0b0110; 1024]);
    assert_eq!(fixture.bytes(7 * 512, 2048), [vec![0b0011; 512], vec![0b0101; 1024], vec![0b0011; 512]].concat());
    let seen = |kind, fua| Seen { kind, offset: 8 * 512, len: 1024, fua };
    assert_eq!(fixture.seen(), [seen(OpKind::Read, false), seen(OpKind::Write, true)]);
    // DISABLE WRITE.
    let response = xdwriteread(0x04, &[0b1111; 1024]);
    assert_eq!(response.data_in.first_run(), [0b1010; 1024]);
    assert_eq!(fixture.bytes(8 * 512, 1024), [0b0101; 1024]);
    assert_eq!(fixture.seen(), [seen(OpKind::Read, false)]);
    // Whole blocks of a short Data-Out, in both directions.
    let response = xdwriteread(0, &[0; 512 + 100]);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 1024));
    assert_eq!(response.data_in.first_run(), [0b0101; 512]);
    assert_eq!(fixture.bytes(8 * 512, 1024), [vec![0; 512], vec![0b0101; 512]].concat());
}

#[test]
fn xdwriteread_is_checked_as_a_write() {
    let fixture = Fixture::new(THIN);
    assert!(fixture.run(&[0x53], &[]).data_in.is_empty(), "no blocks, no data");
    let sense = fixture.refused(&[0x53, 0x01, 0, 0, 0, 8, 0, 0, 2], &[0; 1024]);
    assert_eq!(sense.field, Some(FieldPointer::cdb(1).bit(0)), "XORPINFO: there is no protection information");
    let sense = fixture.refused(&[0x53, 0, 0xff, 0, 0, 8, 0, 0, 2], &[0; 1024]);
    assert_eq!((sense.code, sense.field), (AdditionalSense::LBA_OUT_OF_RANGE, Some(FieldPointer::cdb(2))));
    let protected = Fixture::new(Medium { read_only: true, ..THIN });
    assert_eq!(protected.refused(&[0x53, 0, 0, 0, 0, 8, 0, 0, 2], &[0; 1024]).key, SenseKey::DATA_PROTECT);
    let supported = fixture.read(&[0xa3, 0x0c, 0x01, 0x53, 0, 0, 0, 0, 1, 0]);
    assert_eq!(supported, [0, 3, 0, 10, 0x53, 0x1c, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]);
}

#[test]
fn write_atomic_accepts_the_reported_limits() {
    for block_size in [512u32, 4096] {
        let fixture = Fixture::new(Medium { len_bytes: 4 << 20, block_size, ..THIN });
        let limits = fixture.read(&[0x12, 1, 0xb0, 0, 64]);
        let most = u32::from_be_bytes(limits[44..48].try_into().unwrap()) as u16;
        assert_eq!(u32::from(most) * block_size, 1 << 20);
        let unit = (4096 / block_size) as u16;
        assert_eq!(limits[48..56], [0, 0, 0, unit as u8, 0, 0, 0, unit as u8], "alignment and granularity");
        let atomic_at = |lba: u16, blocks: u16| {
            let ([lba_high, lba_low], [high, low]) = (lba.to_be_bytes(), blocks.to_be_bytes());
            cdb(&[0x9c, 0x08, 0, 0, 0, 0, 0, 0, lba_high, lba_low, 0, 0, high, low])
        };
        let atomic = |blocks| atomic_at(unit, blocks);
        assert_eq!(fixture.run(&atomic(most), &vec![5; 1 << 20]).status, Status::GOOD);
        let written = Seen { kind: OpKind::Write, offset: 4096, len: 1 << 20, fua: true };
        assert_eq!(fixture.seen(), [written], "in one request");
        assert_eq!(fixture.run(&atomic(0), &[]).status, Status::GOOD);
        let long = fixture.refused(&atomic(most + unit), &[]);
        assert_eq!((long.code, long.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(12))));
        if unit > 1 {
            let misplaced = fixture.refused(&atomic_at(unit + 1, unit), &[]);
            assert_eq!(misplaced.field, Some(FieldPointer::cdb(2)), "within a physical block");
            let part = fixture.refused(&atomic_at(unit, unit + 1), &[]);
            assert_eq!((part.code, part.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(12))));
        }
        let short = fixture.refused(&atomic(2 * unit), &vec![0; block_size as usize]);
        assert_eq!(short.code, AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
        let mut bounded = atomic(unit);
        bounded[11] = 1;
        let bounded = fixture.refused(&bounded, &vec![0; block_size as usize]);
        assert_eq!(bounded.field, Some(FieldPointer::cdb(11).bit(0)), "no atomic boundaries");
    }
}

#[test]
fn pre_fetch_reads_into_the_cache_and_reports_when_all_blocks_are_cached() {
    let disk = Medium { capabilities: Capabilities { memory: false, ..THIN.capabilities }, len_bytes: 9 << 20, ..THIN };
    for (medium, all) in [(disk, Status::GOOD), (Medium { len_bytes: 9 << 20, ..THIN }, Status::CONDITION_MET)] {
        let fixture = Fixture::new(medium);
        for bytes in [cdb(&[0x34, 2, 0, 0, 0, 8, 0, 0, 4, 0]), cdb(&[0x90, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4])] {
            assert_eq!(fixture.run(&bytes, &[]).status, Status::CONDITION_MET);
            let read = Seen { kind: OpKind::Read, offset: 8 * 512, len: 2048, fua: false };
            assert_eq!(fixture.seen(), if medium.capabilities.memory { vec![] } else { vec![read] });
        }
        assert_eq!(fixture.run(&[0x34], &[]).status, all, "all to the end is more than one READ may ask for");
        let sense = fixture.refused(&[0x34, 0, 0xff, 0, 0, 0], &[]);
        assert_eq!(sense.code, AdditionalSense::LBA_OUT_OF_RANGE);
    }
}

#[test]
fn the_defect_lists_are_empty_in_the_format_asked_for() {
    let fixture = Fixture::new(THIN);
    assert_eq!(fixture.read(&[0x37, 0, 0x1d, 0, 0, 0, 0, 0, 255]), [0, 0x1d, 0, 0]);
    assert_eq!(fixture.read(&[0xb7, 0x08, 0, 0, 0, 0, 0, 0, 0, 255]), [0, 0x08, 0, 0, 0, 0, 0, 0]);
    assert_eq!(fixture.read(&[0xb7, 0x08, 0, 0, 0, 0, 0, 0, 0, 3]).len(), 3);
}
