//! Mode pages: read, changed, saved, and what they change.

use std::sync::Arc;

use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseKey, Status};
use lunette_store::{Capabilities, OpKind};

use crate::atomic::SteppedTask;
use crate::fixture::{Fixture, Medium, THIN, TestState, cdb, code, name, sense};

/// MODE SELECT(6) without saving.
const SELECT: [u8; 6] = [0x15, 0x10, 0, 0, 255, 0];
const SELECT_AND_SAVE: [u8; 6] = [0x15, 0x11, 0, 0, 255, 0];

/// A parameter list of the current page with one byte changed.
fn changed(fixture: &Fixture, page: u8, at: usize, value: u8) -> Vec<u8> {
    let mut list = fixture.read(&[0x1a, 0x08, page, 0, 255]);
    list[0] = 0;
    list[4] &= 0x7f;
    list[6 + at] = value;
    list
}

fn select(fixture: &Fixture, cdb: [u8; 6], list: &[u8]) {
    let cdb = [cdb[0], cdb[1], 0, 0, list.len() as u8, 0];
    assert_eq!(fixture.run(&cdb, list).status, Status::GOOD);
}

fn select_refused(fixture: &Fixture, list: &[u8]) -> SenseData {
    fixture.refused(&[SELECT[0], SELECT[1], 0, 0, list.len() as u8, 0], list)
}

#[test]
fn pages_tell_the_truth_about_cache_and_protection() {
    let cached = Fixture::new(THIN);
    let data = cached.read(&[0x1a, 0x08, 0x08, 0, 255]);
    assert_eq!(&data[..7], [23, 0, 0x10, 0, 0x08, 0x12, 0x04]);
    let capabilities = Capabilities { volatile_cache: false, ..THIN.capabilities };
    let protected = Fixture::new(Medium { capabilities, read_only: true, ..THIN });
    let data = protected.read(&[0x1a, 0x08, 0x08, 0, 255]);
    assert_eq!(&data[..7], [23, 0, 0x90, 0, 0x08, 0x12, 0x00], "no cache, and none to turn on");
    let on = changed(&protected, 0x08, 0, 0x04);
    assert_eq!(select_refused(&protected, &on).field, Some(FieldPointer::data(6).bit(2)));
}

#[test]
fn both_forms_of_mode_sense_return_the_same_pages() {
    let fixture = Fixture::new(THIN);
    let short = fixture.read(&[0x1a, 0, 0x3f, 0xff, 255]);
    assert_eq!((usize::from(short[0]), short[3]), (short.len() - 1, 8));
    let long = fixture.read(&[0x5a, 0, 0x3f, 0xff, 0, 0, 0, 1, 0]);
    assert_eq!(usize::from(u16::from_be_bytes([long[0], long[1]])), long.len() - 2);
    assert_eq!(short[4..], long[8..], "block descriptor and pages");
    let codes = |mut pages: &[u8]| {
        let mut codes = Vec::new();
        while let [code, second, rest @ ..] = pages {
            let (subpage, len) =
                if code & 0x40 != 0 { (*second, 2 + usize::from(rest[1])) } else { (0, usize::from(*second)) };
            codes.push((code & 0x3f, subpage));
            pages = &rest[len..];
        }
        codes
    };
    let all = [(0x01, 0), (0x02, 0), (0x08, 0), (0x0a, 0), (0x0a, 1), (0x1a, 0), (0x1c, 0)];
    assert_eq!(codes(&short[12..]), all);
    assert_eq!(
        codes(&fixture.read(&[0x1a, 0x08, 0x3f, 0, 255])[4..]),
        all.into_iter().filter(|page| page.1 == 0).collect::<Vec<_>>()
    );
    assert_eq!(codes(&fixture.read(&[0x1a, 0x08, 0x0a, 0xff, 255])[4..]), [(0x0a, 0), (0x0a, 1)]);
    assert_eq!(codes(&fixture.read(&[0x1a, 0x08, 0x0a, 1, 255])[4..]), [(0x0a, 1)]);
    let wide = fixture.read(&[0x5a, 0x10, 0x0a, 0, 0, 0, 0, 1, 0]);
    assert_eq!(
        (wide[4], wide[7], &wide[8..24]),
        (1, 16, &[0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0][..]),
        "LONGLBA"
    );
}

