use proptest::prelude::*;
use zeroize::Zeroizing;

use super::limits::MAX_BATCH_ITEMS;
use super::*;
use crate::ttlv::{self, Item, Tag, Value};

fn key() -> ManagedObject {
    let kind = Kind::SymmetricKey { algorithm: Some(3), bits: Some(128) };
    ManagedObject { kind, material: Zeroizing::new(vec![7; 16]) }
}

fn some_attributes() -> Vec<Attribute> {
    vec![
        Attribute::named("n"),
        Attribute::state(State::Active),
        Attribute::object_type(ObjectType::SymmetricKey),
        Attribute::new("Cryptographic Length", AttributeValue::Integer(128)),
        Attribute::new("Initial Date", AttributeValue::Date(1 << 40)),
        Attribute::new("Object Group", AttributeValue::Text("g".into())),
        Attribute::new("x-own", AttributeValue::Text("\u{fc}".into())),
        Attribute::new("Revocation Reason", AttributeValue::Revocation(RevocationCode::Superseded, Some("m".into()))),
    ]
}

fn requests() -> Vec<Request> {
    let id = || Some("1f0c".to_owned());
    let opaque = ManagedObject { kind: Kind::OpaqueData(0x8000_0000), material: Zeroizing::new(vec![1]) };
    let secret = ManagedObject { kind: Kind::SecretData(1), material: Zeroizing::new(b"password".to_vec()) };
    vec![
        Request::Create { object_type: ObjectType::SymmetricKey, attributes: some_attributes() },
        Request::Register { attributes: some_attributes(), object: key() },
        Request::Register { attributes: Vec::new(), object: opaque },
        Request::Register { attributes: Vec::new(), object: secret },
        Request::Locate { maximum_items: Some(3), offset_items: Some(0), attributes: some_attributes() },
        Request::Locate { maximum_items: None, offset_items: None, attributes: Vec::new() },
        Request::Get { id: id(), format: Some(1) },
        Request::Get { id: None, format: None },
        Request::GetAttributes { id: id(), names: vec!["State".into(), "Name".into()] },
        Request::AddAttribute { id: id(), attribute: some_attributes().remove(6) },
        Request::DeleteAttribute { id: id(), name: "x-own".into(), index: Some(2) },
        Request::Activate { id: id() },
        Request::Revoke { id: id(), code: RevocationCode::KeyCompromise, message: Some("m".into()), occurred: Some(5) },
        Request::Revoke { id: None, code: RevocationCode::Unspecified, message: None, occurred: None },
        Request::Destroy { id: id() },
        Request::Query { functions: vec![1, 2, 3, 99] },
        Request::DiscoverVersions { versions: Version::SUPPORTED.to_vec() },
    ]
}

fn responses() -> Vec<Response> {
    let id = || "1f0c".to_owned();
    let done = |operation| Response::Done { operation, id: id() };
    vec![
        Response::Created { object_type: ObjectType::SymmetricKey, id: id() },
        done(Operation::Register),
        done(Operation::Activate),
        done(Operation::Revoke),
        done(Operation::Destroy),
        Response::Located { located_items: Some(2), ids: vec![id(), "2".into()] },
        Response::Located { located_items: None, ids: Vec::new() },
        Response::Object { id: id(), object: key() },
        Response::Attributes { id: id(), attributes: some_attributes() },
        Response::Attribute { operation: Operation::AddAttribute, id: id(), attribute: some_attributes().remove(6) },
        Response::Query { operations: vec![1, 3], object_types: vec![2], vendor: Some("v".into()) },
        Response::Versions(Version::SUPPORTED.to_vec()),
    ]
}

fn operation(response: &Response) -> Operation {
    match response {
        Response::Created { .. } => Operation::Create,
        Response::Done { operation, .. } | Response::Attribute { operation, .. } => *operation,
        Response::Located { .. } => Operation::Locate,
        Response::Object { .. } => Operation::Get,
        Response::Attributes { .. } => Operation::GetAttributes,
        Response::Query { .. } => Operation::Query,
        Response::Versions(_) => Operation::DiscoverVersions,
    }
}

fn over_the_wire(item: &Item) -> Item {
    ttlv::decode(&ttlv::encode(item)).unwrap()
}

fn message(version: Version, requests: &[Request]) -> RequestMessage {
    let item = |request: &Request| BatchItem {
        operation: request.operation().number(),
        batch_id: Some(vec![1, 2]),
        payload: request.to_payload(),
    };
    RequestMessage {
        version,
        maximum_response_bytes: Some(4096),
        goes_on: true,
        items: requests.iter().map(item).collect(),
    }
}

