//! Hosts that see a part of the logical units, under other numbers or without the right to write.

use std::sync::Arc;

use lunette_device::{LogicalUnit, LogicalUnitConfig, LunMap, LunMaps, Nexus, Place, ResetOutcome};
use lunette_scsi::{AdditionalSense, Lun, SenseKey, Status};

use crate::fixture::{Fixture, Medium, THIN, cdb, code, name, sense};

fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

fn wire(number: u8) -> [u8; 8] {
    [0, number, 0, 0, 0, 0, 0, 0]
}

fn maps(entries: &[(&str, LunMap)]) -> LunMaps {
    entries.iter().map(|(host, map)| ((*host).into(), map.clone())).collect()
}

fn only(entries: &[(u16, u16, bool)]) -> LunMap {
    let entry = |(from, to, read_only): &(u16, u16, bool)| (lun(*from), Place { lun: lun(*to), read_only: *read_only });
    LunMap::only(entries.iter().map(entry), false).unwrap()
}

/// A device with LUNs 0, 1 and 2, whose serial numbers are `serial-0`, and so on.
fn three_units() -> Fixture {
    let fixture = Fixture::new(THIN);
    for number in [1, 2] {
        let config = LogicalUnitConfig::new(fixture.store.clone(), format!("serial-{number}"));
        fixture.device.add(lun(number), Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
    }
    fixture
}

/// The numbers that REPORT LUNS gives.
fn reported(fixture: &Fixture, nexus: &Nexus) -> Vec<u8> {
    let report = fixture.run_on(nexus, wire(0), cdb(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0]), &[]);
    report.data_in.to_vec()[8..].chunks(8).map(|lun| lun[1]).collect()
}

fn serial(fixture: &Fixture, nexus: &Nexus, number: u8) -> String {
    let page = fixture.run_on(nexus, wire(number), cdb(&[0x12, 1, 0x80, 0, 64]), &[]);
    String::from_utf8(page.data_in.to_vec()[4..].to_vec()).unwrap()
}

/// The unit attention that is pending, or other sense data, if any.
fn told(fixture: &Fixture, nexus: &Nexus, number: u8) -> Option<AdditionalSense> {
    let response = fixture.run_on(nexus, wire(number), [0; 16], &[]);
    (response.status != Status::GOOD).then(|| sense(&response).code)
}

fn write(fixture: &Fixture, nexus: &Nexus, number: u8) -> Option<AdditionalSense> {
    let response = fixture.run_on(nexus, wire(number), cdb(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]), &[7; 512]);
    (response.status != Status::GOOD).then(|| sense(&response).code)
}

#[test]
fn a_host_sees_its_units_under_its_numbers_and_no_others() {
    let fixture = three_units();
    fixture.device.set_lun_maps(maps(&[("a", only(&[(2, 0, false), (1, 9, true)])), ("", LunMap::default())]));
    let a = fixture.device.attach_host(name("iqn.a"), Some("a".into()));
    let all = fixture.device.attach_host(name("iqn.b"), Some("".into()));
    let stranger = fixture.device.attach_host(name("iqn.c"), Some("no host of the device".into()));
    assert_eq!(reported(&fixture, &a), [0, 9]);
    assert_eq!(reported(&fixture, &all), [0, 1, 2]);
    assert_eq!(reported(&fixture, &stranger), []);
    assert_eq!((serial(&fixture, &a, 0), serial(&fixture, &a, 9)), ("serial-2".into(), "serial-1".into()));
    assert_eq!((a.place_of(lun(2)), a.place_of(lun(0)), a.first_lun()), (Some(lun(0)), None, Some(lun(0))));
    for number in [1, 2] {
        assert_eq!(told(&fixture, &a, number), Some(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED));
    }
}

