//! The rules of the key server, without I/O: what each client may do with each object.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::limits::{MAX_LOCATED, MAX_OBJECTS, MAX_OWNER_OBJECTS};
use super::object::Object;
use crate::hex;
use crate::kmip::{
    Attribute, AttributeValue, KeyFormat, Kind, ManagedObject, ObjectType, Operation, QueryFunction, Refusal, Request,
    Response, ResultReason, Version,
};
use crate::secret::random;

/// The algorithms whose keys Create draws, with their lengths in bits: AES, ChaCha20 and the HMACs.
const ALGORITHMS: [(u32, &[i32]); 5] =
    [(0x3, &[128, 192, 256]), (0x9, &[256]), (0xa, &[384]), (0xb, &[512]), (0x1c, &[256])];

/// The objects, and the rules for them. Nothing is kept: each change is handed out as [`Outcome::changed`] before it is
/// in force.
#[derive(Default)]
pub struct Engine {
    objects: BTreeMap<String, Object>,
}

/// The consequences of a request. The change is in force when it was given to [`Engine::apply`].
pub struct Outcome {
    /// The answer.
    pub response: Response,
    /// The object to be kept.
    pub changed: Option<Object>,
    /// The object to be forgotten: a destroyed one that makes room.
    pub forgotten: Option<String>,
}

impl From<Response> for Outcome {
    fn from(response: Response) -> Self {
        Self { response, changed: None, forgotten: None }
    }
}

/// The right of a client to an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    /// The right of the users and of the owner.
    Use,
    /// The right of the owner alone.
    Own,
}

impl Engine {
    /// The objects that were kept.
    pub fn new(objects: impl IntoIterator<Item = Object>) -> Self {
        Self { objects: objects.into_iter().map(|object| (object.id.clone(), object)).collect() }
    }

    /// The number of objects, destroyed ones included.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Puts a change that was kept in force.
    pub fn apply(&mut self, changed: Option<Object>, forgotten: Option<&str>) {
        if let Some(id) = forgotten {
            self.objects.remove(id);
        }
        if let Some(object) = changed {
            self.objects.insert(object.id.clone(), object);
        }
    }

    /// Decides about a request of `client`, which is the name in its certificate. `placeholder` is the object of the
    /// request before it in the same message. `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// The refusal, with KMIP's reason.
    pub fn handle(
        &self,
        client: &str,
        version: Version,
        request: Request,
        placeholder: Option<&str>,
        now: i64,
    ) -> Result<Outcome, Refusal> {
        let operation = request.operation();
        let id = |id: Option<String>| {
            id.or_else(|| placeholder.map(Into::into))
                .ok_or_else(|| Refusal::new(ResultReason::MissingData, "the request names no object"))
        };
        match request {
            Request::Create { object_type, attributes } => self.create(client, object_type, attributes, now),
            Request::Register { attributes, object } => self.keep(client, object, attributes, now),
            Request::Locate { maximum_items, offset_items, attributes } => {
                Ok(self.locate(client, version, maximum_items, offset_items, &attributes, now).into())
            }
            Request::Get { id: given, format } => self.get(client, &id(given)?, format),
            Request::GetAttributes { id: given, names } => {
                let object = self.find(client, &id(given)?, Right::Use)?;
                let mut attributes = object.attributes(now);
                if !names.is_empty() {
                    attributes.retain(|attribute| names.contains(&attribute.name));
                }
                Ok(Response::Attributes { id: object.id.clone(), attributes }.into())
            }
            Request::AddAttribute { id: given, attribute } => {
                let mut object = self.find(client, &id(given)?, Right::Own)?.clone();
                object.add(attribute.clone())?;
                object.last_change_date = now;
                let response = Response::Attribute { operation, id: object.id.clone(), attribute };
                Ok(Outcome { response, changed: Some(object), forgotten: None })
            }
            Request::DeleteAttribute { id: given, name, index } => {
                let mut object = self.find(client, &id(given)?, Right::Own)?.clone();
                let attribute = object.delete(&name, index)?;
                object.last_change_date = now;
                let response = Response::Attribute { operation, id: object.id.clone(), attribute };
                Ok(Outcome { response, changed: Some(object), forgotten: None })
            }
            Request::Activate { id: given } => {
                self.change(client, &id(given)?, operation, |object| object.activate(now))
            }
            Request::Revoke { id: given, code, message, occurred } => {
                self.change(client, &id(given)?, operation, |object| object.revoke(code, message, occurred, now))
            }
            Request::Destroy { id: given } => self.change(client, &id(given)?, operation, |object| object.destroy(now)),
            Request::Query { functions } => Ok(query(&functions).into()),
            Request::DiscoverVersions { versions } => discover(version, &versions),
        }
    }

