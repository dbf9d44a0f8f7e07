mod access;
mod service;
mod states;
mod store;

use zeroize::Zeroizing;

use super::engine::{Engine, Outcome};
use crate::kmip::{
    Attribute, AttributeValue, Kind, ManagedObject, ObjectType, Refusal, Request, Response, ResultReason, State,
    Version,
};

/// The time of the tests: noon.
const NOW: i64 = 1_767_268_800;

fn create() -> Request {
    Request::Create { object_type: ObjectType::SymmetricKey, attributes: aes(256, "key") }
}

fn aes(bits: i32, name: &str) -> Vec<Attribute> {
    vec![
        Attribute::new("Cryptographic Algorithm", AttributeValue::Enumeration(3)),
        Attribute::new("Cryptographic Length", AttributeValue::Integer(bits)),
        Attribute::new("Cryptographic Usage Mask", AttributeValue::Integer(12)),
        Attribute::named(name),
    ]
}

fn opaque() -> Request {
    let object = ManagedObject { kind: Kind::OpaqueData(1), material: Zeroizing::new(vec![1, 2, 3]) };
    Request::Register { attributes: vec![Attribute::named("opaque")], object }
}

/// An engine whose changes are in force at once.
#[derive(Default)]
struct Rules(Engine);

impl Rules {
    fn at(&mut self, now: i64, client: &str, request: Request) -> Result<Response, Refusal> {
        let Outcome { response, changed, forgotten } = self.0.handle(client, Version::one(4), request, None, now)?;
        self.0.apply(changed, forgotten.as_deref());
        Ok(response)
    }

    fn ask(&mut self, client: &str, request: Request) -> Result<Response, Refusal> {
        self.at(NOW, client, request)
    }

    /// Creates an object of alice.
    fn make(&mut self, request: Request) -> String {
        self.ask("alice", request).unwrap().id().unwrap().to_owned()
    }

    fn state(&mut self, now: i64, id: &str) -> Option<State> {
        let names = vec!["State".to_owned()];
        let request = Request::GetAttributes { id: Some(id.into()), names };
        let Ok(Response::Attributes { attributes, .. }) = self.at(now, "alice", request) else {
            panic!("no attributes")
        };
        attributes.first().map(|attribute| match attribute.value {
            AttributeValue::Enumeration(number) => State::from_number(number).unwrap(),
            _ => panic!("{attribute:?}"),
        })
    }

    fn located(&mut self, client: &str, attributes: Vec<Attribute>) -> Vec<String> {
        let request = Request::Locate { maximum_items: None, offset_items: None, attributes };
        match self.ask(client, request) {
            Ok(Response::Located { ids, .. }) => ids,
            other => panic!("{other:?}"),
        }
    }
}

fn reason(outcome: Result<Response, Refusal>) -> ResultReason {
    outcome.expect_err("this is refused").reason
}

fn get(id: &str) -> Request {
    Request::Get { id: Some(id.into()), format: None }
}

fn activate(id: &str) -> Request {
    Request::Activate { id: Some(id.into()) }
}

fn destroy(id: &str) -> Request {
    Request::Destroy { id: Some(id.into()) }
}
