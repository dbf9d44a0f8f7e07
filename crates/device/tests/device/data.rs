//! Commands that read and write the medium.

use std::io;

use lunette_device::{Input, Step};
use lunette_scsi::{AdditionalSense, FieldPointer, SenseKey, Status, TaskAttribute};
use lunette_store::{OpKind, StoreError};

use crate::fixture::{Fixture, Medium, Seen, THIN, cdb, code};

const FUA: u8 = 0x08;

/// READ or WRITE in its four forms, of one block at LBA 5, by the operation code.
fn forms(six: u8, ten: u8, twelve: u8, sixteen: u8, flags: u8) -> [[u8; 16]; 4] {
    [
        cdb(&[six, 0, 0, 5, 1, 0]),
        cdb(&[ten, flags, 0, 0, 0, 5, 0, 0, 1, 0]),
        cdb(&[twelve, flags, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0]),
        cdb(&[sixteen, flags, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0]),
    ]
}

#[test]
fn every_form_of_write_is_read_back_by_every_form_of_read() {
    let fixture = Fixture::new(THIN);
    for (value, write) in forms(0x0a, 0x2a, 0xaa, 0x8a, 0).into_iter().enumerate() {
        let block = [value as u8 + 1; 512];
        let response = fixture.run(&write, &block);
        assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 512));
        for read in forms(0x08, 0x28, 0xa8, 0x88, 0) {
            assert_eq!(fixture.read(&read), block);
        }
    }
}

#[test]
fn fua_reaches_the_store_and_is_no_bit_of_the_six_byte_form() {
    let fixture = Fixture::new(THIN);
    for write in forms(0x0a, 0x2a, 0xaa, 0x8a, FUA) {
        fixture.run(&write, &[0; 512]);
        let fua = write[0] != 0x0a;
        assert_eq!(fixture.seen(), [Seen { kind: OpKind::Write, offset: 5 * 512, len: 512, fua }]);
    }
    // Byte 1 of WRITE(6) is part of the LBA: 0x08 there lies beyond the end.
    let sense = fixture.refused(&[0x0a, FUA, 0, 5, 1, 0], &[0; 512]);
    assert_eq!(sense.code, AdditionalSense::LBA_OUT_OF_RANGE);
}

#[test]
fn a_zero_length_in_the_six_byte_form_is_256_blocks() {
    let fixture = Fixture::new(THIN);
    assert_eq!(fixture.read(&[0x08, 0, 0, 0, 0, 0]).len(), 256 * 512);
}

#[test]
fn zero_blocks_are_no_error_and_no_request() {
    let fixture = Fixture::new(THIN);
    for opcode in [0x28, 0x2a, 0x2f] {
        let response = fixture.run(&[opcode, 0, 0, 0, 4, 0, 0, 0, 0, 0], &[]);
        assert_eq!(response.status, Status::GOOD, "at the end of the medium");
    }
    assert_eq!(fixture.seen(), []);
}

#[test]
fn a_range_beyond_the_medium_is_refused_before_the_store() {
    let fixture = Fixture::new(THIN);
    let beyond: [&[u8]; 8] = [
        &[0x28, 0, 0, 0, 4, 1, 0, 0, 0, 0],
        &[0x28, 0, 0, 0, 3, 0xff, 0, 0, 2, 0],
        &[0x2a, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0],
        &[0x88, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
        &[0x8a, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0],
        &[0x2f, 0, 0, 0, 4, 0, 0, 0, 1, 0],
        &[0x41, 0, 0, 0, 4, 1, 0, 0, 0, 0],
        &[0x35, 0, 0, 0, 4, 1, 0, 0, 0, 0],
    ];
    for bytes in beyond {
        let sense = fixture.refused(bytes, &[0; 512]);
        assert_eq!(code(sense), (SenseKey::ILLEGAL_REQUEST, AdditionalSense::LBA_OUT_OF_RANGE), "{bytes:x?}");
        assert_eq!(sense.field, Some(FieldPointer::cdb(2)));
    }
    assert_eq!(fixture.seen(), []);
}

#[test]
fn more_than_the_maximum_transfer_length_is_refused() {
    let fixture = Fixture::new(Medium { len_bytes: 32 << 20, ..THIN });
    assert_eq!(fixture.read(&[0x28, 0, 0, 0, 0, 0, 0, 0x40, 0x00, 0]).len(), 8 << 20);
    let sense = fixture.refused(&[0x28, 0, 0, 0, 0, 0, 0, 0x40, 0x01, 0], &[]);
    assert_eq!((sense.code, sense.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(7))));
}

