//! Unit attentions, resets, and which commands pass them.

use std::sync::{Arc, Barrier};
use std::thread;

use lunette_device::{LogicalUnit, LogicalUnitConfig, LunInUse, Nexus, PendingEvent, ResetOutcome, TargetDevice};
use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseKey, Status};

use crate::fixture::{Fixture, THIN, cdb, name, sense};

const LUN_1: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

fn ready(fixture: &Fixture, nexus: &Nexus, lun: [u8; 8]) -> Option<AdditionalSense> {
    let response = fixture.run_on(nexus, lun, [0; 16], &[]);
    (response.status != Status::GOOD).then(|| sense(&response).code)
}

fn another_unit(fixture: &Fixture) -> Arc<LogicalUnit> {
    let config = LogicalUnitConfig::new(fixture.store.clone(), "serial-2");
    Arc::new(LogicalUnit::new(config).unwrap())
}

#[test]
fn a_new_nexus_gets_the_power_on_attention_once() {
    let fixture = Fixture::new(THIN);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    assert_eq!(ready(&fixture, &nexus, [0; 8]), Some(AdditionalSense::POWER_ON_OR_RESET));
    assert_eq!(ready(&fixture, &nexus, [0; 8]), None);
}

#[test]
fn a_returning_nexus_gets_only_the_nexus_loss_attention() {
    let fixture = Fixture::new(THIN);
    let come = || fixture.device.attach(name("iqn.2026-11.host:b"));
    drop(come());
    let nexus = come();
    assert_eq!(ready(&fixture, &nexus, [0; 8]), Some(AdditionalSense::POWER_ON_OR_RESET), "it had not been told yet");
    drop(nexus);
    let nexus = come();
    assert_eq!(ready(&fixture, &nexus, [0; 8]), Some(AdditionalSense::I_T_NEXUS_LOSS));
    assert_eq!(ready(&fixture, &nexus, [0; 8]), None);
    drop(nexus);
    // The power on covers what happened while the nexus was lost.
    fixture.unit.capacity_changed();
    assert_eq!(ready(&fixture, &come(), [0; 8]), Some(AdditionalSense::POWER_ON_OR_RESET));
    let nexus = come();
    assert_eq!(ready(&fixture, &nexus, [0; 8]), Some(AdditionalSense::I_T_NEXUS_LOSS));
    drop(nexus);
    fixture.device.reset_target();
    assert_eq!(ready(&fixture, &come(), [0; 8]), Some(AdditionalSense::POWER_ON_OR_RESET));
}

#[test]
fn remembered_lost_nexuses_are_limited() {
    const REMEMBERED: usize = 1024;
    let fixture = Fixture::new(THIN);
    let come = |host: usize| fixture.device.attach(name(&format!("iqn.2026-11.host:{host}")));
    for host in 0..=REMEMBERED {
        let nexus = come(host);
        ready(&fixture, &nexus, [0; 8]);
    }
    assert_eq!(ready(&fixture, &come(REMEMBERED), [0; 8]), Some(AdditionalSense::POWER_ON_OR_RESET));
    assert_eq!(ready(&fixture, &come(0), [0; 8]), Some(AdditionalSense::I_T_NEXUS_LOSS));
}

/// Another thread raises an event at the same time, many times. In either order, the nexus must get it.
#[test]
fn an_event_reaches_a_nexus_that_attaches_or_detaches_at_the_same_time() {
    const ROUNDS: usize = 10_000;
    let fixture = Fixture::new(THIN);
    let come = || fixture.device.attach(name("iqn.2026-11.host:b"));
    let all_told = |nexus: &Nexus| std::iter::from_fn(|| ready(&fixture, nexus, [0; 8])).collect::<Vec<_>>();
    let (unit, in_step) = (&fixture.unit, Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                in_step.wait();
                unit.capacity_changed();
                in_step.wait();
            }
        });
        let missed = |round: usize| {
            let nexus = come();
            all_told(&nexus);
            let nexus = if round.is_multiple_of(2) {
                drop(nexus);
                in_step.wait();
                come()
            } else {
                in_step.wait();
                drop(nexus);
                come()
            };
            in_step.wait();
            let codes = all_told(&nexus);
            !codes.contains(&AdditionalSense::CAPACITY_DATA_CHANGED)
                && !codes.contains(&AdditionalSense::POWER_ON_OR_RESET)
        };
        // Runs all rounds, because the other thread counts them too.
        assert_eq!((0..ROUNDS).filter(|round| missed(*round)).collect::<Vec<_>>(), []);
    });
}

