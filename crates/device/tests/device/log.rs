//! Log pages, time stamps and task management functions.

use lunette_scsi::{AdditionalSense, FieldPointer, Status};
use lunette_store::StoreError;

use crate::fixture::{Fixture, NOW_MS, THIN, name, sense};

const CUMULATIVE: u8 = 0x40;

fn page(fixture: &Fixture, page: u8, subpage: u8) -> Vec<u8> {
    fixture.read(&[0x4d, 0, CUMULATIVE | page, subpage, 0, 0, 0, 0x10, 0])
}

/// The value of an eight-byte counter.
fn counter(page: &[u8], code: u8) -> u64 {
    let mut rest = &page[4..];
    while let [_, found, _, len, tail @ ..] = rest {
        let (value, next) = tail.split_at(usize::from(*len));
        if *found == code {
            return u64::from_be_bytes(value.try_into().unwrap());
        }
        rest = next;
    }
    panic!("no parameter {code} in {page:?}");
}

#[test]
fn every_listed_page_exists() {
    let fixture = Fixture::new(THIN);
    let list = page(&fixture, 0, 0);
    assert_eq!(list, [0, 0, 0, 9, 0, 2, 3, 5, 0x0c, 0x0d, 0x0e, 0x15, 0x19]);
    for code in &list[4..] {
        let data = page(&fixture, *code, 0);
        assert_eq!((data[0] & 0x3f, usize::from(u16::from_be_bytes([data[2], data[3]]))), (*code, data.len() - 4));
    }
    let all = page(&fixture, 0, 0xff);
    assert_eq!(&all[..10], [0x40, 0xff, 0, 20, 0, 0, 0, 0xff, 2, 0]);
    assert_eq!(page(&fixture, 0x0d, 0xff), [0x4d, 0xff, 0, 4, 0x0d, 0, 0x0d, 0xff]);
    assert_eq!(fixture.refused(&[0x4d, 0, 0x41, 0, 0, 0, 0, 1, 0], &[]).field, Some(FieldPointer::cdb(2).bit(5)));
    assert_eq!(fixture.refused(&[0x4d, 0, 0x42, 1, 0, 0, 0, 1, 0], &[]).field, Some(FieldPointer::cdb(3)));
    assert_eq!(fixture.refused(&[0x4d, 1, 0x42, 0, 0, 0, 0, 1, 0], &[]).field, Some(FieldPointer::cdb(1).bit(0)));
}

#[test]
fn counters_follow_the_commands() {
    let fixture = Fixture::new(THIN);
    fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 3], &[1; 3 * 512]);
    fixture.read(&[0x28, 0, 0, 0, 0, 0, 0, 0, 2]);
    fixture.run(&[0x2f, 0, 0, 0, 0, 0, 0, 0, 1], &[]);
    *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
    fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 512]);
    let error_counters = |code| (counter(&page(&fixture, code, 0), 5), counter(&page(&fixture, code, 0), 6));
    assert_eq!([2, 3, 5].map(error_counters), [(1536, 1), (1024, 0), (512, 0)]);
    let statistics = page(&fixture, 0x19, 0);
    let number = |at: usize| u64::from_be_bytes(statistics[8 + at * 8..][..8].try_into().unwrap());
    assert_eq!([0, 1, 2, 3].map(number), [1, 1, 3, 2], "read and write commands, blocks received and transmitted");
    fixture.run(&[0x1b, 0, 0, 0, 0, 0], &[]);
    assert_eq!(page(&fixture, 0x0e, 0)[12..20], [0, 4, 3, 4, 0, 0, 0, 1]);
}

#[test]
fn page_control_chooses_the_values() {
    let fixture = Fixture::new(THIN);
    fixture.read(&[0x28, 0, 0, 0, 0, 0, 0, 0, 2]);
    let bytes = |control: u8| counter(&fixture.read(&[0x4d, 0, control << 6 | 3, 0, 0, 0, 0, 0x10, 0]), 5);
    assert_eq!([0, 1, 2, 3].map(bytes), [u64::MAX, 1024, u64::MAX, 0]);
}

