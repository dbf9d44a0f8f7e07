//! Any bytes, read as TTLV and sent to a key server.

use lunette_keys::kmip::{
    Attribute, AttributeValue, BatchItem, ObjectType, Request, RequestMessage, ResponseMessage, RevocationCode, Version,
};
use lunette_keys::server::{AuditLog, Client, Engine, Keep, Object, Service};
use lunette_keys::ttlv;

use crate::input::Random;

/// A medium that keeps nothing and never fails.
struct Nowhere;

impl Keep for Nowhere {
    fn keep(&mut self, _: Option<&Object>, _: Option<&str>) -> Result<(), String> {
        Ok(())
    }
}

/// The target. What is read would be written with the same bytes; whatever comes in, a response message goes out.
pub fn run(data: &[u8]) {
    if let Ok(item) = ttlv::decode(data) {
        assert_eq!(ttlv::encode(&item), data);
        assert_eq!(ttlv::encoded_len(&item), data.len());
    }
    let mut service = Service::new(Engine::default(), Nowhere, AuditLog::to(std::io::sink()));
    let client = Client { name: "alice".into(), peer: "127.0.0.1:1".parse().expect("an address") };
    // The first message gives the second one objects to work on.
    let first = ttlv::encode(&batch(&[create()]).to_item());
    for message in [&first[..], data] {
        let answer = service.answer(&client, message, 1_767_268_800);
        let answer = ttlv::decode(&answer).expect("an answer is TTLV");
        let answer = ResponseMessage::from_item(answer).expect("an answer is a response message");
        assert!(!answer.answers.is_empty());
    }
}

fn create() -> Request {
    let attributes = vec![
        Attribute::new("Cryptographic Algorithm", AttributeValue::Enumeration(3)),
        Attribute::new("Cryptographic Length", AttributeValue::Integer(256)),
        Attribute::new("Cryptographic Usage Mask", AttributeValue::Integer(12)),
        Attribute::named("key"),
    ];
    Request::Create { object_type: ObjectType::SymmetricKey, attributes }
}

fn batch(requests: &[Request]) -> RequestMessage {
    let item = |request: &Request| BatchItem {
        operation: request.operation().number(),
        batch_id: Some(vec![1]),
        payload: request.to_payload(),
    };
    let items = requests.iter().map(item).collect();
    RequestMessage { version: Version::one(4), maximum_response_bytes: Some(4096), goes_on: true, items }
}

/// Requests on the object of the request before them.
fn requests() -> Vec<Request> {
    let text = |name: &str| Attribute::new(name, AttributeValue::Text("x".into()));
    vec![
        create(),
        Request::Activate { id: None },
        Request::Get { id: None, format: Some(1) },
        Request::GetAttributes { id: None, names: vec!["State".into()] },
        Request::AddAttribute { id: None, attribute: text("x-own") },
        Request::DeleteAttribute { id: None, name: "x-own".into(), index: None },
        Request::Revoke { id: None, code: RevocationCode::KeyCompromise, message: Some("m".into()), occurred: Some(1) },
        Request::Destroy { id: None },
        Request::Locate { maximum_items: Some(1), offset_items: Some(0), attributes: vec![Attribute::named("key")] },
        Request::Query { functions: vec![1, 2, 3] },
        Request::DiscoverVersions { versions: Version::SUPPORTED.to_vec() },
    ]
}

/// A batch of requests, disturbed.
pub fn random(random: &mut Random) -> Vec<u8> {
    let all = requests();
    let chosen: Vec<Request> = (0..=random.below(6)).map(|_| random.choose(&all).clone()).collect();
    let mut bytes = ttlv::encode(&batch(&chosen).to_item());
    random.disturb(&mut bytes);
    bytes
}

/// Each request alone, and all in one message.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let all = requests();
    let bytes = |requests: &[Request]| ttlv::encode(&batch(requests).to_item());
    let one = |request: &Request| {
        (request.operation().name().to_lowercase().replace(' ', "_"), bytes(std::slice::from_ref(request)))
    };
    all.iter().map(one).chain([("all".into(), bytes(&all))]).collect()
}