#[test]
fn inquiry_and_report_luns_pass_and_leave_the_attention() {
    let fixture = Fixture::new(THIN);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    for bytes in [cdb(&[0x12, 0, 0, 0, 96]), cdb(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64])] {
        assert_eq!(fixture.run_on(&nexus, [0; 8], bytes, &[]).status, Status::GOOD);
    }
    assert_eq!(ready(&fixture, &nexus, [0; 8]), Some(AdditionalSense::POWER_ON_OR_RESET));
}

#[test]
fn request_sense_returns_the_attention_as_data() {
    let fixture = Fixture::new(THIN);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    for (descriptors, response_code) in [(0, 0x70), (1, 0x72)] {
        ready(&fixture, &nexus, [0; 8]);
        fixture.device.reset_target();
        let response = fixture.run_on(&nexus, [0; 8], cdb(&[0x03, descriptors, 0, 0, 252]), &[]);
        let data = response.data_in.to_vec();
        assert_eq!((response.status, data[0]), (Status::GOOD, response_code));
        let expected = SenseData::unit_attention(AdditionalSense::BUS_DEVICE_RESET);
        assert_eq!(SenseData::decode(&data).unwrap(), expected);
    }
    assert_eq!(ready(&fixture, &nexus, [0; 8]), None, "it has been told");
    ready(&fixture, &fixture.nexus, [0; 8]);
    let data = fixture.read(&[0x03, 0, 0, 0, 252]);
    assert_eq!(SenseData::decode(&data).unwrap().key, SenseKey::NO_SENSE);
}

