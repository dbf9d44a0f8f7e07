//! The free space of thin units, and the soft threshold.

use lunette_device::{LogicalUnit, LogicalUnitConfig, LogicalUnitError};
use lunette_scsi::{AdditionalSense, SenseKey, Status};
use lunette_store::{Capabilities, Space, StoreError};

use crate::fixture::{Fixture, Medium, THIN, code, name, sense};

const WATCHED: Medium = Medium { soft_threshold_bytes: Some(10 << 20), ..THIN };

impl Fixture {
    fn has_free(&self, mib: u64) {
        *self.store.space.lock().unwrap() = Some(Space { used_bytes: 3 << 20, free_bytes: mib << 20 });
    }
}

#[test]
fn reaching_the_soft_threshold_raises_an_attention() {
    let fixture = Fixture::new(WATCHED);
    fixture.unit.refresh_space();
    assert_eq!(fixture.run(&[0x00], &[]).status, Status::GOOD);
    fixture.has_free(10);
    fixture.unit.refresh_space();
    let told = (SenseKey::UNIT_ATTENTION, AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED);
    assert_eq!(code(fixture.refused(&[0x00], &[])), told);
    fixture.unit.refresh_space();
    assert_eq!(fixture.run(&[0x00], &[]).status, Status::GOOD, "once");
}

#[test]
fn each_fall_to_the_threshold_is_told_to_all_units_of_a_pool_and_all_their_nexuses() {
    let fixtures = [(); 2].map(|()| Fixture::new(WATCHED));
    let others = fixtures.each_ref().map(|fixture| {
        let other = fixture.device.attach(name("iqn.2026-11.host:b"));
        fixture.run_on(&other, [0; 8], [0; 16], &[]);
        other
    });
    let told = (SenseKey::UNIT_ATTENTION, AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED);
    for (free_mib, is_told) in [(11, false), (10, true), (2, false), (40, false), (9, true)] {
        let space = Space { used_bytes: 100 << 20, free_bytes: free_mib << 20 };
        for (fixture, other) in fixtures.iter().zip(&others) {
            fixture.unit.observe_space(Some(space));
            assert_eq!(fixture.unit.space(), Some(space));
            for nexus in [&fixture.nexus, other] {
                let response = fixture.run_on(nexus, [0; 8], [0; 16], &[]);
                let found = (response.status != Status::GOOD).then(|| code(sense(&response)));
                assert_eq!(found, is_told.then_some(told), "{free_mib} MiB");
            }
        }
    }
}

#[test]
fn a_write_that_finds_no_space_is_refused_and_runs_when_there_is_some() {
    const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let fixture = Fixture::new(THIN);
    for round in 1..4 {
        *fixture.store.fails.lock().unwrap() = Some(StoreError::NoSpace);
        let refused = (SenseKey::DATA_PROTECT, AdditionalSense::SPACE_ALLOCATION_FAILED);
        assert_eq!(code(fixture.refused(&WRITE, &[round; 512])), refused);
        assert_eq!(fixture.read(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]), [round - 1; 512], "reads go on");
        assert_eq!(fixture.run(&WRITE, &[round; 512]).status, Status::GOOD);
    }
}

#[test]
fn no_attention_is_raised_while_lbpere_is_cleared() {
    let fixture = Fixture::new(WATCHED);
    let page = fixture.read(&[0x1a, 0x08, 0x01, 0, 255, 0]);
    assert_eq!(page[4 + 7], 0x80, "LBPERE");
    let mut list = page.clone();
    (list[0], list[2], list[4 + 7]) = (0, 0, 0);
    list[4] &= 0x7f;
    assert_eq!(fixture.run(&[0x15, 0x10, 0, 0, list.len() as u8, 0], &list).status, Status::GOOD);
    fixture.has_free(0);
    fixture.unit.refresh_space();
    assert_eq!(fixture.run(&[0x00], &[]).status, Status::GOOD);
}

#[test]
fn the_threshold_and_the_resources_are_reported_in_sets() {
    let fixture = Fixture::new(WATCHED);
    assert_eq!(fixture.read(&[0x12, 1, 0xb2, 0, 255, 0])[4], 11, "THRESHOLD EXPONENT: sets of 1 MiB");
    let page = fixture.read(&[0x1a, 0x08, 0x1c, 0x02, 255, 0]);
    assert_eq!(page[4..8], [0x5c, 0x02, 0, 20]);
    assert_eq!(page[20..], [0x80, 1, 0, 0, 0, 0, 0, 10], "enabled, available resources, count");
    let log = fixture.read(&[0x4d, 0, 0x4c, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(log[4..], [0, 1, 3, 8, 0, 0, 0, 20, 2, 0, 0, 0, 0, 2, 3, 8, 0, 0, 0, 3, 1, 0, 0, 0]);
}

#[test]
fn a_unit_without_a_threshold_has_no_page_of_it() {
    let fixture = Fixture::new(THIN);
    fixture.has_free(0);
    fixture.unit.refresh_space();
    assert_eq!(fixture.run(&[0x00], &[]).status, Status::GOOD);
    assert_eq!(fixture.refused(&[0x1a, 0x08, 0x1c, 0x02, 255, 0], &[]).code, AdditionalSense::INVALID_FIELD_IN_CDB);
    let thick = Fixture::new(Medium { capabilities: Capabilities { unmap: false, ..THIN.capabilities }, ..THIN });
    assert_eq!(thick.read(&[0x12, 1, 0xb2, 0, 255, 0])[4], 0);
    let config = LogicalUnitConfig { soft_threshold_bytes: Some(1), ..LogicalUnitConfig::new(thick.store, "thick") };
    assert_eq!(LogicalUnit::new(config).err(), Some(LogicalUnitError::Threshold));
}
