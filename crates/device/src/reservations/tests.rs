//! The machine against the rules of SPC-5.

use proptest::prelude::*;

use lunette_gateway::Value;

use super::common::{Common, News};
use super::shared::{Decision, SharedReservations};
use super::*;
use crate::limits::{MAX_COMMON_CHANGES, MAX_COMMON_CHANGES_BYTES, MAX_REGISTRATIONS};
use crate::nexus::TargetPort;

const WE: ReservationType = ReservationType::WriteExclusive;
const EA: ReservationType = ReservationType::ExclusiveAccess;
const WERO: ReservationType = ReservationType::WriteExclusiveRegistrantsOnly;
const EARO: ReservationType = ReservationType::ExclusiveAccessRegistrantsOnly;
const WEAR: ReservationType = ReservationType::WriteExclusiveAllRegistrants;
const EAAR: ReservationType = ReservationType::ExclusiveAccessAllRegistrants;

fn nexus(number: u8) -> Arc<ItNexus> {
    let port = TargetPort { relative: u16::from(number % 2) + 1, name: format!("iqn.t,t,{}", number % 2).into() };
    Arc::new(ItNexus { initiator: format!("iqn.{},i,0x1", number / 2).into(), port })
}

fn register(key: Option<u64>, new_key: u64) -> ReservationRequest {
    ReservationRequest::Register { key, new_key, same: Vec::new(), others: Vec::new(), persist: false }
}

/// A machine that executes requests of nexuses 0, 1, ...
#[derive(Default)]
struct Unit(Reservations);

impl Unit {
    /// Nexus n is registered with key n + 1; nexus 0 holds the reservation.
    fn reserved(registered: u8, kind: ReservationType) -> Self {
        let mut unit = Self::default();
        for number in 0..registered {
            unit.run(number, &register(Some(0), u64::from(number) + 1)).unwrap();
        }
        unit.run(0, &ReservationRequest::Reserve { key: 1, kind }).unwrap();
        unit
    }

    fn run(&mut self, by: u8, request: &ReservationRequest) -> Result<ReservationChange, Refusal> {
        let mut change = self.0.select(&nexus(by), request)?;
        self.0.apply(&mut change);
        Ok(change)
    }

    fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<_> = self.0.registrations().map(|(_, key, _)| key).collect();
        keys.sort_unstable();
        keys
    }

    fn permits(&self, by: u8, rule: ReservationRule) -> bool {
        self.0.permits(&nexus(by), rule)
    }
}

fn told(change: &ReservationChange) -> Vec<(Arc<ItNexus>, AdditionalSense)> {
    let mut told = change.attentions.clone();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    told
}

/// SPC-5 table 70 and SBC-4 table 13, for a command of each column: what the holder, another registered nexus and one
/// that is not registered may do.
#[test]
fn reservation_types_permit_the_commands_of_the_table() {
    let (all, holder, registered, nobody_else) = ([true; 3], [true, false, false], [true, true, false], [true; 3]);
    for (kind, reading, writing) in [
        (WE, nobody_else, holder),
        (EA, holder, holder),
        (WERO, all, registered),
        (EARO, registered, registered),
        (WEAR, all, registered),
        (EAAR, registered, registered),
    ] {
        let unit = Unit::reserved(2, kind);
        let who = |rule| [0, 1, 2].map(|number| unit.permits(number, rule));
        assert_eq!(who(ReservationRule::PassesAll), all, "{kind:?}");
        assert_eq!(who(ReservationRule::Passes), all, "{kind:?}");
        assert_eq!(who(ReservationRule::PassesWriteExclusive), reading, "{kind:?}");
        assert_eq!(who(ReservationRule::Conflicts), writing, "{kind:?}");
    }
}