    fn create(&self, client: &str, of: ObjectType, attributes: Vec<Attribute>, now: i64) -> Result<Outcome, Refusal> {
        if of != ObjectType::SymmetricKey {
            let message = format!("Create makes symmetric keys, and no {of}");
            return Err(Refusal::new(ResultReason::InvalidField, message));
        }
        let missing = |name: &str| Refusal::new(ResultReason::InvalidField, format!("Create needs {name}"));
        let algorithm = attributes.iter().find_map(|attribute| match (&*attribute.name, &attribute.value) {
            ("Cryptographic Algorithm", AttributeValue::Enumeration(value)) => Some(*value),
            _ => None,
        });
        let algorithm = algorithm.ok_or_else(|| missing("Cryptographic Algorithm"))?;
        let bits = attributes.iter().find_map(|attribute| match (&*attribute.name, &attribute.value) {
            ("Cryptographic Length", AttributeValue::Integer(value)) => Some(*value),
            _ => None,
        });
        let bits = bits.ok_or_else(|| missing("Cryptographic Length"))?;
        if !attributes.iter().any(|attribute| attribute.name == "Cryptographic Usage Mask") {
            return Err(missing("Cryptographic Usage Mask"));
        }
        if !ALGORITHMS.iter().any(|(known, lengths)| *known == algorithm && lengths.contains(&bits)) {
            let message = format!("no keys of {bits} bits are made for the algorithm {algorithm:#x}");
            return Err(Refusal::new(ResultReason::InvalidField, message));
        }
        let mut material = Zeroizing::new(vec![0; bits.unsigned_abs() as usize / 8]);
        random(&mut material);
        let kind = Kind::SymmetricKey { algorithm: Some(algorithm), bits: Some(bits) };
        let mut outcome = self.keep(client, ManagedObject { kind, material }, attributes, now)?;
        if let Response::Done { id, .. } = outcome.response {
            outcome.response = Response::Created { object_type: of, id };
        }
        Ok(outcome)
    }

    /// A new object of the client.
    fn keep(
        &self,
        client: &str,
        object: ManagedObject,
        attributes: Vec<Attribute>,
        now: i64,
    ) -> Result<Outcome, Refusal> {
        let owned = self.objects.values().filter(|object| object.owner == client);
        let full = owned.clone().count() >= MAX_OWNER_OBJECTS || self.len() >= MAX_OBJECTS;
        let mut forgotten = None;
        if full {
            let destroyed = owned.filter(|object| object.is_destroyed()).min_by_key(|object| object.destroy_date);
            let message = "there is no room for more objects; destroy some first";
            let oldest = destroyed.ok_or_else(|| Refusal::new(ResultReason::GeneralFailure, message))?;
            forgotten = Some(oldest.id.clone());
        }
        let mut number = [0; 16];
        random(&mut number);
        let new = Object::new(hex::encode(&number), client, object, attributes, now)?;
        let response = Response::Done { operation: Operation::Register, id: new.id.clone() };
        Ok(Outcome { response, changed: Some(new), forgotten })
    }

