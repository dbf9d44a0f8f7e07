//! REPORT and SET IDENTIFYING INFORMATION.

use std::sync::Arc;

use lunette_scsi::{AdditionalSense, FieldPointer, SenseKey, Status};

use crate::fixture::{Fixture, THIN, TestState, cdb, code, name, sense};

const BINARY: u8 = 0;
const TEXT: u8 = 2;

fn report(fixture: &Fixture, kind: u8) -> Vec<u8> {
    fixture.read(&[0xa3, 0x05, 0, 0, 0, 0, 0, 0, 0x10, 0, kind << 1, 0])
}

fn set(kind: u8, len: u16) -> [u8; 12] {
    let [high, low] = len.to_be_bytes();
    [0xa4, 0x06, 0, 0, 0, 0, 0, 0, high, low, kind << 1, 0]
}

#[test]
fn information_is_kept_over_restarts_until_it_is_taken_away() {
    let state = Arc::default();
    let fixture = Fixture::after(THIN, &state);
    assert_eq!(report(&fixture, BINARY), [0, 0, 0, 0]);
    assert_eq!(fixture.run(&set(BINARY, 3), &[7, 8, 9]).status, Status::GOOD);
    assert_eq!(fixture.run(&set(TEXT, 5), b"disk\0").status, Status::GOOD);
    let fixture = Fixture::after(THIN, &state);
    assert_eq!(report(&fixture, BINARY), [0, 0, 0, 3, 7, 8, 9]);
    assert_eq!(report(&fixture, TEXT), b"\0\0\0\x05disk\0");
    assert_eq!(fixture.read(&[0xa3, 0x05, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0]), [0, 0, 0, 3, 7], "cut, with its length");
    assert_eq!(fixture.run(&set(BINARY, 0), &[]).status, Status::GOOD);
    let fixture = Fixture::after(THIN, &state);
    assert_eq!(report(&fixture, BINARY), [0, 0, 0, 0]);
    assert_eq!(report(&fixture, TEXT)[3], 5);
}

#[test]
fn the_types_are_listed_with_their_lengths_and_held_to_them() {
    let fixture = Fixture::after(THIN, &Arc::default());
    assert_eq!(report(&fixture, 0x7f), [0, 0, 0, 8, 0, 0, 2, 0, 4, 0, 1, 0]);
    for (kind, max) in [(BINARY, 512), (TEXT, 256)] {
        assert_eq!(fixture.run(&set(kind, max), &vec![0; usize::from(max)]).status, Status::GOOD);
        let refused = fixture.refused(&set(kind, max + 1), &vec![0; usize::from(max) + 1]);
        assert_eq!(refused.field, Some(FieldPointer::cdb(6)));
    }
    assert_eq!(fixture.refused(&set(TEXT, 2), b"no").field, Some(FieldPointer::data(0)));
    let short = fixture.refused(&set(BINARY, 8), &[0; 7]);
    assert_eq!(short.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    for kind in [1, 3, 0x7f] {
        assert_eq!(fixture.refused(&set(kind, 1), &[0]).field, Some(FieldPointer::cdb(10).bit(7)));
    }
    let unknown = fixture.refused(&[0xa3, 0x05, 0, 0, 0, 0, 0, 0, 0x10, 0, 4 << 1, 0], &[]);
    assert_eq!(unknown.field, Some(FieldPointer::cdb(10).bit(7)));
}

#[test]
fn new_identifying_information_raises_an_attention_for_others() {
    let fixture = Fixture::after(THIN, &Arc::default());
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    let ready = || fixture.run_on(&other, [0; 8], cdb(&[]), &[]);
    ready();
    fixture.run(&set(BINARY, 1), &[1]);
    assert_eq!(sense(&ready()).code, AdditionalSense::DEVICE_IDENTIFIER_CHANGED);
    fixture.run(&set(BINARY, 1), &[1]);
    assert_eq!(ready().status, Status::GOOD, "it is the same");
}

#[test]
fn information_that_cannot_be_saved_is_refused() {
    let fixture = Fixture::new(THIN);
    for command in [set(BINARY, 1), [0xa3, 0x05, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0]] {
        let refused = fixture.refused(&command, &[0]);
        assert_eq!(refused.field, Some(FieldPointer::cdb(1).bit(4)), "an unknown service action");
    }
}

#[test]
fn information_whose_save_fails_is_not_taken() {
    let state: Arc<TestState> = Arc::default();
    let fixture = Fixture::after(THIN, &state);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    let ready = || fixture.run_on(&other, [0; 8], cdb(&[]), &[]).status;
    ready();
    *state.broken.lock().unwrap() = true;
    let refused = code(fixture.refused(&set(BINARY, 3), &[7, 8, 9]));
    assert_eq!(refused, (SenseKey::HARDWARE_ERROR, AdditionalSense::INTERNAL_TARGET_FAILURE));
    assert_eq!(report(&fixture, BINARY), [0, 0, 0, 0]);
    assert_eq!(ready(), Status::GOOD, "nothing has changed");
}