#[test]
fn mode_sense_refuses_unknown_pages() {
    let fixture = Fixture::new(THIN);
    for page in [0x00, 0x03, 0x3e] {
        assert_eq!(fixture.refused(&[0x1a, 0, page, 0, 255], &[]).field, Some(FieldPointer::cdb(2).bit(5)));
    }
    for (page, subpage) in [(0x0a, 2), (0x08, 1), (0x3f, 1)] {
        let sense = fixture.refused(&[0x5a, 0, page, subpage, 0, 0, 0, 1, 0], &[]);
        assert_eq!(sense.field, Some(FieldPointer::cdb(3)), "{page:#x}/{subpage}");
    }
}

#[test]
fn current_changeable_default_and_saved_values_are_kept_apart() {
    let fixture = Fixture::after(THIN, &Arc::default());
    let wce = |control: u8| fixture.read(&[0x1a, 0x08, control << 6 | 0x08, 0, 255])[6];
    select(&fixture, SELECT, &changed(&fixture, 0x08, 0, 0));
    assert_eq!([0, 1, 2, 3].map(wce), [0, 4, 4, 4]);
    select(&fixture, SELECT_AND_SAVE, &changed(&fixture, 0x08, 0, 0));
    assert_eq!([0, 1, 2, 3].map(wce), [0, 4, 4, 0]);
    select(&fixture, SELECT, &changed(&fixture, 0x08, 0, 4));
    fixture.device.reset_target();
    fixture.run(&[0; 6], &[]);
    assert_eq!([0, 1, 2, 3].map(wce), [0, 4, 4, 0], "a reset brings back what was saved");
    let mask = fixture.read(&[0x1a, 0x08, 0x4a, 0, 255]);
    assert_eq!(mask[6..], [4, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn saved_values_are_in_force_after_a_restart() {
    let state = Arc::default();
    let fixture = Fixture::after(THIN, &state);
    select(&fixture, SELECT_AND_SAVE, &changed(&fixture, 0x0a, 0, 0x24));
    select(&fixture, SELECT, &changed(&fixture, 0x08, 0, 0));
    let fixture = Fixture::after(THIN, &state);
    assert_eq!(fixture.run(&[0xff], &[]).sense.expect("sense data")[0], 0x72, "D_SENSE was saved");
    let byte = |page: u8| fixture.read(&[0x1a, 0x08, page, 0, 255])[6];
    assert_eq!([0x08, 0xc8, 0x0a, 0xca].map(byte), [4, 4, 0x24, 0x24], "WCE was not");
    assert_eq!(fixture.read(&[0x1a, 0x08, 0x3f, 0, 255])[4 + 12 + 16] & 0xbf, 0x88, "PS of the Caching page");
}

#[test]
fn without_a_place_to_save_to_nothing_is_saved_and_nothing_says_so() {
    let fixture = Fixture::new(THIN);
    let list = changed(&fixture, 0x08, 0, 0);
    let sense = fixture.refused(&[0x15, 0x11, 0, 0, list.len() as u8, 0], &list);
    assert_eq!((sense.code, sense.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(1).bit(0))));
    assert_eq!(fixture.read(&[0x1a, 0x08, 0x08, 0, 255])[6], 4, "WCE as before");
    let sense = fixture.refused(&[0x1a, 0x08, 0xc8, 0, 255], &[]);
    assert_eq!(sense.code, AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED);
    let pages = fixture.read(&[0x1a, 0x08, 0x3f, 0, 255]);
    assert_eq!([pages[4], pages[4 + 12], pages[4 + 12 + 16]].map(|code| code & 0x80), [0; 3], "PS");
}

#[test]
fn pages_that_cannot_be_saved_are_not_taken() {
    let state: Arc<TestState> = Arc::default();
    let fixture = Fixture::after(THIN, &state);
    let pages = || [0x3f, 0xff].map(|control| fixture.read(&[0x1a, 0x08, control, 0, 255]));
    let (list, before) = (changed(&fixture, 0x0a, 0, 0x24), pages());
    *state.broken.lock().unwrap() = true;
    let sense = fixture.refused(&[0x15, 0x11, 0, 0, list.len() as u8, 0], &list);
    assert_eq!(code(sense), (SenseKey::HARDWARE_ERROR, AdditionalSense::INTERNAL_TARGET_FAILURE));
    assert_eq!(pages(), before, "current and saved");
}

#[test]
fn without_a_write_cache_every_write_reaches_stable_storage() {
    let fixture = Fixture::new(THIN);
    select(&fixture, SELECT, &changed(&fixture, 0x08, 0, 0));
    assert_eq!(fixture.seen()[0].kind, OpKind::Flush, "what was cached before");
    fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 512]);
    fixture.run(&[0x41, 0, 0, 0, 0, 9, 0, 0, 1], &[0; 512]);
    fixture.run(&[0x41, 0, 0, 0, 0, 9, 0, 0, 1], &[1; 512]);
    let seen = fixture.seen();
    assert!(seen.len() == 3 && seen.iter().all(|seen| seen.fua), "{seen:?}");
    let list = [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    fixture.run(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24], &list);
    assert_eq!(fixture.seen().iter().map(|seen| seen.kind).collect::<Vec<_>>(), [OpKind::Unmap, OpKind::Flush]);
    select(&fixture, SELECT, &changed(&fixture, 0x08, 0, 4));
    fixture.seen();
    fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 512]);
    assert!(!fixture.seen()[0].fua);
}