#[test]
fn a_short_data_out_is_written_in_whole_blocks() {
    let fixture = Fixture::new(THIN);
    let response = fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 4, 0], &[7; 2 * 512 + 100]);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 4 * 512));
    assert_eq!(fixture.seen(), [Seen { kind: OpKind::Write, offset: 0, len: 1024, fua: false }]);
    let response = fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 4, 0], &[7; 100]);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 4 * 512));
    assert_eq!(fixture.seen(), []);
}

#[test]
fn a_longer_data_out_is_left_to_the_residual() {
    let fixture = Fixture::new(THIN);
    let response = fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[7; 1024]);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 512));
    let response = fixture.run(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[7; 1024]);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 0));
}

#[test]
fn a_write_protected_unit_refuses_everything_that_writes() {
    let fixture = Fixture::new(Medium { read_only: true, ..THIN });
    let writes: [&[u8]; 6] = [
        &[0x0a, 0, 0, 0, 1],
        &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0x8a],
        &[0xaa],
        &[0x41, 8],
        &[0x42, 0, 0, 0, 0, 0, 0, 0, 24],
    ];
    for bytes in writes {
        let sense = fixture.refused(bytes, &[0; 512]);
        assert_eq!(code(sense), (SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED), "{bytes:x?}");
    }
    assert_eq!(fixture.read(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]).len(), 512);
    assert_eq!(fixture.run(&[0x35], &[]).status, Status::GOOD);
}

#[test]
fn protection_information_and_reserved_bits_are_refused_where_they_stand() {
    let fixture = Fixture::new(THIN);
    for opcode in [0x28, 0x2a, 0x2f, 0x41, 0xa8, 0x88, 0x8a, 0x93] {
        for protect in 1..8 {
            let sense = fixture.refused(&[opcode, protect << 5], &[0; 512]);
            let bit = (protect << 5u8).ilog2() as u8;
            assert_eq!(
                (sense.code, sense.field),
                (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(1).bit(bit)))
            );
        }
    }
    let naca = fixture.refused(&[0x00, 0, 0, 0, 0, 4], &[]);
    assert_eq!(naca.field, Some(FieldPointer::cdb(5).bit(2)));
    assert_eq!(fixture.seen(), []);
}

#[test]
fn store_errors_become_sense_data() {
    let fixture = Fixture::new(THIN);
    let io = || StoreError::Io(io::Error::other("broken"));
    let flush = || StoreError::FlushFailed(io::Error::other("broken").into());
    let out_of_range = || StoreError::OutOfRange { offset: 0, len: 1, store_len: 0 };
    // It names its own place, which may be a later block of the command.
    let refused = || StoreError::Refused { offset: 11 * 512 + 100, reason: "wrong tag".into() };
    let unreadable = || StoreError::Unreadable { offset: 12 * 512, error: io::Error::other("broken") };
    let read: &[u8] = &[0x28, 0, 0, 0, 0, 9, 0, 0, 1, 0];
    let write: &[u8] = &[0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0];
    let cases = [
        (read, io(), SenseKey::MEDIUM_ERROR, AdditionalSense::UNRECOVERED_READ_ERROR, Some(9)),
        (read, refused(), SenseKey::MEDIUM_ERROR, AdditionalSense::UNRECOVERED_READ_ERROR, Some(11)),
        (read, unreadable(), SenseKey::MEDIUM_ERROR, AdditionalSense::UNRECOVERED_READ_ERROR, Some(12)),
        (write, io(), SenseKey::MEDIUM_ERROR, AdditionalSense::WRITE_ERROR, Some(9)),
        (write, StoreError::ReadOnly, SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED, None),
        (write, StoreError::NoSpace, SenseKey::DATA_PROTECT, AdditionalSense::SPACE_ALLOCATION_FAILED, None),
        (read, out_of_range(), SenseKey::ILLEGAL_REQUEST, AdditionalSense::LBA_OUT_OF_RANGE, None),
        (&[0x35], flush(), SenseKey::MEDIUM_ERROR, AdditionalSense::WRITE_ERROR, None),
    ];
    for (bytes, error, key, asc, information) in cases {
        let text = error.to_string();
        *fixture.store.fails.lock().unwrap() = Some(error);
        let sense = fixture.refused(bytes, &[0; 512]);
        assert_eq!((sense.key, sense.code, sense.information), (key, asc, information), "{text}");
    }
}

#[test]
fn a_failed_write_still_reports_the_transfer_length_of_the_cdb() {
    let fixture = Fixture::new(THIN);
    *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
    assert_eq!(fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512]).data_out_transfer_len, 512);
}

