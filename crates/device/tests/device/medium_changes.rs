//! Media that others have put other content on, as the roll back of a snapshot does.

use lunette_device::{FrozenUnit, MediumChangeError};
use lunette_scsi::{AdditionalSense, SenseKey, Status};
use lunette_store::{OpKind, StoreError};

use crate::atomic::SteppedTask;
use crate::fixture::{Fixture, Seen, THIN, cdb, code, name, sense};
use crate::freeze::waiting;

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// SANITIZE, BLOCK ERASE, IMMED.
const SANITIZE: [u8; 10] = [0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0];

/// Other content is there, before the thaw.
fn roll_back(fixture: &Fixture, frozen: FrozenUnit) {
    assert_eq!(fixture.unit.may_change_medium(), Ok(()));
    fixture.store.bytes.lock().unwrap().fill(7);
    fixture.unit.medium_changed();
    drop(frozen);
}

#[test]
fn each_nexus_is_told_once_and_of_another_length_too() {
    let fixture = Fixture::new(THIN);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    fixture.run_on(&other, [0; 8], [0; 16], &[]);
    roll_back(&fixture, fixture.unit.freeze().unwrap());
    fixture.unit.capacity_changed();
    for nexus in [&fixture.nexus, &other] {
        let told = [(); 2].map(|()| code(sense(&fixture.run_on(nexus, [0; 8], [0; 16], &[]))));
        let codes = [AdditionalSense::MEDIUM_MAY_HAVE_CHANGED, AdditionalSense::CAPACITY_DATA_CHANGED];
        assert_eq!(told, codes.map(|code| (SenseKey::UNIT_ATTENTION, code)));
        assert_eq!(fixture.run_on(nexus, [0; 8], [0; 16], &[]).status, Status::GOOD);
    }
    assert_eq!(fixture.read(&READ), [7; 512]);
}

#[test]
fn commands_that_came_before_do_not_run_on_the_new_content() {
    let fixture = Fixture::new(THIN);
    // An exchange whose read the store has begun, and a write.
    let exchange = [[0; 512], [9; 512]].concat();
    let exchange =
        SteppedTask::new(&fixture, &fixture.nexus, cdb(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1]), exchange);
    let exchange = exchange.until_it_has_its_buffers(&fixture);
    let frozen = fixture.unit.freeze().unwrap();
    let exchange = exchange.go_on(&fixture).continue_value().unwrap();
    assert!(exchange.waits());
    let exchange = exchange.go_on(&fixture).continue_value().unwrap();
    let write = waiting(&fixture, &WRITE, &[9; 512]);
    assert_eq!(fixture.seen(), [Seen { kind: OpKind::Read, offset: 8 * 512, len: 512, fua: false }]);
    roll_back(&fixture, frozen);
    for task in [exchange, write] {
        let expected = (SenseKey::ABORTED_COMMAND, AdditionalSense::COMMANDS_CLEARED_BY_DEVICE_SERVER);
        assert_eq!(code(sense(&task.finish(&fixture))), expected);
    }
    assert_eq!(fixture.seen(), []);
    assert_eq!(fixture.refused(&WRITE, &[9; 512]).code, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
    assert_eq!(fixture.run(&WRITE, &[9; 512]).status, Status::GOOD, "no claim is left");
}

#[test]
fn a_freeze_without_a_change_costs_no_command() {
    let fixture = Fixture::new(THIN);
    roll_back(&fixture, fixture.unit.freeze().unwrap());
    fixture.refused(&[0x00], &[]);
    let frozen = fixture.unit.freeze().unwrap();
    let write = waiting(&fixture, &WRITE, &[9; 512]);
    drop(frozen);
    assert_eq!(write.finish(&fixture).status, Status::GOOD);
}

#[test]
fn what_a_sanitize_operation_erases_does_not_come_back() {
    let fixture = Fixture::new(THIN);
    assert_eq!(fixture.run(&SANITIZE, &[]).status, Status::GOOD);
    assert_eq!(fixture.unit.may_change_medium(), Err(MediumChangeError::Sanitizing), "it runs");
    *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
    fixture.finish_background();
    assert_eq!(fixture.unit.may_change_medium(), Err(MediumChangeError::Sanitizing), "it has failed");
    assert_eq!(fixture.run(&SANITIZE, &[]).status, Status::GOOD);
    fixture.finish_background();
    // One that begins in the freeze erases the new content.
    let frozen = fixture.unit.freeze().unwrap();
    assert_eq!(fixture.unit.may_change_medium(), Ok(()));
    assert_eq!(fixture.run(&SANITIZE, &[]).status, Status::GOOD);
    while fixture.step_background() {}
    fixture.store.bytes.lock().unwrap().fill(7);
    fixture.unit.medium_changed();
    drop(frozen);
    fixture.finish_background();
    assert!(fixture.bytes(0, 1024 * 512).iter().all(|byte| *byte == 0));
}

#[test]
fn the_medium_of_several_gateways_is_not_changed_behind_their_backs() {
    assert_eq!(Fixture::shared(1).unit.may_change_medium(), Err(MediumChangeError::Shared));
}
