//! Configurations that change between both processes: initiators learn of it as if it had changed before their eyes.

use std::sync::Arc;

use lunette_device::{
    GroupAccess, LogicalUnit, LogicalUnitConfig, LunMap, Nexus, Place, PortGroup, PortGroupsConfig, Readiness,
    TargetDevice,
};
use lunette_scsi::port_groups::{AccessState, Management};
use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseKey, Status};

use super::parts::{attach, attentions};
use super::{Successor, handover};
use crate::fixture::{Fixture, THIN, cdb, name, name_on};

const LUN_1: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// The pending unit attentions on LUN 1.
fn on_second(fixture: &Fixture, nexus: &Nexus) -> Vec<AdditionalSense> {
    let next = || fixture.run_on(nexus, LUN_1, cdb(&[0x03, 0, 0, 0, 252]), &[]).data_in.to_vec();
    let decoded = std::iter::repeat_with(next).map(|data| SenseData::decode(&data).unwrap());
    decoded.take_while(|sense| sense.key == SenseKey::UNIT_ATTENTION).map(|sense| sense.code).collect()
}

fn add_second(fixture: &Fixture, device: &TargetDevice) {
    let config = LogicalUnitConfig::new(fixture.store.clone(), "serial-2");
    device.add(Lun::new(1).unwrap(), Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
}

#[test]
fn a_lun_comes_and_goes() {
    let fixture = Fixture::new(THIN);
    drop(attach(&fixture, "iqn.2026-11.host:b"));
    let successor = Successor::of(&fixture);
    add_second(&fixture, &successor.device);
    let (after, _) = successor.take_over(&fixture, &[]);
    assert_eq!(on_second(&after, &after.nexus), [AdditionalSense::POWER_ON_OR_RESET]);
    assert_eq!(attentions(&after, &after.nexus), [AdditionalSense::REPORTED_LUNS_DATA_CHANGED]);
    let lost = after.device.attach(name("iqn.2026-11.host:b"));
    assert_eq!(attentions(&after, &lost), [AdditionalSense::POWER_ON_OR_RESET], "it has missed a change");
    after.unit.capacity_changed();
    let (last, _) = Successor::of(&after).take_over(&after, &[]);
    let codes = [AdditionalSense::CAPACITY_DATA_CHANGED, AdditionalSense::REPORTED_LUNS_DATA_CHANGED];
    assert_eq!(attentions(&last, &last.nexus), codes);
}

#[test]
fn another_unit_is_at_the_lun() {
    let fixture = Fixture::new(THIN);
    fixture.unit.capacity_changed();
    let other = |config: &mut LogicalUnitConfig| config.serial = "serial-3".into();
    let (after, _) = Successor::with(&fixture, other).take_over(&fixture, &[]);
    let codes = [AdditionalSense::POWER_ON_OR_RESET, AdditionalSense::INQUIRY_DATA_CHANGED];
    assert_eq!(attentions(&after, &after.nexus), codes);
    // The same unit with another name.
    let renamed = |config: &mut LogicalUnitConfig| config.product = "ANOTHER DISK".into();
    let (last, _) = Successor::with(&after, renamed).take_over(&after, &[]);
    assert_eq!(attentions(&last, &last.nexus), [AdditionalSense::INQUIRY_DATA_CHANGED]);
}

#[test]
fn a_unit_that_others_may_see_goes_on_for_each() {
    let fixture = Fixture::new(THIN);
    add_second(&fixture, &fixture.device);
    let map = |read_only| LunMap::only([(Lun::new(1).unwrap(), Place { lun: Lun::ZERO, read_only })], false).unwrap();
    fixture.device.set_lun_maps([("host".into(), map(false))].into());
    let nexus = fixture.device.attach_host(name("iqn.2026-11.host:b"), Some("host".into()));
    attentions(&fixture, &nexus);
    for (read_only, expected) in [(false, vec![]), (true, vec![AdditionalSense::MODE_PARAMETERS_CHANGED])] {
        let Successor { device, unit } = Successor::of(&fixture);
        add_second(&fixture, &device);
        device.set_lun_maps([("host".into(), map(read_only))].into());
        device.inherit(&fixture.device.handover()).unwrap();
        let come = device.attach_host(nexus.name().clone(), Some("host".into()));
        come.inherit(&nexus.handover());
        let after = fixture.successor(device, unit, come);
        assert_eq!(attentions(&after, &after.nexus), expected);
    }
}

#[test]
fn a_store_that_is_there_again_is_announced() {
    let fixture = Fixture::new(THIN);
    fixture.unit.set_readiness(Readiness::NotReady);
    let (after, _) = Successor::of(&fixture).take_over(&fixture, &[]);
    assert_eq!(attentions(&after, &after.nexus), [AdditionalSense::MEDIUM_MAY_HAVE_CHANGED]);
    let not_ready = |config: &mut LogicalUnitConfig| config.readiness = Readiness::NotReady;
    let (last, _) = Successor::with(&after, not_ready).take_over(&after, &[]);
    assert_eq!(attentions(&last, &last.nexus), []);
    assert_eq!(last.refused(&[0x00], &[]).code, AdditionalSense::MANUAL_INTERVENTION_REQUIRED);
}

#[test]
fn a_unit_is_longer_or_read_only() {
    let fixture = Fixture::new(THIN);
    let left = handover(&fixture, &[]);
    fixture.store.len_bytes.fetch_sub(4096, std::sync::atomic::Ordering::Relaxed);
    let Successor { device, unit } = Successor::with(&fixture, |config| config.read_only = true);
    unit.inherit(&left.units[0]).unwrap();
    let nexus = device.attach(fixture.nexus.name().clone());
    nexus.inherit(&left.sessions[0].nexus);
    let after = fixture.successor(device, unit, nexus);
    let codes = [AdditionalSense::CAPACITY_DATA_CHANGED, AdditionalSense::MODE_PARAMETERS_CHANGED];
    assert_eq!(attentions(&after, &after.nexus), codes);
}

/// Group 1 of port 1, active/optimized; group 2 of port 2 in this state.
fn groups(management: Management, second: AccessState) -> PortGroupsConfig {
    let group = |id, state| PortGroup {
        id,
        ports: vec![id],
        access: GroupAccess { state, preferred: false },
        ..PortGroup::default()
    };
    let groups = vec![group(1, AccessState::ActiveOptimized), group(2, second)];
    PortGroupsConfig { management, groups, ..PortGroupsConfig::default() }
}

/// A device with groups, the unit, and nexuses through both ports, the first of which is that of the fixture.
fn with_groups(
    fixture: &Fixture,
    unit: &Arc<LogicalUnit>,
    config: PortGroupsConfig,
) -> (Arc<TargetDevice>, [Nexus; 2]) {
    let device = Arc::new(TargetDevice::with_port_groups(fixture.device.name(), config).unwrap());
    device.add(Lun::ZERO, Arc::clone(unit)).unwrap();
    let nexuses = [1, 2].map(|port| device.attach(name_on("iqn.2026-11.host:a", port)));
    (device, nexuses)
}

#[test]
fn access_states_go_over_where_their_configuration_is_the_same() {
    const REPORT: &[u8] = &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 4, 0];
    let standby = [0, 0, 0, 0, AccessState::Standby.code(), 0, 0, 2];
    let config = |second| groups(Management::Both, second);
    let fixture = Fixture::new(THIN);
    let (device, [first, second]) = with_groups(&fixture, &fixture.unit, config(AccessState::ActiveNonOptimized));
    let before = fixture.successor(Arc::clone(&device), Arc::clone(&fixture.unit), first);
    attentions(&before, &before.nexus);
    attentions(&before, &second);
    assert_eq!(before.run(&[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8], &standby).status, Status::GOOD);
    attentions(&before, &second);
    for (configured, changes) in [(AccessState::ActiveNonOptimized, false), (AccessState::ActiveOptimized, true)] {
        let unit = Successor::of(&before).unit;
        let device_after = TargetDevice::with_port_groups(device.name(), config(configured)).unwrap();
        device_after.add(Lun::ZERO, Arc::clone(&unit)).unwrap();
        let device_after = Arc::new(device_after);
        let (after, nexuses) = Successor { device: device_after, unit }.take_over(&before, &[&second]);
        let expected = if changes { vec![AdditionalSense::ACCESS_STATE_CHANGED] } else { vec![] };
        for nexus in [&after.nexus, &nexuses[0]] {
            assert_eq!(attentions(&after, nexus), expected);
        }
        assert_eq!(after.read(REPORT) == before.read(REPORT), !changes, "{configured:?}");
        let ready = after.run_on(&nexuses[0], [0; 8], cdb(&[0x00]), &[]);
        assert_eq!(ready.status == Status::GOOD, changes, "through the second port");
    }
}