#[test]
fn synchronize_cache_and_stop_flush() {
    let fixture = Fixture::new(THIN);
    let flush = [Seen { kind: OpKind::Flush, offset: 0, len: 0, fua: false }];
    let flushing: [&[u8]; 4] = [&[0x35], &[0x91, 0x02], &[0x35, 0, 0, 0, 0, 1, 0, 0, 5], &[0x1b, 1, 0, 0, 0]];
    for bytes in flushing {
        assert_eq!(fixture.run(bytes, &[]).status, Status::GOOD);
        assert_eq!(fixture.seen(), flush, "{bytes:x?}");
    }
    for bytes in [[0x1b, 0, 0, 0, 1], [0x1b, 0, 0, 0, 4]] {
        assert_eq!(fixture.run(&bytes, &[]).status, Status::GOOD);
        assert_eq!(fixture.seen(), [], "starting, and NO_FLUSH");
    }
    let eject = fixture.refused(&[0x1b, 0, 0, 0, 2], &[]);
    assert_eq!((eject.code, eject.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(4).bit(1))));
}

#[test]
fn verify_reads_without_data_and_compares_with_it() {
    let fixture = Fixture::new(THIN);
    let data: Vec<u8> = (0..4 * 512u32).map(|at| (at % 251) as u8).collect();
    fixture.run(&[0x2a, 0, 0, 0, 0, 8, 0, 0, 4, 0], &data);
    fixture.seen();
    let verify_forms = |flags| {
        [
            cdb(&[0x2f, flags, 0, 0, 0, 8, 0, 0, 4, 0]),
            cdb(&[0xaf, flags, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0]),
            cdb(&[0x8f, flags, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0]),
        ]
    };
    let mut wrong = data.clone();
    wrong[1337] ^= 1;
    for verify in verify_forms(0) {
        assert_eq!(fixture.run(&verify, &wrong).status, Status::GOOD, "BYTCHK 0 does not compare");
        assert_eq!(fixture.seen().len(), 1);
    }
    for verify in verify_forms(0x02) {
        assert_eq!(fixture.run(&verify, &data).status, Status::GOOD);
        let sense = fixture.refused(&verify, &wrong);
        assert_eq!(code(sense), (SenseKey::MISCOMPARE, AdditionalSense::MISCOMPARE_DURING_VERIFY));
        assert_eq!(sense.information, Some(1337));
        assert_eq!(fixture.run(&verify, &data[..1024]).status, Status::GOOD, "whole blocks that are there");
    }
    let sense = fixture.refused(&verify_forms(0x04)[0], &data);
    assert_eq!(sense.field, Some(FieldPointer::cdb(1).bit(2)), "BYTCHK 2 is reserved");
}

#[test]
fn verify_compares_one_block_with_all() {
    let fixture = Fixture::new(Medium { len_bytes: 4 << 20, ..THIN });
    let verify = cdb(&[0x8f, 0x06, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]);
    assert_eq!(fixture.run(&verify, &[0; 512]).status, Status::GOOD);
    assert!(fixture.seen().len() > 1, "piece by piece");
    fixture.run(&[0x2a, 0, 0, 0, 3, 0xff, 0, 0, 1, 0], &[5; 512]);
    assert_eq!(fixture.refused(&verify, &[0; 512]).information, Some(1023 * 512));
    let sense = fixture.refused(&verify, &[0; 1024]);
    assert_eq!(sense.code, AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
}

#[test]
fn a_wrong_input_ends_the_task_and_does_not_panic() {
    let fixture = Fixture::new(THIN);
    let command = || lunette_device::Command {
        lun: [0; 8],
        cdb: cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]).into(),
        attribute: TaskAttribute::Simple,
        data_out_len: 0,
        data_in_len: 512,
    };
    let internal = |step: Step| {
        let Step::Done(response) = step else { panic!("{step:?}") };
        crate::fixture::sense(&response).code == AdditionalSense::INTERNAL_TARGET_FAILURE
    };
    let mut task = fixture.device.start(&fixture.nexus, command());
    assert!(internal(task.step(Input::Buffer(fixture.buffer(512)))), "not started");
    let mut task = fixture.device.start(&fixture.nexus, command());
    task.step(Input::Start);
    assert!(internal(task.step(Input::Start)), "asked for a buffer");
    assert!(internal(task.step(Input::Start)), "ended");
    let mut task = fixture.device.start(&fixture.nexus, command());
    task.step(Input::Start);
    assert!(internal(task.step(Input::Buffer(fixture.buffer(511)))), "too short");
}