#[test]
fn every_request_is_read_as_it_was_written() {
    for request in requests() {
        let payload = over_the_wire(&request.to_payload());
        assert_eq!(Request::from_payload(request.operation(), payload), Ok(request));
    }
}

#[test]
fn every_response_is_read_as_it_was_written() {
    for response in responses() {
        let payload = over_the_wire(&response.to_payload());
        assert_eq!(Response::from_payload(operation(&response), payload), Ok(response));
    }
}

#[test]
fn messages_are_read_as_they_were_written() {
    let request = message(Version::one(2), &requests()[..MAX_BATCH_ITEMS]);
    assert_eq!(RequestMessage::from_item(over_the_wire(&request.to_item())), Ok(request));
    let refusal = Refusal::new(ResultReason::ItemNotFound, "no");
    let answers = vec![
        Answer { operation: Some(10), batch_id: Some(vec![9]), outcome: Ok(responses().remove(7).to_payload()) },
        Answer { operation: Some(20), batch_id: None, outcome: Err(refusal.clone()) },
    ];
    let response = ResponseMessage { version: Version::one(4), time: 77, answers };
    assert_eq!(ResponseMessage::from_item(over_the_wire(&response.to_item())), Ok(response));
    let refused = ResponseMessage::refusal(Version::one(4), 0, refusal);
    assert_eq!(ResponseMessage::from_item(over_the_wire(&refused.to_item())), Ok(refused));
}

fn reason(outcome: Result<impl Sized, Refusal>) -> ResultReason {
    outcome.err().expect("this is refused").reason
}

#[test]
fn a_field_that_is_not_supported_is_refused_by_its_name() {
    for request in requests() {
        let mut payload = request.to_payload();
        let Value::Structure(fields) = &mut payload.value else { unreachable!() };
        fields.push(Item::structure(Tag::KEY_WRAPPING_SPECIFICATION, Vec::new()));
        let refusal = Request::from_payload(request.operation(), payload).unwrap_err();
        assert_eq!(refusal.reason, ResultReason::FeatureNotSupported);
        assert!(refusal.message.contains("KEY_WRAPPING_SPECIFICATION"), "{refusal}");
    }
}

#[test]
fn fields_that_are_missing_or_have_the_wrong_type_are_refused() {
    let payload = |fields| Item::structure(Tag::REQUEST_PAYLOAD, fields);
    let number = Item::integer(Tag::UNIQUE_IDENTIFIER, 1);
    assert_eq!(reason(Request::from_payload(Operation::Get, payload(vec![number]))), ResultReason::InvalidField);
    assert_eq!(reason(Request::from_payload(Operation::Create, payload(vec![]))), ResultReason::MissingData);
    assert_eq!(reason(Request::from_payload(Operation::Revoke, payload(vec![]))), ResultReason::MissingData);
    let certificate = Item::enumeration(Tag::OBJECT_TYPE, 1);
    let create = payload(vec![certificate, Item::structure(Tag::TEMPLATE_ATTRIBUTE, vec![])]);
    assert_eq!(reason(Request::from_payload(Operation::Create, create)), ResultReason::InvalidField);
    let text = Item::text(Tag::REQUEST_PAYLOAD, "");
    assert_eq!(reason(Request::from_payload(Operation::Get, text)), ResultReason::InvalidField);
    let long = Item::text(Tag::UNIQUE_IDENTIFIER, "x".repeat(257));
    assert_eq!(reason(Request::from_payload(Operation::Get, payload(vec![long]))), ResultReason::InvalidField);
    let wrong = Item::integer(Tag::MAXIMUM_ITEMS, -1);
    assert_eq!(reason(Request::from_payload(Operation::Locate, payload(vec![wrong]))), ResultReason::InvalidField);
    let archive = Item::integer(Tag::STORAGE_STATUS_MASK, 2);
    let refused = Request::from_payload(Operation::Locate, payload(vec![archive]));
    assert_eq!(reason(refused), ResultReason::FeatureNotSupported);
}

#[test]
fn attributes_that_are_not_known_are_refused() {
    let attribute = Attribute::new("Link", AttributeValue::Text("1".into()));
    let request = Request::Locate { maximum_items: None, offset_items: None, attributes: vec![attribute] };
    let refusal = Request::from_payload(Operation::Locate, request.to_payload()).unwrap_err();
    assert!(refusal.message.contains("Link"), "{refusal}");
}