#[test]
fn registering_needs_the_key_that_is_registered() {
    let mut unit = Unit::default();
    assert_eq!(unit.run(0, &register(Some(7), 1)), Err(Refusal::Conflict));
    unit.run(0, &register(Some(0), 0)).unwrap();
    assert_eq!((unit.keys(), unit.0.generation()), (vec![], 0));
    unit.run(0, &register(Some(0), 1)).unwrap();
    assert_eq!(unit.run(0, &register(Some(0), 2)), Err(Refusal::Conflict));
    unit.run(0, &register(Some(1), 2)).unwrap();
    unit.run(0, &register(None, 3)).unwrap();
    assert_eq!((unit.keys(), unit.0.generation()), (vec![3], 3));
    unit.run(0, &register(Some(3), 0)).unwrap();
    assert_eq!((unit.keys(), unit.0.generation()), (vec![], 4));
}

#[test]
fn a_list_of_initiators_is_registered_as_a_whole_or_not_at_all() {
    let with = |others: &[u8]| ReservationRequest::Register {
        key: Some(0),
        new_key: 9,
        same: vec![nexus(1)],
        others: others.iter().map(|number| nexus(*number)).collect(),
        persist: false,
    };
    let mut unit = Unit::default();
    unit.run(0, &with(&[2, 3])).unwrap();
    assert_eq!(unit.keys(), [9; 4]);
    assert_eq!(unit.run(4, &with(&[5, 2])), Err(Refusal::Conflict));
    assert_eq!(unit.keys(), [9; 4]);
    let again =
        ReservationRequest::Register { key: Some(9), new_key: 8, same: vec![], others: vec![nexus(5)], persist: false };
    assert!(matches!(unit.run(0, &again), Err(Refusal::Check(_))));
}

#[test]
fn a_reservation_is_made_once_and_released_by_its_type() {
    let mut unit = Unit::reserved(2, WE);
    unit.run(0, &ReservationRequest::Reserve { key: 1, kind: WE }).unwrap();
    assert_eq!(unit.run(0, &ReservationRequest::Reserve { key: 1, kind: EA }), Err(Refusal::Conflict));
    assert_eq!(unit.run(1, &ReservationRequest::Reserve { key: 2, kind: WE }), Err(Refusal::Conflict));
    assert_eq!(unit.run(1, &ReservationRequest::Reserve { key: 1, kind: WE }), Err(Refusal::Conflict));
    unit.run(1, &ReservationRequest::Release { key: 2, kind: WE }).unwrap();
    assert!(unit.0.restricts(), "not released by one that does not hold it");
    let Err(Refusal::Check(sense)) = unit.run(0, &ReservationRequest::Release { key: 1, kind: EA }) else { panic!() };
    assert_eq!(sense.code, AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION);
    assert_eq!(told(&unit.run(0, &ReservationRequest::Release { key: 1, kind: WE }).unwrap()), []);
    assert!(!unit.0.restricts());
}

#[test]
fn the_end_of_a_shared_reservation_raises_attentions_for_registrants() {
    for kind in [WERO, EARO, WEAR, EAAR] {
        let mut unit = Unit::reserved(3, kind);
        let change = unit.run(0, &ReservationRequest::Release { key: 1, kind }).unwrap();
        let expected = [1, 2].map(|number| (nexus(number), AdditionalSense::RESERVATIONS_RELEASED));
        assert_eq!(told(&change), expected);
    }
    for (kind, released) in [(WE, false), (EA, false), (WERO, true), (EARO, true)] {
        let mut unit = Unit::reserved(2, kind);
        let change = unit.run(0, &register(Some(1), 0)).unwrap();
        assert!(!unit.0.restricts());
        assert_eq!(!change.attentions.is_empty(), released, "{kind:?}");
    }
}

#[test]
fn all_registrants_hold_it_until_the_last_goes() {
    let mut unit = Unit::reserved(2, EAAR);
    assert_eq!(unit.0.reservation(), Some((0, EAAR)));
    assert_eq!(unit.0.registrations().filter(|(_, _, holds)| *holds == Some(EAAR)).count(), 2);
    unit.run(1, &ReservationRequest::Reserve { key: 2, kind: EAAR }).unwrap();
    unit.run(0, &register(Some(1), 0)).unwrap();
    assert!(unit.0.restricts());
    unit.run(1, &register(Some(2), 0)).unwrap();
    assert!(!unit.0.restricts());
}

