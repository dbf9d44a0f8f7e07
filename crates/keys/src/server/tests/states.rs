//! The states of objects.

use proptest::prelude::*;

use super::*;
use crate::kmip::RevocationCode;

fn revoke(id: &str, code: RevocationCode) -> Request {
    Request::Revoke { id: Some(id.into()), code, message: None, occurred: None }
}

/// The table of KMIP 1.4, section 3.22: what each operation does in each state.
#[test]
fn operations_lead_from_state_to_state() {
    use ResultReason::{IllegalOperation, ItemNotFound, PermissionDenied};
    use State::{Active, Compromised, Deactivated, Destroyed, DestroyedCompromised, PreActive};
    type Step = fn(&str) -> Request;
    let to_end: Step = |id| revoke(id, RevocationCode::CessationOfOperation);
    let compromise: Step = |id| revoke(id, RevocationCode::KeyCompromise);
    let paths: [(State, &[Step]); 6] = [
        (PreActive, &[]),
        (Active, &[activate]),
        (Deactivated, &[activate, to_end]),
        (Compromised, &[compromise]),
        (Destroyed, &[destroy]),
        (DestroyedCompromised, &[compromise, destroy]),
    ];
    let table: [(State, [Result<State, ResultReason>; 4]); 6] = [
        // Activate, revoke, revoke as compromised, destroy.
        (PreActive, [Ok(Active), Err(IllegalOperation), Ok(Compromised), Ok(Destroyed)]),
        (Active, [Err(PermissionDenied), Ok(Deactivated), Ok(Compromised), Err(PermissionDenied)]),
        (Deactivated, [Err(PermissionDenied), Err(IllegalOperation), Ok(Compromised), Ok(Destroyed)]),
        (Compromised, [Err(PermissionDenied), Err(IllegalOperation), Ok(Compromised), Ok(DestroyedCompromised)]),
        (Destroyed, [Err(ItemNotFound), Err(IllegalOperation), Ok(DestroyedCompromised), Err(ItemNotFound)]),
        (DestroyedCompromised, [Err(ItemNotFound), Err(IllegalOperation), Ok(DestroyedCompromised), Err(ItemNotFound)]),
    ];
    for ((state, path), (row, outcomes)) in paths.into_iter().zip(table) {
        assert_eq!(state, row);
        for (step, expected) in [activate as Step, to_end, compromise, destroy].into_iter().zip(outcomes) {
            let mut rules = Rules::default();
            let id = rules.make(create());
            for before in path {
                rules.ask("alice", before(&id)).unwrap();
            }
            assert_eq!(rules.state(NOW, &id), Some(state));
            let outcome = rules.ask("alice", step(&id));
            let outcome = outcome.map_err(|refusal| refusal.reason).map(|_| rules.state(NOW, &id).unwrap());
            assert_eq!(outcome, expected, "{state}");
            if expected.is_err() {
                assert_eq!(rules.state(NOW, &id), Some(state));
            }
        }
    }
}

#[test]
fn a_key_is_given_until_it_is_destroyed() {
    let mut rules = Rules::default();
    let id = rules.make(create());
    let material = |rules: &mut Rules| match rules.ask("alice", get(&id)) {
        Ok(Response::Object { object, .. }) => object.material,
        other => panic!("{other:?}"),
    };
    let first = material(&mut rules);
    assert_eq!(first.len(), 32);
    for step in [activate(&id), revoke(&id, RevocationCode::Superseded), revoke(&id, RevocationCode::KeyCompromise)] {
        rules.ask("alice", step).unwrap();
        assert_eq!(material(&mut rules), first);
    }
    rules.ask("alice", destroy(&id)).unwrap();
    assert_eq!(reason(rules.ask("alice", get(&id))), ResultReason::ItemNotFound);
}

#[test]
fn dates_activate_and_deactivate() {
    let mut rules = Rules::default();
    let mut attributes = aes(128, "key");
    attributes.push(Attribute::new("Activation Date", AttributeValue::Date(NOW + 10)));
    attributes.push(Attribute::new("Deactivation Date", AttributeValue::Date(NOW + 20)));
    let id = rules.make(Request::Create { object_type: ObjectType::SymmetricKey, attributes });
    let states = [(0, State::PreActive), (9, State::PreActive), (10, State::Active), (20, State::Deactivated)];
    for (after, state) in states {
        assert_eq!(rules.state(NOW + after, &id), Some(state), "{after} s");
    }
    assert_eq!(reason(rules.at(NOW + 15, "alice", destroy(&id))), ResultReason::PermissionDenied);
    rules.at(NOW + 25, "alice", destroy(&id)).unwrap();
}

#[test]
fn opaque_objects_have_no_state_and_can_be_destroyed() {
    let mut rules = Rules::default();
    let id = rules.make(opaque());
    assert_eq!(rules.state(NOW, &id), None);
    assert_eq!(reason(rules.ask("alice", activate(&id))), ResultReason::IllegalOperation);
    assert_eq!(reason(rules.ask("alice", revoke(&id, RevocationCode::KeyCompromise))), ResultReason::IllegalOperation);
    rules.ask("alice", destroy(&id)).unwrap();
    assert_eq!(rules.state(NOW, &id), Some(State::Destroyed));
}

#[test]
fn a_revocation_is_told_with_its_dates() {
    let mut rules = Rules::default();
    let id = rules.make(create());
    let request = Request::Revoke {
        id: Some(id.clone()),
        code: RevocationCode::KeyCompromise,
        message: Some("laptop stolen".into()),
        occurred: Some(NOW - 100),
    };
    rules.ask("alice", request).unwrap();
    let all = Request::GetAttributes { id: Some(id), names: Vec::new() };
    let Ok(Response::Attributes { attributes, .. }) = rules.ask("alice", all) else { panic!() };
    let value =
        |name: &str| attributes.iter().find(|attribute| attribute.name == name).map(|found| found.value.clone());
    assert_eq!(value("Compromise Date"), Some(AttributeValue::Date(NOW)));
    assert_eq!(value("Compromise Occurrence Date"), Some(AttributeValue::Date(NOW - 100)));
    let revocation = AttributeValue::Revocation(RevocationCode::KeyCompromise, Some("laptop stolen".into()));
    assert_eq!(value("Revocation Reason"), Some(revocation));
}

proptest! {
    /// Whatever happens, a destroyed object has no secret, and a secret once gone never comes back.
    #[test]
    fn no_history_brings_a_destroyed_key_back(steps in proptest::collection::vec((0..5u8, 0..30i64), 1..12)) {
        let mut rules = Rules::default();
        let id = rules.make(create());
        let mut now = NOW;
        for (step, later) in steps {
            now += later;
            let was_destroyed = rules.state(now, &id).unwrap().is_destroyed();
            // Refusals are part of the history.
            let _ = match step {
                0 => rules.at(now, "alice", activate(&id)),
                1 => rules.at(now, "alice", revoke(&id, RevocationCode::Superseded)),
                2 => rules.at(now, "alice", revoke(&id, RevocationCode::KeyCompromise)),
                3 => rules.at(now, "alice", destroy(&id)),
                _ => rules.at(now, "bob", destroy(&id)),
            };
            let is_destroyed = rules.state(now, &id).unwrap().is_destroyed();
            prop_assert!(is_destroyed || !was_destroyed);
            prop_assert_eq!(rules.at(now, "alice", get(&id)).is_err(), is_destroyed);
        }
    }
}
