//! The payloads of requests (KMIP 1.4, section 4).

use super::attribute::{self, Attribute, from_template, to_template, without_index};
use super::fields::{Fields, invalid, known, number, text};
use super::message::Version;
use super::object::ManagedObject;
use super::{KeyFormat, ObjectType, Operation, Refusal, ResultReason, RevocationCode};
use crate::ttlv::{Item, Tag, Value};

/// A request. An absent identifier stands for the object of the request before it in the message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields are the standard's")]
pub enum Request {
    /// Draw a key.
    Create { object_type: ObjectType, attributes: Vec<Attribute> },
    /// Keep an object of the client's.
    Register { attributes: Vec<Attribute>, object: ManagedObject },
    /// Find objects that have all of these attributes.
    Locate { maximum_items: Option<u32>, offset_items: Option<u32>, attributes: Vec<Attribute> },
    /// Give the object with its secret.
    Get { id: Option<String>, format: Option<u32> },
    /// Give attributes: those named, or all.
    GetAttributes { id: Option<String>, names: Vec<String> },
    /// Add a value of an attribute.
    AddAttribute { id: Option<String>, attribute: Attribute },
    /// Remove a value of an attribute.
    DeleteAttribute { id: Option<String>, name: String, index: Option<i32> },
    /// Let the key be used.
    Activate { id: Option<String> },
    /// Let the key no longer be used to protect data.
    Revoke { id: Option<String>, code: RevocationCode, message: Option<String>, occurred: Option<i64> },
    /// Destroy the secret.
    Destroy { id: Option<String> },
    /// Ask what the server can do.
    Query { functions: Vec<u32> },
    /// Ask for the versions that both sides know.
    DiscoverVersions { versions: Vec<Version> },
}

/// The most functions of a Query, and the most versions of a Discover Versions.
const MAX_LIST: usize = 64;

/// The bit of the storage status mask that stands for objects that are not archived.
const ONLINE_STORAGE: i32 = 1;

impl Request {
    /// The operation.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Create { .. } => Operation::Create,
            Self::Register { .. } => Operation::Register,
            Self::Locate { .. } => Operation::Locate,
            Self::Get { .. } => Operation::Get,
            Self::GetAttributes { .. } => Operation::GetAttributes,
            Self::AddAttribute { .. } => Operation::AddAttribute,
            Self::DeleteAttribute { .. } => Operation::DeleteAttribute,
            Self::Activate { .. } => Operation::Activate,
            Self::Revoke { .. } => Operation::Revoke,
            Self::Destroy { .. } => Operation::Destroy,
            Self::Query { .. } => Operation::Query,
            Self::DiscoverVersions { .. } => Operation::DiscoverVersions,
        }
    }

    /// The object that the request names.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Get { id, .. }
            | Self::GetAttributes { id, .. }
            | Self::AddAttribute { id, .. }
            | Self::DeleteAttribute { id, .. }
            | Self::Activate { id }
            | Self::Revoke { id, .. }
            | Self::Destroy { id } => id.as_deref(),
            Self::Create { .. }
            | Self::Register { .. }
            | Self::Locate { .. }
            | Self::Query { .. }
            | Self::DiscoverVersions { .. } => None,
        }
    }

    /// Reads the payload of an operation.
    ///
    /// # Errors
    ///
    /// When a field is missing, has the wrong type, or is not supported.
    pub fn from_payload(operation: Operation, payload: Item) -> Result<Self, Refusal> {
        let mut fields = Fields::of(payload)?;
        let request = match operation {
            Operation::Create => {
                Self::Create { object_type: object_type(&mut fields)?, attributes: settable(&mut fields)? }
            }
            Operation::Register => {
                let object_type = object_type(&mut fields)?;
                let attributes = settable(&mut fields)?;
                Self::Register { attributes, object: ManagedObject::take(&mut fields, object_type)? }
            }
            Operation::Locate => locate(&mut fields)?,
            Operation::Get => Self::Get { id: id(&mut fields)?, format: fields.number(Tag::KEY_FORMAT_TYPE)? },
            Operation::GetAttributes => {
                let names = fields.take_all(Tag::ATTRIBUTE_NAME, MAX_LIST)?;
                Self::GetAttributes {
                    id: id(&mut fields)?,
                    names: names.into_iter().map(text).collect::<Result<_, _>>()?,
                }
            }
            Operation::AddAttribute => {
                let attribute = Attribute::from_item(fields.need(Tag::ATTRIBUTE)?)?;
                Self::AddAttribute { id: id(&mut fields)?, attribute }
            }
            Operation::DeleteAttribute => Self::DeleteAttribute {
                id: id(&mut fields)?,
                name: text(fields.need(Tag::ATTRIBUTE_NAME)?)?,
                index: fields.integer(Tag::ATTRIBUTE_INDEX)?,
            },
            Operation::Activate => Self::Activate { id: id(&mut fields)? },
            Operation::Revoke => {
                let (code, message) = attribute::revocation(fields.need(Tag::REVOCATION_REASON)?)?;
                let occurred = fields.date(Tag::COMPROMISE_OCCURRENCE_DATE)?;
                Self::Revoke { id: id(&mut fields)?, code, message, occurred }
            }
            Operation::Destroy => Self::Destroy { id: id(&mut fields)? },
            Operation::Query => {
                let functions = fields.take_all(Tag::QUERY_FUNCTION, MAX_LIST)?;
                Self::Query { functions: functions.into_iter().map(number).collect::<Result<_, _>>()? }
            }
            Operation::DiscoverVersions => {
                let versions = fields.take_all(Tag::PROTOCOL_VERSION, MAX_LIST)?;
                let versions = versions.into_iter().map(Version::from_item).collect::<Result<_, _>>()?;
                Self::DiscoverVersions { versions }
            }
        };
        fields.end()?;
        Ok(request)
    }

    /// The payload.
    pub fn to_payload(&self) -> Item {
        let mut fields = Vec::new();
        match self {
            Self::Create { object_type, attributes } => {
                fields.push(Item::enumeration(Tag::OBJECT_TYPE, object_type.number()));
                fields.push(to_template(attributes));
            }
            Self::Register { attributes, object } => {
                fields.push(Item::enumeration(Tag::OBJECT_TYPE, object.kind.object_type().number()));
                fields.push(to_template(attributes));
                fields.push(object.to_item());
            }
            Self::Locate { maximum_items, offset_items, attributes } => {
                let count = |tag, count: Option<u32>| count.map(|count| Item::integer(tag, count.cast_signed()));
                fields.extend(count(Tag::MAXIMUM_ITEMS, *maximum_items));
                fields.extend(count(Tag::OFFSET_ITEMS, *offset_items));
                fields.extend(attributes.iter().map(Attribute::to_item));
            }
            Self::Get { id, format } => {
                fields.extend(id_item(id.as_deref()));
                fields.extend(format.map(|format| Item::enumeration(Tag::KEY_FORMAT_TYPE, format)));
            }
            Self::GetAttributes { id, names } => {
                fields.extend(id_item(id.as_deref()));
                fields.extend(names.iter().map(|name| Item::text(Tag::ATTRIBUTE_NAME, name)));
            }
            Self::AddAttribute { id, attribute } => {
                fields.extend(id_item(id.as_deref()));
                fields.push(attribute.to_item());
            }
            Self::DeleteAttribute { id, name, index } => {
                fields.extend(id_item(id.as_deref()));
                fields.push(Item::text(Tag::ATTRIBUTE_NAME, name));
                fields.extend(index.map(|index| Item::integer(Tag::ATTRIBUTE_INDEX, index)));
            }
            Self::Activate { id } | Self::Destroy { id } => fields.extend(id_item(id.as_deref())),
            Self::Revoke { id, code, message, occurred } => {
                fields.extend(id_item(id.as_deref()));
                fields.push(attribute::revocation_item(*code, message.as_deref()));
                let date = |date| Item::new(Tag::COMPROMISE_OCCURRENCE_DATE, Value::DateTime(date));
                fields.extend(occurred.map(date));
            }
            Self::Query { functions } => {
                fields.extend(functions.iter().map(|function| Item::enumeration(Tag::QUERY_FUNCTION, *function)));
            }
            Self::DiscoverVersions { versions } => fields.extend(versions.iter().map(|version| version.to_item())),
        }
        Item::structure(Tag::REQUEST_PAYLOAD, fields)
    }
}