#[test]
fn clear_removes_everything_and_raises_attentions_for_others() {
    let mut unit = Unit::reserved(3, WE);
    assert_eq!(unit.run(1, &ReservationRequest::Clear { key: 1 }), Err(Refusal::Conflict));
    let change = unit.run(1, &ReservationRequest::Clear { key: 2 }).unwrap();
    let expected = [0, 2].map(|number| (nexus(number), AdditionalSense::RESERVATIONS_PREEMPTED));
    assert_eq!(told(&change), expected);
    assert!(unit.keys().is_empty() && !unit.0.restricts());
}

#[test]
fn preempting_the_holder_takes_the_reservation_over() {
    let mut unit = Unit::reserved(3, WERO);
    let change = unit.run(1, &ReservationRequest::Preempt { key: 2, victims_key: 1, kind: EA }).unwrap();
    assert_eq!(
        told(&change),
        [(nexus(0), AdditionalSense::REGISTRATIONS_PREEMPTED), (nexus(2), AdditionalSense::RESERVATIONS_RELEASED),]
    );
    assert_eq!(change.preempted, [nexus(0)]);
    assert_eq!((unit.keys(), unit.0.reservation()), (vec![2, 3], Some((2, EA))));
    assert!(!unit.permits(0, ReservationRule::Conflicts) && unit.permits(1, ReservationRule::Conflicts));
}

#[test]
fn preempting_another_removes_its_registration_alone() {
    let mut unit = Unit::reserved(3, WE);
    let change = unit.run(1, &ReservationRequest::Preempt { key: 2, victims_key: 3, kind: EA }).unwrap();
    assert_eq!(told(&change), [(nexus(2), AdditionalSense::REGISTRATIONS_PREEMPTED)]);
    assert_eq!((unit.keys(), unit.0.reservation()), (vec![1, 2], Some((1, WE))));
    assert_eq!(unit.run(1, &ReservationRequest::Preempt { key: 2, victims_key: 3, kind: EA }), Err(Refusal::Conflict));
    let zero = unit.run(1, &ReservationRequest::Preempt { key: 2, victims_key: 0, kind: EA });
    assert_eq!(zero, Err(ACTION_KEY_FIELD.into()));
}

#[test]
fn key_zero_preempts_all_registrants() {
    let mut unit = Unit::reserved(3, WEAR);
    let change = unit.run(1, &ReservationRequest::Preempt { key: 2, victims_key: 0, kind: WEAR }).unwrap();
    assert_eq!(change.preempted, [nexus(0), nexus(2)]);
    assert_eq!((unit.keys(), unit.0.reservation()), (vec![2], Some((0, WEAR))));
}

#[test]
fn the_holder_may_preempt_itself_and_keeps_its_registration() {
    let mut unit = Unit::reserved(1, WE);
    unit.run(0, &ReservationRequest::Preempt { key: 1, victims_key: 1, kind: EARO }).unwrap();
    assert_eq!((unit.keys(), unit.0.reservation()), (vec![1], Some((1, EARO))));
}

#[test]
fn a_move_makes_another_nexus_the_holder() {
    let to = |number, new_key, unregister| ReservationRequest::Move {
        key: 1,
        new_key,
        to: nexus(number),
        unregister,
        persist: false,
    };
    let mut unit = Unit::reserved(1, EA);
    assert_eq!(unit.run(1, &to(2, 5, false)), Err(Refusal::Conflict));
    assert_eq!(unit.run(0, &to(2, 0, false)), Err(ACTION_KEY_FIELD.into()));
    assert_eq!(unit.run(0, &to(0, 5, false)), Err(MOVE_TARGET_FIELD.into()));
    unit.run(0, &to(2, 5, false)).unwrap();
    assert_eq!((unit.keys(), unit.0.reservation()), (vec![1, 5], Some((5, EA))));
    assert_eq!(unit.run(0, &to(2, 5, false)), Err(Refusal::Conflict), "it holds it no more");
    let mut unit = Unit::reserved(1, EA);
    unit.run(0, &to(2, 5, true)).unwrap();
    assert_eq!(unit.keys(), [5]);
    let mut unit = Unit::reserved(1, EAAR);
    assert_eq!(unit.run(0, &to(2, 5, true)), Err(Refusal::Conflict));
}

