//! Units whose store is not there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lunette_device::{LogicalUnit, LogicalUnitConfig, Readiness};
use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseKey, Status};
use lunette_store::MemoryStore;

use crate::fixture::{Fixture, THIN, cdb, code, sense};

const NOT_READY: (SenseKey, AdditionalSense) = (SenseKey::NOT_READY, AdditionalSense::MANUAL_INTERVENTION_REQUIRED);

/// A unit with the serial number of the fixture's, and nothing to hold its blocks.
fn absent(serial: &str) -> Arc<LogicalUnit> {
    let nothing = Arc::new(MemoryStore::new(0).unwrap());
    Arc::new(
        LogicalUnit::new(LogicalUnitConfig {
            readiness: Readiness::NotReady,
            ..LogicalUnitConfig::new(nothing, serial)
        })
        .unwrap(),
    )
}

/// Commands that change or read the medium, and commands that change or read what its unit alone knows.
const REFUSED: [&[u8]; 14] = [
    &[0x00],
    &[0x25],
    &[0x9e, 0x10],
    &[0x28, 0, 0, 0, 0, 0, 0, 0, 1],
    &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1],
    &[0x35],
    &[0x42],
    &[0x1b, 0, 0, 0, 1, 0],
    &[0x1a, 0, 0x3f, 0, 255],
    &[0x15, 0x10, 0, 0, 4],
    &[0x16],
    &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8],
    &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24],
    &[0x4d, 0, 0x40, 0, 0, 0, 0, 0, 255],
];

/// The unit attentions of the nexus, which are over then.
fn attentions(fixture: &Fixture) -> Vec<AdditionalSense> {
    let next = || {
        let response = fixture.run(&[0x00], &[]);
        let code = (response.status != Status::GOOD).then(|| sense(&response))?;
        (code.key == SenseKey::UNIT_ATTENTION).then_some(code.code)
    };
    std::iter::from_fn(next).collect()
}

fn assert_not_ready(fixture: &Fixture) {
    assert_refused(fixture, NOT_READY);
}

fn assert_refused(fixture: &Fixture, expected: (SenseKey, AdditionalSense)) {
    for bytes in REFUSED {
        assert_eq!(code(fixture.refused(bytes, &[0; 512])), expected, "{bytes:?}");
    }
    assert_eq!(code(SenseData::decode(&fixture.read(&[0x03, 0, 0, 0, 18])).unwrap()), expected);
    let inquiry = fixture.read(&[0x12, 0, 0, 0, 36]);
    // SPC-5 6.6.2: the qualifier 000b does not imply that the unit is ready, and it is what a server says that cannot
    // tell.
    assert_eq!(inquiry[0], 0, "a connected disk");
    assert_eq!(fixture.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0])[..4], [0, 0, 0, 8], "one LUN");
    fixture.read(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0]);
}

#[test]
fn a_unit_without_its_store_is_there_and_not_ready() {
    let fixture = Fixture::new(THIN);
    let page = |fixture: &Fixture| fixture.read(&[0x12, 1, 0x83, 1, 0]);
    let designators = page(&fixture);
    fixture.device.assign(Lun::ZERO, Some(absent(&fixture.unit.config().serial)));
    assert_eq!(attentions(&fixture)[1..], [AdditionalSense::INQUIRY_DATA_CHANGED], "behind that of a new nexus");
    assert_not_ready(&fixture);
    assert_eq!(page(&fixture), designators, "initiators know the disk by them");
    let mut place = [0; 512];
    let mut at_once = fixture.nexus.at_once(std::time::Instant::now);
    assert!(!at_once.read([0; 8], cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1]), &mut place));
    drop(at_once);
    fixture.device.assign(Lun::ZERO, Some(Arc::clone(&fixture.unit)));
    let expected = [AdditionalSense::INQUIRY_DATA_CHANGED, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED];
    assert_eq!(attentions(&fixture)[1..], expected, "behind that of a new nexus");
    assert_eq!(fixture.run(&[0x00], &[]).status, Status::GOOD);
}

#[test]
fn a_unit_that_loses_its_store_is_told_of_when_it_is_back() {
    let fixture = Fixture::new(THIN);
    let other = fixture.device.attach(crate::fixture::name("iqn.2026-11.host:b"));
    let run = |nexus| fixture.run_on(nexus, [0; 8], [0; 16], &[]);
    run(&other);
    fixture.unit.set_readiness(Readiness::NotReady);
    assert_not_ready(&fixture);
    fixture.unit.set_readiness(Readiness::Ready);
    fixture.unit.set_readiness(Readiness::Ready);
    for nexus in [&fixture.nexus, &other] {
        assert_eq!(sense(&run(nexus)).code, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
        assert_eq!(run(nexus).status, Status::GOOD);
    }
}

#[test]
fn a_unit_whose_store_is_being_opened_says_so_until_that_has_failed_or_it_is_there() {
    let fixture = Fixture::new(THIN);
    fixture.run(&[0x00], &[]);
    fixture.unit.set_readiness(Readiness::BecomingReady);
    assert_refused(&fixture, (SenseKey::NOT_READY, AdditionalSense::BECOMING_READY));
    fixture.unit.set_readiness(Readiness::NotReady);
    assert_not_ready(&fixture);
    fixture.unit.set_readiness(Readiness::BecomingReady);
    fixture.unit.set_readiness(Readiness::Ready);
    assert_eq!(attentions(&fixture), [AdditionalSense::MEDIUM_MAY_HAVE_CHANGED]);
    // A store without blocks is a matter of its own.
    fixture.store.len_bytes.store(0, Ordering::Relaxed);
    fixture.unit.capacity_changed();
    attentions(&fixture);
    fixture.unit.set_readiness(Readiness::BecomingReady);
    assert_not_ready(&fixture);
}

#[test]
fn a_unit_that_loses_all_of_its_blocks_is_not_ready_until_it_has_some() {
    let fixture = Fixture::new(THIN);
    let resize = |len_bytes| {
        fixture.store.len_bytes.store(len_bytes, Ordering::Relaxed);
        fixture.unit.capacity_changed();
    };
    for less_than_a_block in [0, 511] {
        resize(less_than_a_block);
        assert_eq!(attentions(&fixture), [AdditionalSense::CAPACITY_DATA_CHANGED]);
        assert_not_ready(&fixture);
    }
    // The word of the driver is another matter.
    fixture.unit.set_readiness(Readiness::Ready);
    assert_not_ready(&fixture);
    resize(512);
    assert!(attentions(&fixture).contains(&AdditionalSense::MEDIUM_MAY_HAVE_CHANGED));
    assert_eq!(fixture.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0])[..4], [0; 4], "one block");
    resize(1024);
    assert_eq!(attentions(&fixture), [AdditionalSense::CAPACITY_DATA_CHANGED], "it was ready");
}