#[test]
fn a_unit_attention_precedes_errors_in_the_cdb() {
    let fixture = Fixture::new(THIN);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    let response = fixture.run_on(&nexus, [0; 8], cdb(&[0xff]), &[]);
    assert_eq!(sense(&response).code, AdditionalSense::POWER_ON_OR_RESET);
    let response = fixture.run_on(&nexus, [0; 8], cdb(&[0xff]), &[]);
    assert_eq!(sense(&response).code, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
}

#[test]
fn a_reset_raises_an_attention_through_every_device() {
    let fixture = Fixture::new(THIN);
    let other = fixture.device.attach(name("iqn.2026-11.host:b"));
    let second_device = Arc::new(TargetDevice::new("iqn.2026-11.lunette:other"));
    second_device.add(Lun::ZERO, Arc::clone(&fixture.unit)).unwrap();
    let through_second = second_device.attach(name("iqn.2026-11.host:c"));
    for nexus in [&other, &through_second] {
        ready(&fixture, nexus, [0; 8]);
    }
    assert_eq!(fixture.device.reset_unit([0; 8], &fixture.nexus), ResetOutcome::Done);
    for nexus in [&fixture.nexus, &other, &through_second] {
        assert_eq!(ready(&fixture, nexus, [0; 8]), Some(AdditionalSense::BUS_DEVICE_RESET));
        assert_eq!(ready(&fixture, nexus, [0; 8]), None);
    }
    assert_eq!(fixture.device.reset_unit(LUN_1, &fixture.nexus), ResetOutcome::UnknownLun);
}

#[test]
fn a_unit_added_later_raises_an_attention_that_report_luns_clears() {
    let fixture = Fixture::new(THIN);
    let lun_1 = Lun::decode(LUN_1);
    fixture.device.add(lun_1, another_unit(&fixture)).unwrap();
    assert_eq!(fixture.device.add(lun_1, another_unit(&fixture)), Err(LunInUse(lun_1)));
    assert_eq!(ready(&fixture, &fixture.nexus, LUN_1), Some(AdditionalSense::POWER_ON_OR_RESET));
    assert_eq!(ready(&fixture, &fixture.nexus, [0; 8]), Some(AdditionalSense::REPORTED_LUNS_DATA_CHANGED));
    fixture.device.add(Lun::new(300).unwrap(), another_unit(&fixture)).unwrap();
    let list = fixture.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(&list[..4], [0, 0, 0, 24]);
    assert_eq!(&list[24..], [0x41, 0x2c, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ready(&fixture, &fixture.nexus, [0; 8]), None);
}

#[test]
fn without_a_unit_only_three_commands_are_answered() {
    let fixture = Fixture::new(THIN);
    for lun in [LUN_1, [0xc1, 0x01, 0, 0, 0, 0, 0, 0]] {
        let run = |bytes: &[u8]| fixture.run_on(&fixture.nexus, lun, cdb(bytes), &[]);
        for bytes in [&[0x00][..], &[0xff], &[0x28, 0, 0, 0, 0, 0, 0, 0, 1], &[0x12, 1, 0x83, 1, 0]] {
            assert_eq!(sense(&run(bytes)).code, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
        }
        assert_eq!(run(&[0x12, 0, 0, 0, 36]).data_in.first_run()[0], 0x7f);
        assert_eq!(run(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0]).data_in.len(), 16);
        let data = run(&[0x03, 0, 0, 0, 18]).data_in.to_vec();
        assert_eq!(SenseData::decode(&data).unwrap().code, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    }
}

#[test]
fn a_dropped_nexus_is_detached_from_all_units() {
    let fixture = Fixture::new(THIN);
    let unit = another_unit(&fixture);
    fixture.device.add(Lun::decode(LUN_1), Arc::clone(&unit)).unwrap();
    let before = Arc::strong_count(&unit);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    assert!(Arc::strong_count(&unit) > before);
    drop(nexus);
    assert_eq!(Arc::strong_count(&unit), before);
}

#[test]
fn query_asynchronous_event_reports_attentions_without_clearing_them() {
    let fixture = Fixture::new(THIN);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    assert_eq!(fixture.device.query_asynchronous_event(LUN_1, &nexus), PendingEvent::UnknownLun);
    let pending = || fixture.device.query_asynchronous_event([0; 8], &nexus);
    assert_eq!(pending(), PendingEvent::UnitAttention([0x16, 0x29, 0x00]), "one");
    fixture.unit.capacity_changed();
    assert_eq!(pending(), PendingEvent::UnitAttention([0x26, 0x29, 0x00]), "several");
    ready(&fixture, &nexus, [0; 8]);
    assert_eq!(pending(), PendingEvent::UnitAttention([0x16, 0x2a, 0x09]));
    ready(&fixture, &nexus, [0; 8]);
    assert_eq!(pending(), PendingEvent::Nothing);
}

#[test]
fn a_nexus_lost_with_its_commands_returns_with_a_nexus_loss_attention() {
    let fixture = Fixture::new(THIN);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    ready(&fixture, &nexus, [0; 8]);
    fixture.device.commands_cleared(&nexus, [Lun::ZERO]);
    drop(nexus);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    assert_eq!(ready(&fixture, &nexus, [0; 8]), Some(AdditionalSense::I_T_NEXUS_LOSS));
}

#[test]
fn functions_of_sam5_are_reported_where_the_transport_has_them() {
    let fixture = Fixture::new(THIN);
    let nexus = fixture.device.attach(name("iqn.2026-11.host:b"));
    ready(&fixture, &nexus, [0; 8]);
    let report = || {
        let response = fixture.run_on(&nexus, [0; 8], cdb(&[0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 4]), &[]);
        response.data_in.to_vec()
    };
    assert_eq!(report(), [0xd8, 0, 0, 0]);
    nexus.enable_sam5_functions();
    assert_eq!(report(), [0xdc, 0x07, 0, 0]);
}