#[test]
fn reserve_excludes_the_others_and_every_persistent_reservation() {
    let mut unit = Unit::default();
    unit.run(0, &ReservationRequest::LegacyReserve).unwrap();
    unit.run(0, &ReservationRequest::LegacyReserve).unwrap();
    assert_eq!(unit.run(1, &ReservationRequest::LegacyReserve), Err(Refusal::Conflict));
    assert!(unit.permits(1, ReservationRule::PassesAll) && !unit.permits(1, ReservationRule::Passes));
    assert!(unit.permits(0, ReservationRule::Conflicts));
    for number in [0, 1] {
        assert_eq!(unit.run(number, &register(Some(0), 1)), Err(Refusal::Conflict));
    }
    unit.0.nexus_lost(&nexus(1));
    assert!(unit.0.restricts());
    let mut lost = unit.0.clone();
    lost.nexus_lost(&nexus(0));
    unit.0.reset();
    assert!(!unit.0.restricts() && !lost.restricts());
}

#[test]
fn a_release_by_another_does_nothing_and_is_no_error() {
    let mut unit = Unit::default();
    unit.run(0, &ReservationRequest::LegacyReserve).unwrap();
    unit.run(1, &ReservationRequest::LegacyRelease).unwrap();
    assert!(unit.0.restricts());
    unit.run(0, &ReservationRequest::LegacyRelease).unwrap();
    assert!(!unit.0.restricts());
}

#[test]
fn registered_nexuses_reserve_without_effect_where_they_have_access() {
    let mut unit = Unit::reserved(2, WERO);
    for number in [0, 1] {
        unit.run(number, &ReservationRequest::LegacyReserve).unwrap();
        assert!(!unit.0.is_legacy());
    }
    assert_eq!(unit.run(2, &ReservationRequest::LegacyReserve), Err(Refusal::Conflict));
    let mut unit = Unit::default();
    unit.run(0, &register(Some(0), 1)).unwrap();
    assert_eq!(unit.run(0, &ReservationRequest::LegacyReserve), Err(Refusal::Conflict));
}

#[test]
fn registrations_are_bounded() {
    let mut unit = Unit::default();
    let others = (0..MAX_REGISTRATIONS).map(|number| {
        let port = TargetPort { relative: 1, name: "t".into() };
        Arc::new(ItNexus { initiator: format!("iqn.{number}").into(), port })
    });
    let request = ReservationRequest::Register {
        key: Some(0),
        new_key: 1,
        same: vec![],
        others: others.collect(),
        persist: false,
    };
    let Err(Refusal::Check(sense)) = unit.run(0, &request) else { panic!() };
    assert_eq!(sense.code, AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES);
}

fn any_kind() -> impl Strategy<Value = ReservationType> {
    proptest::sample::select(ReservationType::ALL.map(|(_, kind)| kind).to_vec())
}