#[test]
fn keys_whose_length_or_format_is_not_theirs_are_refused() {
    let register = |object: ManagedObject| Request::Register { attributes: Vec::new(), object }.to_payload();
    let wrong = ManagedObject { kind: Kind::SymmetricKey { algorithm: Some(3), bits: Some(256) }, ..key() };
    assert_eq!(reason(Request::from_payload(Operation::Register, register(wrong))), ResultReason::InvalidField);
    let empty = ManagedObject { material: Zeroizing::default(), ..key() };
    assert_eq!(reason(Request::from_payload(Operation::Register, register(empty))), ResultReason::InvalidField);
    let long = ManagedObject { kind: Kind::OpaqueData(1), material: Zeroizing::new(vec![0; (16 << 10) + 1]) };
    assert_eq!(reason(Request::from_payload(Operation::Register, register(long))), ResultReason::InvalidField);
}

#[test]
fn a_message_says_how_many_requests_it_has() {
    let request = message(Version::one(4), &requests()[..2]);
    let mut item = request.to_item();
    let Value::Structure(fields) = &mut item.value else { unreachable!() };
    fields.pop();
    assert_eq!(reason(RequestMessage::from_item(item.clone())), ResultReason::InvalidMessage);
    let too_many: Vec<_> = (0..=MAX_BATCH_ITEMS).map(|_| Request::Query { functions: vec![] }).collect();
    assert!(RequestMessage::from_item(message(Version::one(4), &too_many).to_item()).is_err());
    let none = message(Version::one(4), &[]).to_item();
    assert_eq!(reason(RequestMessage::from_item(none)), ResultReason::InvalidMessage);
    let response = ResponseMessage { version: Version::one(4), time: 0, answers: Vec::new() };
    assert_eq!(reason(RequestMessage::from_item(response.to_item())), ResultReason::InvalidMessage);
}

#[test]
fn undo_asynchronous_answers_and_critical_extensions_are_refused() {
    let with_header = |field: Item| {
        let mut item = message(Version::one(4), &requests()[..1]).to_item();
        let Value::Structure(fields) = &mut item.value else { unreachable!() };
        let Value::Structure(header) = &mut fields[0].value else { unreachable!() };
        header.retain(|item| item.tag != field.tag);
        header.push(field);
        RequestMessage::from_item(item)
    };
    let asynchronous = |value| Item::new(Tag::ASYNCHRONOUS_INDICATOR, Value::Boolean(value));
    assert_eq!(reason(with_header(asynchronous(true))), ResultReason::FeatureNotSupported);
    assert!(with_header(asynchronous(false)).is_ok());
    let option = |value| Item::enumeration(Tag::BATCH_ERROR_CONTINUATION_OPTION, value);
    assert_eq!(reason(with_header(option(3))), ResultReason::FeatureNotSupported);
    assert!(!with_header(option(2)).unwrap().goes_on);
    assert!(with_header(Item::text(Tag::CLIENT_CORRELATION_VALUE, "c")).is_ok());
    assert!(with_header(Item::structure(Tag::AUTHENTICATION, vec![])).is_ok());
    assert_eq!(reason(with_header(Item::integer(Tag::STATE, 1))), ResultReason::FeatureNotSupported);
}

#[test]
fn no_key_is_shown_by_debug() {
    let shown = format!("{:?}", Request::Register { attributes: Vec::new(), object: key() });
    assert!(!shown.contains("7, 7"), "{shown}");
}

proptest! {
    #[test]
    fn a_damaged_message_is_refused_or_read(at in any::<proptest::sample::Index>(), with in any::<u8>(), which in 0..17usize) {
        let request = requests().remove(which);
        let mut bytes = ttlv::encode(&message(Version::one(4), &[request]).to_item());
        let at = at.index(bytes.len());
        bytes[at] = with;
        let Some(message) = ttlv::decode(&bytes).ok().and_then(|item| RequestMessage::from_item(item).ok()) else {
            return Ok(());
        };
        for item in message.items {
            let Some(operation) = Operation::from_number(item.operation) else { continue };
            if let Ok(request) = Request::from_payload(operation, item.payload) {
                let again = Request::from_payload(operation, request.to_payload());
                prop_assert_eq!(again, Ok(request));
            }
        }
    }
}