fn object_type(fields: &mut Fields) -> Result<ObjectType, Refusal> {
    let value = number(fields.need(Tag::OBJECT_TYPE)?)?;
    known(Tag::OBJECT_TYPE, value, ObjectType::from_number)
}

fn settable(fields: &mut Fields) -> Result<Vec<Attribute>, Refusal> {
    let attributes = from_template(fields)?;
    // Some clients number the values of an attribute from 0, as answers do. Their order is the same.
    Ok(attributes.into_iter().map(|attribute| Attribute { index: None, ..attribute }).collect())
}

fn locate(fields: &mut Fields) -> Result<Request, Refusal> {
    let count = |fields: &mut Fields, tag| match fields.integer(tag)? {
        None => Ok(None),
        Some(count) => u32::try_from(count).map(Some).map_err(|_| invalid(tag, "is negative")),
    };
    let maximum_items = count(fields, Tag::MAXIMUM_ITEMS)?;
    let offset_items = count(fields, Tag::OFFSET_ITEMS)?;
    // Nothing is ever archived here, so a client that wants online objects gets all.
    if fields.integer(Tag::STORAGE_STATUS_MASK)?.is_some_and(|mask| mask & ONLINE_STORAGE == 0) {
        return Err(Refusal::new(ResultReason::FeatureNotSupported, "this server archives nothing"));
    }
    let attributes = attribute::from_fields(fields)?;
    without_index(&attributes)?;
    Ok(Request::Locate { maximum_items, offset_items, attributes })
}

fn id(fields: &mut Fields) -> Result<Option<String>, Refusal> {
    fields.text(Tag::UNIQUE_IDENTIFIER)
}

pub(super) fn id_item(id: Option<&str>) -> Option<Item> {
    id.map(|id| Item::text(Tag::UNIQUE_IDENTIFIER, id))
}

impl KeyFormat {
    /// The format in which the server keeps the keys of a type.
    pub fn of(object_type: ObjectType) -> Option<Self> {
        match object_type {
            ObjectType::SymmetricKey => Some(Self::Raw),
            ObjectType::SecretData => Some(Self::Opaque),
            ObjectType::OpaqueData => None,
        }
    }
}
