//! Tests of the rights of clients, and of searches and refusals.

use super::*;
use crate::kmip::{Operation, QueryFunction};
use crate::server::USER_ATTRIBUTE;
use crate::server::limits::{MAX_OWNER_OBJECTS, MAX_USERS};

fn user(name: &str) -> Attribute {
    Attribute::new(USER_ATTRIBUTE, AttributeValue::Text(name.into()))
}

fn add(id: &str, attribute: Attribute) -> Request {
    Request::AddAttribute { id: Some(id.into()), attribute }
}

#[test]
fn an_object_does_not_exist_for_others() {
    let mut rules = Rules::default();
    let id = rules.make(create());
    let attributes = Request::GetAttributes { id: Some(id.clone()), names: Vec::new() };
    for request in [get(&id), attributes, activate(&id), destroy(&id), add(&id, user("bob"))] {
        assert_eq!(reason(rules.ask("bob", request.clone())), ResultReason::ItemNotFound, "{request:?}");
    }
    assert!(rules.located("bob", Vec::new()).is_empty());
    assert_eq!(rules.located("alice", Vec::new()), [id]);
}

#[test]
fn users_read_and_do_not_change_until_they_are_removed() {
    let mut rules = Rules::default();
    let id = rules.make(create());
    rules.ask("alice", add(&id, user("bob"))).unwrap();
    assert!(rules.ask("bob", get(&id)).is_ok());
    assert_eq!(rules.located("bob", Vec::new()), std::slice::from_ref(&id));
    for request in [activate(&id), destroy(&id), add(&id, user("eve"))] {
        assert_eq!(reason(rules.ask("bob", request)), ResultReason::PermissionDenied);
    }
    let remove = |index| Request::DeleteAttribute { id: Some(id.clone()), name: USER_ATTRIBUTE.into(), index };
    assert_eq!(reason(rules.ask("alice", remove(Some(1)))), ResultReason::ItemNotFound);
    rules.ask("alice", remove(None)).unwrap();
    assert_eq!(reason(rules.ask("bob", get(&id))), ResultReason::ItemNotFound);
}

#[test]
fn users_and_attributes_are_bounded() {
    let mut rules = Rules::default();
    let id = rules.make(create());
    for number in 0..MAX_USERS {
        rules.ask("alice", add(&id, user(&format!("user-{number}")))).unwrap();
    }
    assert_eq!(reason(rules.ask("alice", add(&id, user("one-more")))), ResultReason::InvalidField);
    let own = |number: usize| Attribute::new("x-own", AttributeValue::Text(number.to_string()));
    let refused = (0..100).find(|number| rules.ask("alice", add(&id, own(*number))).is_err());
    assert_eq!(refused, Some(63), "the name is the sixty-fourth");
}

#[test]
fn what_the_server_alone_sets_is_refused() {
    let forbidden = [
        Attribute::state(State::Active),
        Attribute::new("Unique Identifier", AttributeValue::Text("1".into())),
        Attribute::new("Initial Date", AttributeValue::Date(0)),
        Attribute::new("Destroy Date", AttributeValue::Date(0)),
        Attribute::new("Operation Policy Name", AttributeValue::Text("public".into())),
        Attribute::object_type(ObjectType::OpaqueData),
        Attribute::named("key"),
    ];
    for attribute in forbidden {
        let mut rules = Rules::default();
        let mut attributes = aes(256, "key");
        attributes.push(attribute.clone());
        let request = Request::Create { object_type: ObjectType::SymmetricKey, attributes };
        assert_eq!(reason(rules.ask("alice", request)), ResultReason::InvalidField, "{attribute:?}");
    }
}

#[test]
fn keys_are_created_for_known_algorithms_and_lengths() {
    let mut rules = Rules::default();
    for bits in [128, 192, 256] {
        let id = rules.make(Request::Create { object_type: ObjectType::SymmetricKey, attributes: aes(bits, "k") });
        let Ok(Response::Object { object, .. }) = rules.ask("alice", get(&id)) else { panic!() };
        assert_eq!(usize::try_from(bits), Ok(object.material.len() * 8));
        assert_eq!(object.kind, Kind::SymmetricKey { algorithm: Some(3), bits: Some(bits) });
    }
    for bits in [0, -8, 64, 129, i32::MAX] {
        let request = Request::Create { object_type: ObjectType::SymmetricKey, attributes: aes(bits, "k") };
        assert_eq!(reason(rules.ask("alice", request)), ResultReason::InvalidField, "{bits}");
    }
    for missing in 0..3 {
        let mut attributes = aes(256, "k");
        attributes.remove(missing);
        let request = Request::Create { object_type: ObjectType::SymmetricKey, attributes };
        assert_eq!(reason(rules.ask("alice", request)), ResultReason::InvalidField, "{missing}");
    }
    let request = Request::Create { object_type: ObjectType::SecretData, attributes: aes(256, "k") };
    assert_eq!(reason(rules.ask("alice", request)), ResultReason::InvalidField);
}

