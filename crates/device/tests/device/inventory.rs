//! Logical units that come, go and change while nexuses see them.

use std::sync::Arc;

use lunette_device::{Input, LogicalUnit, LogicalUnitConfig, Nexus, Step, TargetDevice};
use lunette_scsi::{AdditionalSense, Lun, SenseKey, Status, TaskAttribute};

use crate::fixture::{Fixture, THIN, cdb, name, sense};

const LUN_1: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

fn unit(fixture: &Fixture, serial: &str) -> Arc<LogicalUnit> {
    Arc::new(LogicalUnit::new(LogicalUnitConfig::new(fixture.store.clone(), serial)).unwrap())
}

fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

/// The pending unit attentions, and then the code of any other sense data.
fn attentions(fixture: &Fixture, nexus: &Nexus, lun: [u8; 8]) -> Vec<AdditionalSense> {
    let mut codes = Vec::new();
    loop {
        let response = fixture.run_on(nexus, lun, [0; 16], &[]);
        if response.status == Status::GOOD {
            return codes;
        }
        codes.push(sense(&response).code);
        if sense(&response).key != SenseKey::UNIT_ATTENTION {
            return codes;
        }
    }
}

#[test]
fn a_removed_unit_is_not_supported_and_raises_attentions_on_the_others() {
    let fixture = Fixture::new(THIN);
    let second = unit(&fixture, "serial-2");
    fixture.device.add(lun(1), Arc::clone(&second)).unwrap();
    attentions(&fixture, &fixture.nexus, LUN_1);
    attentions(&fixture, &fixture.nexus, [0; 8]);
    let gone = fixture.device.assign(lun(1), None).previous.unwrap();
    assert!(Arc::ptr_eq(&gone, &second));
    assert_eq!(attentions(&fixture, &fixture.nexus, LUN_1), [AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED]);
    assert_eq!(attentions(&fixture, &fixture.nexus, [0; 8]), [AdditionalSense::REPORTED_LUNS_DATA_CHANGED]);
    assert!(fixture.device.assign(lun(1), None).previous.is_none(), "it is gone already");
    assert_eq!(attentions(&fixture, &fixture.nexus, [0; 8]), []);
}

#[test]
fn a_replaced_unit_raises_an_attention_at_its_lun_alone() {
    let fixture = Fixture::new(THIN);
    fixture.device.add(lun(1), unit(&fixture, "serial-2")).unwrap();
    attentions(&fixture, &fixture.nexus, LUN_1);
    attentions(&fixture, &fixture.nexus, [0; 8]);
    fixture.device.assign(lun(1), Some(unit(&fixture, "serial-3")));
    let told = [AdditionalSense::POWER_ON_OR_RESET, AdditionalSense::INQUIRY_DATA_CHANGED];
    assert_eq!(attentions(&fixture, &fixture.nexus, LUN_1), told);
    assert_eq!(attentions(&fixture, &fixture.nexus, [0; 8]), []);
    let page = fixture.run_on(&fixture.nexus, LUN_1, cdb(&[0x12, 1, 0x80, 0, 64]), &[]).data_in.to_vec();
    assert_eq!(&page[4..], b"serial-3");
}

#[test]
fn a_command_in_progress_keeps_its_unit() {
    let fixture = Fixture::new(THIN);
    let command = lunette_device::Command {
        lun: [0; 8],
        cdb: cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]).into(),
        attribute: TaskAttribute::Simple,
        data_out_len: 0,
        data_in_len: 512,
    };
    let mut task = fixture.device.start(&fixture.nexus, command);
    assert!(!task.uses(&fixture.unit), "it has not begun");
    let Step::Buffer { len } = task.step(Input::Start) else { panic!("a read wants a buffer") };
    assert!(task.uses(&fixture.unit));
    let other = unit(&fixture, "serial-2");
    fixture.device.assign(Lun::ZERO, Some(Arc::clone(&other)));
    assert!(task.uses(&fixture.unit) && !task.uses(&other));
    let Step::Store { store, op } = task.step(Input::Buffer(fixture.buffer(len))) else { panic!("then it reads") };
    let Step::Done(response) = task.step(Input::Store(lunette_store::execute(&*store, op))) else { panic!("and ends") };
    assert_eq!(response.status, Status::GOOD);
    assert!(!task.uses(&fixture.unit), "it has ended");
}

#[test]
fn a_removed_unit_loses_the_reservations_of_its_nexuses() {
    let fixture = Fixture::new(THIN);
    assert_eq!(fixture.run(&[0x16], &[]).status, Status::GOOD, "RESERVE(6)");
    fixture.device.assign(Lun::ZERO, None);
    let device = Arc::new(TargetDevice::new("iqn.2026-11.lunette:other"));
    device.add(Lun::ZERO, Arc::clone(&fixture.unit)).unwrap();
    let nexus = device.attach(name("iqn.2026-11.host:b"));
    assert_eq!(attentions(&fixture, &nexus, [0; 8]), [AdditionalSense::POWER_ON_OR_RESET]);
}

#[test]
fn a_grown_unit_raises_one_attention_for_each_nexus() {
    let fixture = Fixture::new(THIN);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    attentions(&fixture, &nexus, [0; 8]);
    fixture.unit.capacity_changed();
    fixture.unit.capacity_changed();
    for nexus in [&fixture.nexus, &nexus] {
        assert_eq!(attentions(&fixture, nexus, [0; 8]), [AdditionalSense::CAPACITY_DATA_CHANGED]);
    }
}