#[test]
fn the_parameter_pointer_skips_earlier_parameters() {
    let fixture = Fixture::new(THIN);
    let data = fixture.read(&[0x4d, 0, 0x43, 0, 0, 0, 5, 0x10, 0]);
    assert_eq!((data.len(), data[3], data[5]), (4 + 2 * 12, 24, 5));
    assert_eq!(fixture.refused(&[0x4d, 0, 0x43, 0, 0, 0, 7, 0x10, 0], &[]).field, Some(FieldPointer::cdb(5)));
    assert_eq!(fixture.refused(&[0x4d, 0, 0x40, 0, 0, 0, 1, 0x10, 0], &[]).field, Some(FieldPointer::cdb(5)));
}

#[test]
fn log_select_resets_and_raises_an_attention_for_others() {
    let fixture = Fixture::new(THIN);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    let ready = |nexus| fixture.run_on(nexus, [0; 8], [0; 16], &[]);
    ready(&other);
    for reset in [&[0x4c, 2, CUMULATIVE, 0, 0, 0, 0, 0, 0][..], &[0x4c, 0, 0xc0, 0, 0, 0, 0, 0, 0]] {
        fixture.read(&[0x28, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(counter(&page(&fixture, 3, 0), 5), 1024);
        assert_eq!(fixture.run(reset, &[]).status, Status::GOOD);
        assert_eq!(counter(&page(&fixture, 3, 0), 5), 0);
        assert_eq!(sense(&ready(&other)).code, AdditionalSense::LOG_PARAMETERS_CHANGED);
    }
    assert_eq!(fixture.run(&[0x4c, 0, CUMULATIVE], &[]).status, Status::GOOD);
    assert_eq!(ready(&other).status, Status::GOOD, "nothing was reset");
    assert_eq!(fixture.refused(&[0x4c, 2, 0, 0, 0, 0, 0, 0, 4], &[0; 4]).field, Some(FieldPointer::cdb(7)));
    assert_eq!(
        fixture.refused(&[0x4c, 0, 0, 0, 0, 0, 0, 0, 4], &[2, 0, 0, 0]).field,
        Some(FieldPointer::data(0).bit(5))
    );
    assert_eq!(fixture.refused(&[0x4c, 2, 0x42], &[]).field, Some(FieldPointer::cdb(2).bit(5)));
}

#[test]
fn a_time_stamp_is_the_time_of_day_until_it_is_set() {
    let fixture = Fixture::new(THIN);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    fixture.run_on(&other, [0; 8], [0; 16], &[]);
    let report = || fixture.read(&[0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 0, 255]);
    assert_eq!(report(), [&[0, 10, 3, 0][..], &NOW_MS.to_be_bytes()[2..], &[0, 0]].concat());
    let list = [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0];
    assert_eq!(fixture.run(&[0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, 12], &list).status, Status::GOOD);
    assert_eq!(report(), [0, 10, 2, 0, 1, 2, 3, 4, 5, 6, 0, 0]);
    assert_eq!(sense(&fixture.run_on(&other, [0; 8], [0; 16], &[])).code, AdditionalSense::TIMESTAMP_CHANGED);
    let short = fixture.refused(&[0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, 9], &list);
    assert_eq!(short.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
}

#[test]
fn task_management_functions_are_those_that_are_carried_out() {
    let fixture = Fixture::new(THIN);
    assert_eq!(fixture.read(&[0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 255]), [0xd8, 0, 0, 0]);
    let long = fixture.read(&[0xa3, 0x0d, 0x80, 0, 0, 0, 0, 0, 0, 255]);
    assert_eq!((long.len(), &long[..4]), (16, &[0xd8, 0, 0, 12][..]));
}