fn any_request() -> impl Strategy<Value = ReservationRequest> {
    let key = 0..4u64;
    let few = proptest::collection::vec((0..6u8).prop_map(nexus), 0..2);
    prop_oneof![
        4 => (proptest::option::of(key.clone()), key.clone(), few.clone(), few, any::<bool>()).prop_map(
            |(key, new_key, same, others, persist)| ReservationRequest::Register { key, new_key, same, others, persist }
        ),
        3 => (key.clone(), any_kind()).prop_map(|(key, kind)| ReservationRequest::Reserve { key, kind }),
        2 => (key.clone(), any_kind()).prop_map(|(key, kind)| ReservationRequest::Release { key, kind }),
        1 => key.clone().prop_map(|key| ReservationRequest::Clear { key }),
        3 => (key.clone(), key.clone(), any_kind())
            .prop_map(|(key, victims_key, kind)| ReservationRequest::Preempt { key, victims_key, kind }),
        2 => (key.clone(), key, 0..6u8, any::<bool>(), any::<bool>()).prop_map(
            |(key, new_key, to, unregister, persist)| ReservationRequest::Move { key, new_key, to: nexus(to), unregister, persist }
        ),
        1 => Just(ReservationRequest::LegacyReserve),
        2 => Just(ReservationRequest::LegacyRelease),
    ]
}