#[test]
fn software_write_protection_refuses_writes() {
    let fixture = Fixture::new(THIN);
    select(&fixture, SELECT, &changed(&fixture, 0x0a, 2, 0x08));
    let sense = fixture.refused(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 512]);
    assert_eq!(code(sense), (SenseKey::DATA_PROTECT, AdditionalSense::SOFTWARE_WRITE_PROTECTED));
    assert_eq!(fixture.read(&[0x1a, 0x08, 0x0a, 0, 255])[2] & 0x80, 0x80, "WP");
    select(&fixture, SELECT, &changed(&fixture, 0x0a, 2, 0));
    assert_eq!(fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 512]).status, Status::GOOD);
}

#[test]
fn d_sense_selects_the_format_of_sense_data() {
    let fixture = Fixture::new(THIN);
    let response_code = || fixture.run(&[0xff], &[]).sense.expect("sense data")[0];
    assert_eq!(response_code(), 0x70);
    select(&fixture, SELECT, &changed(&fixture, 0x0a, 0, 0x24));
    assert_eq!(response_code(), 0x72);
}

#[test]
fn a_mode_change_raises_an_attention_for_others_and_only_a_change_does() {
    let fixture = Fixture::new(THIN);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    let ready = |nexus| fixture.run_on(nexus, [0; 8], [0; 16], &[]);
    ready(&other);
    select(&fixture, SELECT, &changed(&fixture, 0x0a, 0, 0x20));
    assert_eq!(ready(&other).status, Status::GOOD);
    select(&fixture, SELECT, &changed(&fixture, 0x0a, 0, 0x24));
    assert_eq!(sense(&ready(&other)).code, AdditionalSense::MODE_PARAMETERS_CHANGED);
    assert_eq!(ready(&other).status, Status::GOOD);
    assert_eq!(ready(&fixture.nexus).status, Status::GOOD);
}

