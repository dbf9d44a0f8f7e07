//! Removable media: eject, load and prevent.

use lunette_device::EjectError;
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseKey, Status};

use crate::fixture::{Fixture, Medium, THIN, cdb, code, name, sense};

const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 0x02, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 0x03, 0];
const PREVENT: [u8; 6] = [0x1e, 0, 0, 0, 1, 0];
const ALLOW: [u8; 6] = [0x1e, 0, 0, 0, 0, 0];
const NO_MEDIUM: (SenseKey, AdditionalSense) = (SenseKey::NOT_READY, AdditionalSense::MEDIUM_NOT_PRESENT);

fn removable() -> Fixture {
    Fixture::new(Medium { removable: true, ..THIN })
}

fn good(fixture: &Fixture, bytes: &[u8]) {
    assert_eq!(fixture.run(bytes, &[]).status, Status::GOOD, "{bytes:?}");
}

#[test]
fn a_fixed_disk_cannot_be_ejected() {
    let fixture = Fixture::new(THIN);
    assert_eq!(fixture.refused(&EJECT, &[]).field, Some(FieldPointer::cdb(4).bit(1)));
    assert_eq!(fixture.refused(&PREVENT, &[]).code, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    assert_eq!(fixture.read(&[0x12, 0, 0, 0, 36])[1], 0);
    assert_eq!(fixture.unit.eject(), Err(EjectError::Fixed));
}

#[test]
fn without_a_medium_commands_that_need_one_are_not_ready() {
    let fixture = removable();
    assert_eq!(fixture.read(&[0x12, 0, 0, 0, 36])[1], 0x80, "RMB");
    good(&fixture, &EJECT);
    good(&fixture, &EJECT);
    for bytes in [
        &[0x00][..],
        &[0x25],
        &[0x9e, 0x10],
        &[0x28, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0x35, 0x06],
        &[0x42],
        &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0x1b, 0, 0, 0, 1, 0],
    ] {
        assert_eq!(code(fixture.refused(bytes, &[0; 512])), NO_MEDIUM, "{bytes:?}");
    }
    for bytes in
        [&[0x12, 0, 0, 0, 36][..], &[0x1a, 0, 0x3f, 0, 255], &[0x12, 1, 0x83, 1, 0], &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0]]
    {
        fixture.read(bytes);
    }
    assert_eq!(fixture.read(&[0x1a, 0, 0x3f, 0, 255])[4..8], [0; 4], "no blocks");
    assert_eq!(code(SenseData::decode(&fixture.read(&[0x03, 0, 0, 0, 18])).unwrap()), NO_MEDIUM);
    good(&fixture, &LOAD);
    good(&fixture, &[0x00]);
}

#[test]
fn a_loaded_medium_is_announced_to_the_others_or_to_all() {
    let fixture = removable();
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    let ready = |nexus| fixture.run_on(nexus, [0; 8], [0; 16], &[]);
    ready(&other);
    good(&fixture, &EJECT);
    good(&fixture, &LOAD);
    good(&fixture, &LOAD);
    assert_eq!(sense(&ready(&other)).code, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
    assert_eq!(ready(&other).status, Status::GOOD);
    good(&fixture, &[0x00]);
    fixture.unit.eject().unwrap();
    assert!(!fixture.unit.medium_present());
    fixture.unit.load();
    for nexus in [&fixture.nexus, &other] {
        assert_eq!(sense(&ready(nexus)).code, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
    }
}

#[test]
fn every_nexus_prevents_the_removal_for_itself_until_it_ends() {
    let fixture = removable();
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    fixture.run_on(&other, [0; 8], [0; 16], &[]);
    good(&fixture, &PREVENT);
    assert_eq!(fixture.run_on(&other, [0; 8], cdb(&PREVENT), &[]).status, Status::GOOD);
    let refused = (SenseKey::ILLEGAL_REQUEST, AdditionalSense::MEDIUM_REMOVAL_PREVENTED);
    assert_eq!(code(fixture.refused(&EJECT, &[])), refused);
    assert_eq!(code(fixture.refused(&LOAD, &[])), refused);
    assert_eq!(fixture.unit.eject(), Err(EjectError::Prevented));
    good(&fixture, &ALLOW);
    assert_eq!(code(fixture.refused(&EJECT, &[])), refused);
    drop(other);
    good(&fixture, &EJECT);
}

#[test]
fn a_power_condition_leaves_the_medium_where_it_is() {
    let fixture = removable();
    for condition in 1..16 {
        good(&fixture, &[0x1b, 1, 0, 0, condition << 4 | 0x02, 0]);
        good(&fixture, &[0x00]);
    }
}

#[test]
fn a_reset_allows_the_removal() {
    let fixture = removable();
    good(&fixture, &PREVENT);
    fixture.device.reset_unit([0; 8], &fixture.nexus);
    fixture.run(&[0; 6], &[]);
    good(&fixture, &EJECT);
}
