//! The payloads of responses (KMIP 1.4, section 4).

use super::attribute::Attribute;
use super::fields::{Fields, known, number, text};
use super::message::Version;
use super::object::ManagedObject;
use super::{ObjectType, Operation, Refusal};
use crate::ttlv::{Item, Tag};

/// The answer to a request that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields are the standard's")]
pub enum Response {
    /// The object's identifier, for Create.
    Created { object_type: ObjectType, id: String },
    /// The object's identifier, for Register, Activate, Revoke and Destroy.
    Done { operation: Operation, id: String },
    /// The objects that were found. The count is of all, before Maximum Items (from KMIP 1.3 on).
    Located { located_items: Option<i32>, ids: Vec<String> },
    /// The object.
    Object { id: String, object: ManagedObject },
    /// Attributes, for Get Attributes.
    Attributes { id: String, attributes: Vec<Attribute> },
    /// The attribute that was added or removed.
    Attribute { operation: Operation, id: String, attribute: Attribute },
    /// The abilities of the server.
    Query { operations: Vec<u32>, object_types: Vec<u32>, vendor: Option<String> },
    /// The versions that both sides know, the preferred one first.
    Versions(Vec<Version>),
}

/// The most entries of a list in an answer of a server.
const MAX_LIST: usize = 16384;

impl Response {
    /// The payload.
    pub fn to_payload(&self) -> Item {
        let id_item = |id: &str| Item::text(Tag::UNIQUE_IDENTIFIER, id);
        let fields = match self {
            Self::Created { object_type, id } => {
                vec![Item::enumeration(Tag::OBJECT_TYPE, object_type.number()), id_item(id)]
            }
            Self::Done { id, .. } => vec![id_item(id)],
            Self::Located { located_items, ids } => {
                let count = located_items.map(|count| Item::integer(Tag::LOCATED_ITEMS, count));
                count.into_iter().chain(ids.iter().map(|id| id_item(id))).collect()
            }
            Self::Object { id, object } => vec![
                Item::enumeration(Tag::OBJECT_TYPE, object.kind.object_type().number()),
                id_item(id),
                object.to_item(),
            ],
            Self::Attributes { id, attributes } => {
                std::iter::once(id_item(id)).chain(attributes.iter().map(Attribute::to_item)).collect()
            }
            Self::Attribute { id, attribute, .. } => vec![id_item(id), attribute.to_item()],
            Self::Query { operations, object_types, vendor } => {
                let list = |tag, values: &[u32]| -> Vec<Item> {
                    values.iter().map(|value| Item::enumeration(tag, *value)).collect()
                };
                let mut fields = list(Tag::OPERATION, operations);
                fields.extend(list(Tag::OBJECT_TYPE, object_types));
                fields.extend(vendor.as_ref().map(|vendor| Item::text(Tag::VENDOR_IDENTIFICATION, vendor)));
                fields
            }
            Self::Versions(versions) => versions.iter().map(|version| version.to_item()).collect(),
        };
        Item::structure(Tag::RESPONSE_PAYLOAD, fields)
    }

    /// Reads the payload of the answer to an operation. Fields that are not known are passed over: servers may say more
    /// than the client wants to know.
    ///
    /// # Errors
    ///
    /// When a field is missing or has the wrong type.
    pub fn from_payload(operation: Operation, payload: Item) -> Result<Self, Refusal> {
        let mut fields = Fields::of(payload)?;
        let fields = &mut fields;
        Ok(match operation {
            Operation::Create => Self::Created { object_type: object_type(fields)?, id: id(fields)? },
            Operation::Register | Operation::Activate | Operation::Revoke | Operation::Destroy => {
                Self::Done { operation, id: id(fields)? }
            }
            Operation::Locate => Self::Located {
                located_items: fields.integer(Tag::LOCATED_ITEMS)?,
                ids: all(fields, Tag::UNIQUE_IDENTIFIER, text)?,
            },
            Operation::Get => {
                let object_type = object_type(fields)?;
                Self::Object { id: id(fields)?, object: ManagedObject::take(fields, object_type)? }
            }
            Operation::GetAttributes => {
                // Attributes of kinds that are not known are passed over, too.
                let items = fields.take_all(Tag::ATTRIBUTE, MAX_LIST)?;
                let attributes = items.into_iter().filter_map(|item| Attribute::from_item(item).ok()).collect();
                Self::Attributes { id: id(fields)?, attributes }
            }
            Operation::AddAttribute | Operation::DeleteAttribute => {
                let attribute = Attribute::from_item(fields.need(Tag::ATTRIBUTE)?)?;
                Self::Attribute { operation, id: id(fields)?, attribute }
            }
            Operation::Query => Self::Query {
                operations: all(fields, Tag::OPERATION, number)?,
                object_types: all(fields, Tag::OBJECT_TYPE, number)?,
                vendor: fields.text(Tag::VENDOR_IDENTIFICATION)?,
            },
            Operation::DiscoverVersions => Self::Versions(all(fields, Tag::PROTOCOL_VERSION, Version::from_item)?),
        })
    }

    /// The object that this response is about, for the audit log and for the next request of the message.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Created { id, .. }
            | Self::Done { id, .. }
            | Self::Object { id, .. }
            | Self::Attributes { id, .. }
            | Self::Attribute { id, .. } => Some(id),
            Self::Located { ids, .. } => match &ids[..] {
                [id] => Some(id),
                _ => None,
            },
            Self::Query { .. } | Self::Versions(_) => None,
        }
    }
}

fn all<T>(fields: &mut Fields, tag: Tag, read: fn(Item) -> Result<T, Refusal>) -> Result<Vec<T>, Refusal> {
    fields.take_all(tag, MAX_LIST)?.into_iter().map(read).collect()
}

fn object_type(fields: &mut Fields) -> Result<ObjectType, Refusal> {
    let value = number(fields.need(Tag::OBJECT_TYPE)?)?;
    known(Tag::OBJECT_TYPE, value, ObjectType::from_number)
}

fn id(fields: &mut Fields) -> Result<String, Refusal> {
    text(fields.need(Tag::UNIQUE_IDENTIFIER)?)
}