#[test]
fn a_change_that_is_aborted_while_it_is_saved_is_whole() {
    let fixture = Fixture::after(THIN, &Arc::default());
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    let ready = |nexus| fixture.run_on(nexus, [0; 8], [0; 16], &[]);
    ready(&other);
    let list = changed(&fixture, 0x08, 0, 0);
    let bytes = cdb(&[0x15, 0x11, 0, 0, list.len() as u8, 0]);
    let saving = SteppedTask::new(&fixture, &fixture.nexus, bytes, list).until_it_saves(&fixture);
    fixture.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 512]);
    fixture.seen();
    saving.abort();
    fixture.finish_background();
    assert_eq!(fixture.read(&[0x1a, 0x08, 0x08, 0, 255])[6], 0, "WCE");
    assert_eq!(fixture.seen().iter().map(|seen| seen.kind).collect::<Vec<_>>(), [OpKind::Flush], "the write is stable");
    assert_eq!(sense(&ready(&other)).code, AdditionalSense::MODE_PARAMETERS_CHANGED);
}

#[test]
fn a_list_with_one_fault_changes_nothing() {
    let fixture = Fixture::new(THIN);
    let good = changed(&fixture, 0x08, 0, 0);
    let with = |page: &[u8]| [good.as_slice(), page].concat();
    let at = good.len() as u16;
    let length = AdditionalSense::PARAMETER_LIST_LENGTH_ERROR;
    for (list, field) in [
        (with(&[0x03, 0]), FieldPointer::data(at).bit(5)),
        (with(&[0x4a, 9, 0, 0]), FieldPointer::data(at + 1)),
        (with(&[0x0a, 2, 0, 0]), FieldPointer::data(at + 1)),
        (with(&[0x0a, 10, 0x20, 0x12, 0, 0, 0, 0, 0xff, 0xff, 0, 0]), FieldPointer::data(at + 3).bit(1)),
        (with(&[0x8a, 10, 0x20, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0]), FieldPointer::data(at).bit(7)),
    ] {
        assert_eq!(select_refused(&fixture, &list).field, Some(field), "{list:?}");
    }
    assert_eq!(select_refused(&fixture, &with(&[0x0a, 10, 0])).code, length);
    assert_eq!(select_refused(&fixture, &[0, 0, 0]).code, length);
    let sense = fixture.refused(&[0x15, 0x10, 0, 0, 24, 0], &good[..10]);
    assert_eq!(sense.code, length, "the initiator sends less than it announced");
    assert_eq!(fixture.refused(&[0x15, 0, 0, 0, 24, 0], &good).field, Some(FieldPointer::cdb(1).bit(4)), "PF");
    assert_eq!(fixture.read(&[0x1a, 0x08, 0x08, 0, 255])[6], 4, "WCE as before");
    assert_eq!(fixture.run(&[0x15, 0x10, 0, 0, 0, 0], &[]).status, Status::GOOD, "no list is no error");
}

#[test]
fn block_descriptors_must_match_the_medium() {
    let fixture = Fixture::new(THIN);
    let list = |blocks: u32, len: u16| {
        let [high, low] = len.to_be_bytes();
        [&[0, 0, 0, 8][..], &blocks.to_be_bytes(), &[0, 0, high, low]].concat()
    };
    for blocks in [0, 1024, u32::MAX] {
        select(&fixture, SELECT, &list(blocks, 512));
    }
    assert_eq!(select_refused(&fixture, &list(1023, 512)).field, Some(FieldPointer::data(4)));
    assert_eq!(select_refused(&fixture, &list(0, 4096)).field, Some(FieldPointer::data(8)));
    let mut long = fixture.read(&[0x5a, 0x10, 0x0a, 0, 0, 0, 0, 1, 0]);
    long[24] &= 0x7f;
    let cdb = [0x55, 0x10, 0, 0, 0, 0, 0, 0, long.len() as u8, 0];
    assert_eq!(fixture.run(&cdb, &long).status, Status::GOOD);
}