    fn get(&self, client: &str, id: &str, format: Option<u32>) -> Result<Outcome, Refusal> {
        let object = self.find(client, id, Right::Use)?;
        let destroyed = || Refusal::new(ResultReason::ItemNotFound, format!("the object {id} was destroyed"));
        let managed = object.managed().ok_or_else(destroyed)?;
        let kept = KeyFormat::of(managed.kind.object_type());
        if format.is_some_and(|format| kept.is_none_or(|kept| kept.number() != format)) {
            let message = "the object is given in the format in which it is kept only";
            return Err(Refusal::new(ResultReason::KeyFormatTypeNotSupported, message));
        }
        Ok(Response::Object { id: id.into(), object: managed }.into())
    }

    fn locate(
        &self,
        client: &str,
        version: Version,
        maximum: Option<u32>,
        offset: Option<u32>,
        attributes: &[Attribute],
        now: i64,
    ) -> Response {
        let by_state = attributes.iter().any(|attribute| attribute.name == "State");
        let found = self.objects.values().filter(|object| {
            may(client, object, Right::Use) && (by_state || !object.is_destroyed()) && object.matches(attributes, now)
        });
        let mut found: Vec<&Object> = found.collect();
        // The newest first (KMIP 1.4, section 4.9).
        found.sort_by(|one, other| other.initial_date.cmp(&one.initial_date).then(one.id.cmp(&other.id)));
        let located_items = (version >= Version::one(3)).then_some(i32::try_from(found.len()).unwrap_or(i32::MAX));
        let maximum = maximum.map_or(MAX_LOCATED, |maximum| MAX_LOCATED.min(maximum as usize));
        let ids = found.into_iter().skip(offset.unwrap_or(0) as usize).take(maximum);
        Response::Located { located_items, ids: ids.map(|object| object.id.clone()).collect() }
    }

    fn change(
        &self,
        client: &str,
        id: &str,
        operation: Operation,
        change: impl FnOnce(&mut Object) -> Result<(), Refusal>,
    ) -> Result<Outcome, Refusal> {
        let mut object = self.find(client, id, Right::Own)?.clone();
        if object.is_destroyed() && operation != Operation::Revoke {
            return Err(Refusal::new(ResultReason::ItemNotFound, format!("the object {id} was destroyed")));
        }
        change(&mut object)?;
        Ok(Outcome { response: Response::Done { operation, id: id.into() }, changed: Some(object), forgotten: None })
    }

    /// An object, when the client may. To others it does not exist, except that users learn that they do not own it.
    fn find(&self, client: &str, id: &str, right: Right) -> Result<&Object, Refusal> {
        let object = self.objects.get(id).filter(|object| may(client, object, Right::Use));
        let object = object.ok_or_else(|| {
            Refusal::new(ResultReason::ItemNotFound, format!("there is no object {id} that {client} may use"))
        })?;
        if !may(client, object, right) {
            let message = format!("only {} may do this with the object {id}", object.owner);
            return Err(Refusal::new(ResultReason::PermissionDenied, message));
        }
        Ok(object)
    }
}

fn may(client: &str, object: &Object, right: Right) -> bool {
    object.owner == client || right == Right::Use && object.users.contains(client)
}

fn query(functions: &[u32]) -> Response {
    let asked = |function: QueryFunction| functions.contains(&function.number());
    let operations = Operation::ALL.iter().map(|operation| operation.number());
    let object_types = ObjectType::ALL.iter().map(|of| of.number());
    Response::Query {
        operations: if asked(QueryFunction::Operations) { operations.collect() } else { Vec::new() },
        object_types: if asked(QueryFunction::Objects) { object_types.collect() } else { Vec::new() },
        vendor: asked(QueryFunction::ServerInformation).then(|| format!("Lunette {}", env!("CARGO_PKG_VERSION"))),
    }
}

fn discover(version: Version, asked: &[Version]) -> Result<Outcome, Refusal> {
    if version < Version::one(1) {
        let message = "Discover Versions came with KMIP 1.1";
        return Err(Refusal::new(ResultReason::OperationNotSupported, message));
    }
    let common = Version::SUPPORTED.into_iter().filter(|version| asked.is_empty() || asked.contains(version));
    Ok(Response::Versions(common.collect()).into())
}
