//! Media that are taken out and put back.

use lunette_device::EjectError;
use lunette_scsi::{AdditionalSense, FieldPointer, SenseData, SenseKey, Status};

use crate::rig::{Medium, Rig, THIN, cdb, code, name, sense};

const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 0x02, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 0x03, 0];
const PREVENT: [u8; 6] = [0x1e, 0, 0, 0, 1, 0];
const ALLOW: [u8; 6] = [0x1e, 0, 0, 0, 0, 0];
const NO_MEDIUM: (SenseKey, AdditionalSense) = (SenseKey::NOT_READY, AdditionalSense::MEDIUM_NOT_PRESENT);

fn removable() -> Rig {
    Rig::new(Medium { removable: true, ..THIN })
}

fn good(rig: &Rig, bytes: &[u8]) {
    assert_eq!(rig.run(bytes, &[]).status, Status::GOOD, "{bytes:?}");
}

#[test]
fn a_fixed_disk_cannot_be_ejected() {
    let rig = Rig::new(THIN);
    assert_eq!(rig.refused(&EJECT, &[]).field, Some(FieldPointer::cdb(4).bit(1)));
    assert_eq!(rig.refused(&PREVENT, &[]).code, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    assert_eq!(rig.read(&[0x12, 0, 0, 0, 36])[1], 0);
    assert_eq!(rig.unit.eject(), Err(EjectError::Fixed));
}

#[test]
fn without_a_medium_commands_that_need_one_are_not_ready() {
    let rig = removable();
    assert_eq!(rig.read(&[0x12, 0, 0, 0, 36])[1], 0x80, "RMB");
    good(&rig, &EJECT);
    good(&rig, &EJECT);
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
        assert_eq!(code(rig.refused(bytes, &[0; 512])), NO_MEDIUM, "{bytes:?}");
    }
    for bytes in
        [&[0x12, 0, 0, 0, 36][..], &[0x1a, 0, 0x3f, 0, 255], &[0x12, 1, 0x83, 1, 0], &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0]]
    {
        rig.read(bytes);
    }
    assert_eq!(rig.read(&[0x1a, 0, 0x3f, 0, 255])[4..8], [0; 4], "no blocks");
    assert_eq!(code(SenseData::decode(&rig.read(&[0x03, 0, 0, 0, 18])).unwrap()), NO_MEDIUM);
    good(&rig, &LOAD);
    good(&rig, &[0x00]);
}

#[test]
fn a_loaded_medium_is_announced_to_the_others_or_to_all() {
    let rig = removable();
    let other = rig.device.attach(name("iqn.2026-11.host:b"));
    let ready = |nexus| rig.run_on(nexus, [0; 8], [0; 16], &[]);
    ready(&other);
    good(&rig, &EJECT);
    good(&rig, &LOAD);
    good(&rig, &LOAD);
    assert_eq!(sense(&ready(&other)).code, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
    assert_eq!(ready(&other).status, Status::GOOD);
    good(&rig, &[0x00]);
    rig.unit.eject().unwrap();
    assert!(!rig.unit.medium_present());
    rig.unit.load();
    for nexus in [&rig.nexus, &other] {
        assert_eq!(sense(&ready(nexus)).code, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
    }
}

#[test]
fn every_nexus_prevents_the_removal_for_itself_until_it_ends() {
    let rig = removable();
    let other = rig.device.attach(name("iqn.2026-11.host:b"));
    rig.run_on(&other, [0; 8], [0; 16], &[]);
    good(&rig, &PREVENT);
    assert_eq!(rig.run_on(&other, [0; 8], cdb(&PREVENT), &[]).status, Status::GOOD);
    let refused = (SenseKey::ILLEGAL_REQUEST, AdditionalSense::MEDIUM_REMOVAL_PREVENTED);
    assert_eq!(code(rig.refused(&EJECT, &[])), refused);
    assert_eq!(code(rig.refused(&LOAD, &[])), refused);
    assert_eq!(rig.unit.eject(), Err(EjectError::Prevented));
    good(&rig, &ALLOW);
    assert_eq!(code(rig.refused(&EJECT, &[])), refused);
    drop(other);
    good(&rig, &EJECT);
}

#[test]
fn a_power_condition_leaves_the_medium_where_it_is() {
    let rig = removable();
    for condition in 1..16 {
        good(&rig, &[0x1b, 1, 0, 0, condition << 4 | 0x02, 0]);
        good(&rig, &[0x00]);
    }
}

#[test]
fn a_reset_allows_the_removal() {
    let rig = removable();
    good(&rig, &PREVENT);
    rig.device.reset_unit([0; 8], &rig.nexus);
    rig.run(&[0; 6], &[]);
    good(&rig, &EJECT);
}