#[test]
fn objects_are_found_by_each_of_their_attributes() {
    let mut rules = Rules::default();
    let first = rules.make(create());
    let second = rules.at(NOW + 5, "alice", opaque()).unwrap().id().unwrap().to_owned();
    rules.ask("alice", activate(&first)).unwrap();
    let date = |date| Attribute::new("Initial Date", AttributeValue::Date(date));
    let group = Attribute::new("Object Group", AttributeValue::Text("g".into()));
    let cases: Vec<(Vec<Attribute>, Vec<&String>)> = vec![
        (vec![], vec![&second, &first]),
        (vec![Attribute::named("key")], vec![&first]),
        (vec![Attribute::named("other")], vec![]),
        (vec![Attribute::object_type(ObjectType::OpaqueData)], vec![&second]),
        (vec![Attribute::state(State::Active)], vec![&first]),
        (vec![Attribute::state(State::PreActive)], vec![]),
        (vec![date(NOW)], vec![&first]),
        (vec![date(NOW), date(NOW + 5)], vec![&second, &first]),
        (vec![date(NOW + 1), date(NOW + 9)], vec![&second]),
        (vec![Attribute::named("key"), Attribute::state(State::Deactivated)], vec![]),
        (vec![group], vec![]),
    ];
    for (attributes, expected) in cases {
        let found = rules.located("alice", attributes.clone());
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{attributes:?}");
    }
    let page = Request::Locate { maximum_items: Some(1), offset_items: Some(1), attributes: Vec::new() };
    let expected = Response::Located { located_items: Some(2), ids: vec![first.clone()] };
    assert_eq!(rules.ask("alice", page), Ok(expected));
    rules.ask("alice", destroy(&second)).unwrap();
    assert_eq!(rules.located("alice", Vec::new()), [first]);
    assert_eq!(rules.located("alice", vec![Attribute::state(State::Destroyed)]), [second]);
}

#[test]
fn other_formats_than_the_kept_one_are_refused() {
    let mut rules = Rules::default();
    let (key, opaque) = (rules.make(create()), rules.make(opaque()));
    let mut formatted =
        |id: &str, format| rules.ask("alice", Request::Get { id: Some(id.into()), format: Some(format) });
    assert!(formatted(&key, 1).is_ok());
    for (id, format) in [(&key, 2), (&key, 7), (&key, 99), (&opaque, 1)] {
        assert_eq!(reason(formatted(id, format)), ResultReason::KeyFormatTypeNotSupported);
    }
}

#[test]
fn the_oldest_destroyed_object_makes_room() {
    let mut rules = Rules::default();
    let first = rules.make(opaque());
    let second = rules.make(opaque());
    for _ in 2..MAX_OWNER_OBJECTS {
        rules.make(opaque());
    }
    assert_eq!(reason(rules.ask("alice", opaque())), ResultReason::GeneralFailure);
    assert!(rules.ask("bob", opaque()).is_ok(), "the bound is one for each owner");
    rules.at(NOW + 2, "alice", destroy(&first)).unwrap();
    rules.at(NOW + 1, "alice", destroy(&second)).unwrap();
    rules.make(opaque());
    assert_eq!(
        rules.located("alice", vec![Attribute::new("Destroy Date", AttributeValue::Date(NOW + 2))]),
        Vec::<String>::new()
    );
    assert_eq!(rules.located("alice", vec![Attribute::state(State::Destroyed)]), [first]);
}

#[test]
fn query_and_versions_tell_what_is_asked() {
    let mut rules = Rules::default();
    let query =
        |functions: &[QueryFunction]| Request::Query { functions: functions.iter().map(|f| f.number()).collect() };
    let Ok(Response::Query { operations, object_types, vendor }) =
        rules.ask("bob", query(&[QueryFunction::Operations]))
    else {
        panic!()
    };
    assert_eq!(operations.len(), Operation::ALL.len());
    assert!(object_types.is_empty() && vendor.is_none());
    let versions = |asked: Vec<Version>| Request::DiscoverVersions { versions: asked };
    let all = Response::Versions(Version::SUPPORTED.to_vec());
    assert_eq!(rules.ask("bob", versions(Vec::new())), Ok(all));
    let some = versions(vec![Version { major: 2, minor: 0 }, Version::one(1), Version::one(3)]);
    assert_eq!(rules.ask("bob", some), Ok(Response::Versions(vec![Version::one(3), Version::one(1)])));
    let old = rules.0.handle("bob", Version::one(0), versions(Vec::new()), None, NOW);
    assert_eq!(reason(old.map(|outcome| outcome.response)), ResultReason::OperationNotSupported);
}
