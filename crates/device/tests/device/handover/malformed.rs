//! A state that no predecessor leaves is refused, and never a panic.

use lunette_handover::{ByteBuf, CopyResult, SeenUnit, Target, Token, Unit};
use proptest::prelude::*;

use super::{Successor, handover};
use crate::fixture::{Fixture, THIN};

/// A way to spoil what a unit has left.
type Spoil = fn(&mut Unit, ByteBuf);

const SPOILS: [(&str, Spoil); 5] = [
    ("the reservations", |unit, bytes| unit.reservations = bytes),
    ("the reservations", |unit, bytes| unit.legacy_holder = bytes),
    ("the mode pages", |unit, bytes| unit.mode_pages = bytes),
    ("the failure of a SANITIZE", |unit, bytes| unit.sanitize_failure = bytes),
    ("the lost nexuses", |unit, bytes| unit.lost_nexuses = vec![bytes]),
];

#[test]
fn what_is_no_such_value_is_refused_by_name() {
    let fixture = Fixture::new(THIN);
    let left = handover(&fixture, &[]);
    let successor = Successor::of(&fixture);
    for (what, spoil) in SPOILS {
        for bytes in [&[0xff][..], &[1], &[0, 1, 0, 9, b'x']] {
            let mut unit = left.units[0].clone();
            spoil(&mut unit, ByteBuf::from(bytes));
            // A single byte of version 1 is an empty list of mode pages.
            if (what, bytes) == ("the mode pages", &[1]) {
                continue;
            }
            let error = successor.unit.inherit(&unit).unwrap_err();
            assert_eq!((error.what, error.owner.as_str()), (what, "serial-1"), "{bytes:?}");
        }
    }
    let port_groups = ByteBuf::from(&[1, 0][..]);
    let error = successor.device.inherit(&Target { port_groups, ..Target::default() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the predecessor has left the access states of iqn.2026-11.lunette:disk in a form that is not known here; \
         restart the server instead"
    );
}

#[test]
fn a_running_operation_is_no_failure() {
    let fixture = Fixture::after(THIN, &std::sync::Arc::default());
    assert_eq!(fixture.run(&[0x48, 0x82], &[]).status, lunette_scsi::Status::GOOD);
    let left = handover(&fixture, &[]);
    assert!(left.units[0].sanitize_failure.is_empty());
}

#[test]
fn a_release_that_leaves_nothing_is_no_mistake() {
    let fixture = Fixture::new(THIN);
    let successor = Successor::of(&fixture);
    successor.unit.inherit(&Unit::default()).unwrap();
    successor.device.inherit(&Target::default()).unwrap();
    successor.device.attach(fixture.nexus.name().clone()).inherit(&lunette_handover::Nexus::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_taken_or_refused(
        which in 0..SPOILS.len(),
        bytes in proptest::collection::vec(prop_oneof![0..9u8, any::<u8>()], 0..40),
        codes in proptest::collection::vec(any::<(u8, u8)>(), 0..40),
        lun: [u8; 8],
        number: u64,
    ) {
        let fixture = Fixture::new(THIN);
        let mut left = handover(&fixture, &[]);
        let unit = &mut left.units[0];
        SPOILS[which].1(unit, ByteBuf::from(bytes.clone()));
        unit.counters.iter_mut().for_each(|(_, counter)| *counter = number);
        unit.initiators.iter_mut().for_each(|initiator| initiator.read_bytes = number);
        (unit.created_ms, unit.clock_offset_ms) = (number, Some(number.cast_signed()));
        let successor = Successor::of(&fixture);
        let _ = successor.unit.inherit(unit);
        let token = Token {
            bytes: ByteBuf::from(vec![0; 512]),
            serial: "serial-1".into(),
            extents: vec![(number, number), (0, number), (number, 1)],
            timeout_ms: number,
            last_used_ms: number,
            ..Token::default()
        };
        let tokens = vec![token, Token { serial: "serial-1".into(), ..Token::default() }];
        let port_groups = ByteBuf::from(bytes.clone());
        let _ = successor.device.inherit(&Target { port_groups, last_token: number, tokens, ..Target::default() });
        let nexus = successor.device.attach(fixture.nexus.name().clone());
        let seen = &mut left.sessions[0].nexus;
        seen.units[0].unit_attentions = codes;
        seen.units[0].copies = vec![CopyResult { token: ByteBuf::from(bytes), ..CopyResult::default() }];
        seen.units.push(SeenUnit { lun, ..SeenUnit::default() });
        nexus.inherit(seen);
        let after = fixture.successor(successor.device, successor.unit, nexus);
        for _ in 0..20 {
            after.run(&[0x00], &[]);
        }
        after.run(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[0; 512]);
        after.run(&[0x84, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4], &[]);
        // POPULATE TOKEN of four blocks.
        let mut list = [0; 32];
        (list[1], list[15], list[27]) = (30, 16, 4);
        after.run(&[0x83, 0x10, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 32], &list);
        after.run(&[0x4d, 0, 0x55, 0, 0, 0, 0, 1, 0], &[]);
        after.run(&[0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 1, 0], &[]);
    }
}