proptest! {
    #[test]
    fn whatever_is_asked_the_rules_hold(requests in proptest::collection::vec((0..6u8, any_request()), 0..60)) {
        let mut unit = Unit::default();
        for (by, request) in requests {
            let before = unit.0.clone();
            let result = unit.run(by, &request);
            let after = &unit.0;
            let Ok(change) = result else {
                prop_assert_eq!(&before, after);
                continue;
            };
            // A reservation has a registered holder; registrations have keys.
            if let Some(reservation) = &after.persistent {
                prop_assert!(after.registrations().any(|(_, _, holds)| holds == Some(reservation.kind)));
                prop_assert_eq!(reservation.holder.is_none(), reservation.kind.all_registrants());
            }
            prop_assert!(after.registrations().all(|(_, key, _)| key != 0));
            prop_assert!(after.legacy.is_none() || after.registrations.is_empty());
            // PRGENERATION counts the requests that change registrations, and RESERVE and RELEASE do not.
            let changed = before.registrations != after.registrations;
            prop_assert!(!changed || after.generation == before.generation + 1);
            if matches!(request, ReservationRequest::Reserve { .. } | ReservationRequest::Release { .. }) {
                prop_assert_eq!(before.generation, after.generation);
            }
            // Unit attentions go to others that were registered.
            for (told, _) in &change.attentions {
                prop_assert!(**told != *nexus(by) && before.registrations.contains_key(told));
            }
            // A nexus whose registration was preempted by another has a unit attention.
            for victim in change.preempted.iter().filter(|victim| **victim != nexus(by)) {
                prop_assert!(change.attentions.contains(&(Arc::clone(victim), AdditionalSense::REGISTRATIONS_PREEMPTED)));
            }
        }
    }

    #[test]
    fn saved_reservations_round_trip(requests in proptest::collection::vec((0..6u8, any_request()), 0..40)) {
        let mut unit = Unit::default();
        for (by, request) in requests {
            let _ = unit.run(by, &request);
        }
        match saved::encode(&unit.0) {
            Some(bytes) => {
                let expected = Reservations { generation: 0, ..unit.0 };
                prop_assert_eq!(saved::decode(&bytes), Some(expected));
                prop_assert_eq!(saved::decode(&bytes[..bytes.len() - 1]), None);
            }
            None => prop_assert!(!unit.0.persist || unit.0.registrations.is_empty()),
        }
    }

    #[test]
    fn servers_that_have_them_in_common_agree_and_miss_nothing(
        requests in proptest::collection::vec((0..2usize, 0..6u8, any_request()), 0..=MAX_COMMON_CHANGES),
    ) {
        let mut value = Value { version: 1, members: [].into(), owner: None, wanted: None, entries: [].into() };
        let servers = [(); 2].map(|()| SharedReservations::open(None, "s", true).unwrap());
        let mut heard = [(); 2].map(|()| News::default());
        let hear = |at: usize, heard: &mut [News; 2], value: &Value| {
            let news = servers[at].publish(value).expect("a known entry");
            heard[at].attentions.extend(news.attentions);
            heard[at].aborted.extend(news.aborted);
        };
        (0..2).for_each(|at| hear(at, &mut heard, &value));
        let (mut alone, mut expected) = (Unit::default(), News::default());
        let is_persistent = |request: &ReservationRequest| {
            !matches!(request, ReservationRequest::LegacyReserve | ReservationRequest::LegacyRelease)
        };
        for (at, by, request) in requests.into_iter().filter(|(_, _, request)| is_persistent(request)) {
            // Only the server that decides has learnt what others have done.
            hear(at, &mut heard, &value);
            let decided = servers[at].decide(&nexus(by), &request, true);
            match alone.run(by, &request) {
                Ok(change) => {
                    let Ok(Decision { base, change: decided, entry }) = decided else { panic!("{request:?}") };
                    prop_assert_eq!(base, value.version);
                    prop_assert_eq!(&decided.next, &alone.0);
                    if let Some(entry) = entry {
                        value.version += 1;
                        value.entries.insert(common::NAME.into(), entry);
                    }
                    expected.attentions.extend(change.attentions);
                    expected.aborted.extend(change.preempted.into_iter().filter(|victim| *victim != nexus(by)));
                }
                Err(refusal) => prop_assert_eq!(decided.err(), Some(refusal)),
            }
        }
        for (at, server) in servers.iter().enumerate() {
            hear(at, &mut heard, &value);
            prop_assert_eq!(server.read(Reservations::clone), alone.0.clone());
            prop_assert_eq!(&heard[at], &expected);
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_no_bytes_panic(
        requests in proptest::collection::vec((0..6u8, any_request()), 0..40),
        any in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let _ = Common::decode(&any);
        let mut unit = Unit::default();
        let mut log = Common::forgotten_until(1).log;
        let mut version = 1;
        for (by, request) in requests {
            let Ok(change) = unit.0.select(&nexus(by), &request) else { continue };
            let after = log.after(version, &nexus(by), &change, true);
            unit.0 = Reservations { legacy: None, ..after.reservations.clone() };
            let after = Common { reservations: unit.0.clone(), ..after };
            let bytes = after.encode().bytes;
            let read = Common::decode(&bytes).expect("an entry");
            prop_assert_eq!(&read.reservations, &unit.0);
            // Those that are left out are older ones.
            let all = after.news_since(version, &Reservations::default());
            prop_assert_eq!(read.news_since(version, &Reservations::default()), all);
            prop_assert_eq!(Common::decode(&bytes[..bytes.len() - 1]), None);
            (log, version) = (read.log, version + 1);
        }
    }

    #[test]
    fn no_saved_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = saved::decode(&bytes);
    }
}

#[test]
fn changes_that_take_too_much_room_are_left_out() {
    let mut unit = Unit::default();
    let long = |number: usize| {
        let port = TargetPort { relative: 1, name: "iqn.t,t,0x0001".into() };
        Arc::new(ItNexus { initiator: format!("iqn.{}{number},i,0x1", "a".repeat(200)).into(), port })
    };
    let others = (0..MAX_REGISTRATIONS - 1).map(long).collect();
    let all = ReservationRequest::Register { key: None, new_key: 7, same: Vec::new(), others, persist: false };
    unit.run(0, &all).unwrap();
    let change = unit.0.select(&nexus(0), &ReservationRequest::Clear { key: 7 }).unwrap();
    let entry = Common::forgotten_until(1).log.after(8, &nexus(0), &change, false).encode();
    assert!(entry.bytes.len() < MAX_COMMON_CHANGES_BYTES);
    let read = Common::decode(&entry.bytes).unwrap();
    // Who has not seen it learns it from what is gone.
    let news = read.news_since(8, &unit.0);
    assert_eq!(news.attentions.len(), MAX_REGISTRATIONS);
    assert!(news.attentions.iter().all(|(_, code)| *code == AdditionalSense::REGISTRATIONS_PREEMPTED));
    assert_eq!(read.news_since(9, &unit.0), News::default());
}