#[test]
fn writes_of_a_host_that_may_only_read_are_refused_and_it_is_told_so() {
    let fixture = three_units();
    fixture.device.set_lun_maps(maps(&[
        ("a", only(&[(0, 0, true)])),
        ("b", LunMap::all(true)),
        ("c", LunMap::all(false)),
    ]));
    for (host, refused) in [("a", true), ("b", true), ("c", false)] {
        let nexus = fixture.device.attach_host(name(host), Some(host.into()));
        assert_eq!(told(&fixture, &nexus, 0), Some(AdditionalSense::POWER_ON_OR_RESET));
        assert_eq!(write(&fixture, &nexus, 0), refused.then_some(AdditionalSense::WRITE_PROTECTED), "{host}");
        let mode = fixture.run_on(&nexus, wire(0), cdb(&[0x1a, 0, 0x3f, 0, 255]), &[]).data_in.to_vec();
        assert_eq!(mode[2] & 0x80 != 0, refused, "WP for {host}");
        let read = fixture.run_on(&nexus, wire(0), cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]), &[]);
        assert_eq!(read.status, Status::GOOD);
    }
}

#[test]
fn a_nexus_sees_what_its_map_says_now_and_is_told() {
    let fixture = three_units();
    let give = |a: LunMap| fixture.device.set_lun_maps(maps(&[("a", a), ("b", LunMap::default())]));
    give(only(&[(0, 0, false), (1, 1, false)]));
    let a = fixture.device.attach_host(name("iqn.a"), Some("a".into()));
    let b = fixture.device.attach_host(name("iqn.b"), Some("b".into()));
    for (nexus, number) in [(&a, 0), (&a, 1), (&b, 0)] {
        assert_eq!(told(&fixture, nexus, number), Some(AdditionalSense::POWER_ON_OR_RESET));
    }
    // LUN 1 goes, LUN 2 comes under the number 5.
    assert_eq!(give(only(&[(0, 0, false), (2, 5, false)])), [a.id()]);
    assert_eq!(told(&fixture, &a, 0), Some(AdditionalSense::REPORTED_LUNS_DATA_CHANGED));
    assert_eq!(told(&fixture, &a, 1), Some(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED));
    assert_eq!(told(&fixture, &a, 5), Some(AdditionalSense::POWER_ON_OR_RESET));
    assert_eq!((told(&fixture, &b, 0), reported(&fixture, &a)), (None, vec![0, 5]));
    // Two units change places.
    assert_eq!(give(only(&[(0, 5, false), (2, 0, false)])), [a.id()]);
    assert_eq!((serial(&fixture, &a, 0), reported(&fixture, &a)), ("serial-2".into(), vec![0, 5]));
    for number in [0, 5] {
        assert_eq!(told(&fixture, &a, number), Some(AdditionalSense::I_T_NEXUS_LOSS));
        assert_eq!(told(&fixture, &a, number), Some(AdditionalSense::INQUIRY_DATA_CHANGED));
        assert_eq!(told(&fixture, &a, number), None);
    }
    // Only the right to write changes.
    assert_eq!(give(only(&[(0, 5, false), (2, 0, true)])), [a.id()]);
    assert_eq!((told(&fixture, &a, 0), told(&fixture, &a, 5)), (Some(AdditionalSense::MODE_PARAMETERS_CHANGED), None));
    assert_eq!(write(&fixture, &a, 0), Some(AdditionalSense::WRITE_PROTECTED));
    assert_eq!(give(only(&[(0, 5, false), (2, 0, true)])), [], "nothing has changed");
}

#[test]
fn units_that_come_and_go_do_so_for_the_hosts_that_see_them() {
    let fixture = three_units();
    fixture.device.set_lun_maps(maps(&[("a", only(&[(0, 0, false), (3, 1, true)]))]));
    let a = fixture.device.attach_host(name("iqn.a"), Some("a".into()));
    told(&fixture, &a, 0);
    fixture.device.assign(lun(2), None);
    assert_eq!(told(&fixture, &a, 0), None, "it never saw LUN 2");
    let config = LogicalUnitConfig::new(fixture.store.clone(), "serial-3");
    fixture.device.add(lun(3), Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
    assert_eq!(told(&fixture, &a, 0), Some(AdditionalSense::REPORTED_LUNS_DATA_CHANGED));
    assert_eq!(
        (serial(&fixture, &a, 1), write(&fixture, &a, 1)),
        ("serial-3".into(), Some(AdditionalSense::POWER_ON_OR_RESET))
    );
    assert_eq!(write(&fixture, &a, 1), Some(AdditionalSense::WRITE_PROTECTED));
    fixture.device.assign(lun(3), None);
    assert_eq!(told(&fixture, &a, 1), Some(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED));
}

#[test]
fn a_host_that_is_gone_keeps_what_it_sees_until_it_has_logged_out_and_gets_nothing_new() {
    let fixture = three_units();
    fixture.device.set_lun_maps(maps(&[("a", LunMap::default())]));
    let a = fixture.device.attach_host(name("iqn.a"), Some("a".into()));
    assert_eq!(fixture.device.set_lun_maps(LunMaps::new()), []);
    assert_eq!(reported(&fixture, &a), [0, 1, 2]);
    fixture.device.assign(lun(1), None);
    assert_eq!(reported(&fixture, &a), [0, 2]);
    let late = fixture.device.attach_host(name("iqn.b"), Some("a".into()));
    assert_eq!(reported(&fixture, &late), []);
}

/// Commands that change what other hosts see, beside the medium, with their Data-Out.
fn shared_changes() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let mut list = vec![
        ("MODE SELECT(6)", vec![0x15, 0x10, 0, 0, 16], [&[0, 0, 0, 0, 0x0a, 10, 0x02, 0, 0x08][..], &[0; 7]].concat()),
        (
            "MODE SELECT(10)",
            vec![0x55, 0x10, 0, 0, 0, 0, 0, 0, 20],
            [&[0; 8][..], &[0x0a, 10, 0x02, 0, 0x08], &[0; 7]].concat(),
        ),
        ("RESERVE(6)", vec![0x16], vec![]),
        ("RESERVE(10)", vec![0x56], vec![]),
        ("stop", vec![0x1b], vec![]),
        ("eject", vec![0x1b, 0, 0, 0, 0x02], vec![]),
        ("load", vec![0x1b, 0, 0, 0, 0x03], vec![]),
        ("PREVENT", vec![0x1e, 0, 0, 0, 0x01], vec![]),
        ("LOG SELECT", vec![0x4c, 0x02], vec![]),
        ("SANITIZE: EXIT FAILURE MODE", vec![0x48, 0x1f], vec![]),
        ("SET IDENTIFYING INFORMATION", vec![0xa4, 0x06, 0, 0, 0, 0, 0, 0, 0, 3], vec![1, 2, 3]),
        ("SET TIMESTAMP", vec![0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, 12], vec![0; 12]),
    ];
    for action in 0..8 {
        let key = [&[0; 8][..], &[0, 0, 0, 0, 0, 0, 0, 7], &[0; 8]].concat();
        list.push(("PERSISTENT RESERVE OUT", vec![0x5f, action, 0x03, 0, 0, 0, 0, 0, 24], key));
    }
    list
}

#[test]
fn a_host_that_may_only_read_changes_nothing_that_others_see() {
    let fixture = Fixture::after(Medium { removable: true, ..THIN }, &Arc::default());
    fixture.device.set_lun_maps(maps(&[("reader", LunMap::all(true)), ("writer", LunMap::all(false))]));
    let [reader, writer] = ["reader", "writer"].map(|host| fixture.device.attach_host(name(host), Some(host.into())));
    for nexus in [&reader, &writer] {
        assert_eq!(told(&fixture, nexus, 0), Some(AdditionalSense::POWER_ON_OR_RESET));
    }
    for (what, bytes, data) in shared_changes() {
        let response = fixture.run_on(&reader, wire(0), cdb(&bytes), &data);
        assert_eq!(response.status, Status::CHECK_CONDITION, "{what}");
        assert_eq!(code(sense(&response)), (SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED), "{what}");
        assert_eq!(told(&fixture, &writer, 0), None, "what the other host is told after {what}");
        assert_eq!(write(&fixture, &writer, 0), None, "a write of the other host after {what}");
    }
    // Of its own it may take back what it prevents or reserves, and a start does nothing.
    for bytes in [&[0x1b, 0, 0, 0, 0x01][..], &[0x1b, 0, 0, 0, 0x10], &[0x1e], &[0x17], &[0x57], &[0x35]] {
        assert_eq!(fixture.run_on(&reader, wire(0), cdb(bytes), &[]).status, Status::GOOD, "{bytes:?}");
    }
    assert_eq!(fixture.device.reset_unit(wire(0), &reader), ResetOutcome::NotAuthorized);
    assert_eq!(fixture.device.reset_unit(wire(0), &writer), ResetOutcome::Done);
    assert_eq!((reader.may_reset_target(), writer.may_reset_target()), (false, true));
}
