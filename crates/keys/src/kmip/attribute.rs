//! Attributes of objects (KMIP 1.4, section 3).

use super::fields::{Fields, date, integer, invalid, known, number, text};
use super::limits::MAX_ATTRIBUTES;
use super::{NameType, ObjectType, Refusal, ResultReason, RevocationCode, State};
use crate::ttlv::{Item, Tag, Value};

/// An attribute with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The name, such as `Cryptographic Length`. Names that begin with `x-` are the clients' own.
    pub name: String,
    /// Which of several values, for attributes that can have more than one.
    pub index: Option<i32>,
    /// The value.
    pub value: AttributeValue,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A name.
    Name(String, NameType),
    /// A text string.
    Text(String),
    /// A number or a mask.
    Integer(i32),
    /// The number of a listed value.
    Enumeration(u32),
    /// A date in seconds since 1970.
    Date(i64),
    /// Why the object was revoked.
    Revocation(RevocationCode, Option<String>),
}

/// The types of values.
#[derive(Clone, Copy)]
enum Form {
    Name,
    Text,
    Integer,
    Enumeration,
    Date,
    Revocation,
}

/// The attributes that are known, with the types of their values.
const TABLE: [(&str, Form); 18] = [
    ("Unique Identifier", Form::Text),
    ("Name", Form::Name),
    ("Object Type", Form::Enumeration),
    ("Cryptographic Algorithm", Form::Enumeration),
    ("Cryptographic Length", Form::Integer),
    ("Cryptographic Usage Mask", Form::Integer),
    ("Operation Policy Name", Form::Text),
    ("State", Form::Enumeration),
    ("Initial Date", Form::Date),
    ("Activation Date", Form::Date),
    ("Deactivation Date", Form::Date),
    ("Destroy Date", Form::Date),
    ("Compromise Occurrence Date", Form::Date),
    ("Compromise Date", Form::Date),
    ("Revocation Reason", Form::Revocation),
    ("Object Group", Form::Text),
    ("Contact Information", Form::Text),
    ("Last Change Date", Form::Date),
];

impl Attribute {
    /// An attribute with a single value.
    pub fn new(name: &str, value: AttributeValue) -> Self {
        Self { name: name.into(), index: None, value }
    }

    /// A name of text.
    pub fn named(name: &str) -> Self {
        Self::new("Name", AttributeValue::Name(name.into(), NameType::UninterpretedTextString))
    }

    /// The type of an object.
    pub fn object_type(of: ObjectType) -> Self {
        Self::new("Object Type", AttributeValue::Enumeration(of.number()))
    }

    /// The state of an object.
    pub fn state(state: State) -> Self {
        Self::new("State", AttributeValue::Enumeration(state.number()))
    }

    pub(super) fn from_item(item: Item) -> Result<Self, Refusal> {
        let mut fields = Fields::of(item)?;
        let name = text(fields.need(Tag::ATTRIBUTE_NAME)?)?;
        let index = fields.integer(Tag::ATTRIBUTE_INDEX)?;
        let value = fields.need(Tag::ATTRIBUTE_VALUE)?;
        fields.end()?;
        let form = form(&name).ok_or_else(|| {
            Refusal::new(ResultReason::InvalidField, format!("the attribute {name:?} is not supported"))
        })?;
        let value = match form {
            Form::Text => AttributeValue::Text(text(value)?),
            Form::Integer => AttributeValue::Integer(integer(value)?),
            Form::Enumeration => AttributeValue::Enumeration(number(value)?),
            Form::Date => AttributeValue::Date(date(value)?),
            Form::Name => {
                let mut fields = Fields::of(value)?;
                let name = text(fields.need(Tag::NAME_VALUE)?)?;
                let kind = number(fields.need(Tag::NAME_TYPE)?)?;
                fields.end()?;
                AttributeValue::Name(name, known(Tag::NAME_TYPE, kind, NameType::from_number)?)
            }
            Form::Revocation => {
                let (code, message) = revocation(value)?;
                AttributeValue::Revocation(code, message)
            }
        };
        Ok(Self { name, index, value })
    }

    pub(super) fn to_item(&self) -> Item {
        let mut fields = vec![Item::text(Tag::ATTRIBUTE_NAME, &self.name)];
        fields.extend(self.index.map(|index| Item::integer(Tag::ATTRIBUTE_INDEX, index)));
        let value = match &self.value {
            AttributeValue::Text(text) => Value::TextString(text.clone()),
            AttributeValue::Integer(value) => Value::Integer(*value),
            AttributeValue::Enumeration(value) => Value::Enumeration(*value),
            AttributeValue::Date(value) => Value::DateTime(*value),
            AttributeValue::Name(name, kind) => Value::Structure(vec![
                Item::text(Tag::NAME_VALUE, name),
                Item::enumeration(Tag::NAME_TYPE, kind.number()),
            ]),
            AttributeValue::Revocation(code, message) => revocation_item(*code, message.as_deref()).value,
        };
        fields.push(Item::new(Tag::ATTRIBUTE_VALUE, value));
        Item::structure(Tag::ATTRIBUTE, fields)
    }
}

/// The attributes of a Template-Attribute. Templates themselves are deprecated since KMIP 1.3, and not supported.
pub(super) fn from_template(fields: &mut Fields) -> Result<Vec<Attribute>, Refusal> {
    let mut template = Fields::of(fields.need(Tag::TEMPLATE_ATTRIBUTE)?)?;
    let attributes = from_fields(&mut template)?;
    template.end()?;
    Ok(attributes)
}

pub(super) fn from_fields(fields: &mut Fields) -> Result<Vec<Attribute>, Refusal> {
    fields.take_all(Tag::ATTRIBUTE, MAX_ATTRIBUTES)?.into_iter().map(Attribute::from_item).collect()
}

pub(super) fn to_template(attributes: &[Attribute]) -> Item {
    Item::structure(Tag::TEMPLATE_ATTRIBUTE, attributes.iter().map(Attribute::to_item).collect())
}

pub(super) fn revocation(item: Item) -> Result<(RevocationCode, Option<String>), Refusal> {
    let mut fields = Fields::of(item)?;
    let code = number(fields.need(Tag::REVOCATION_REASON_CODE)?)?;
    let message = fields.text(Tag::REVOCATION_MESSAGE)?;
    fields.end()?;
    Ok((known(Tag::REVOCATION_REASON_CODE, code, RevocationCode::from_number)?, message))
}

pub(super) fn revocation_item(code: RevocationCode, message: Option<&str>) -> Item {
    let mut fields = vec![Item::enumeration(Tag::REVOCATION_REASON_CODE, code.number())];
    fields.extend(message.map(|message| Item::text(Tag::REVOCATION_MESSAGE, message)));
    Item::structure(Tag::REVOCATION_REASON, fields)
}

fn form(name: &str) -> Option<Form> {
    if name.starts_with("x-") {
        return Some(Form::Text);
    }
    TABLE.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
}

/// Refuses an index: a request names attributes by their values.
pub(super) fn without_index(attributes: &[Attribute]) -> Result<(), Refusal> {
    match attributes.iter().find(|attribute| !matches!(attribute.index, None | Some(0))) {
        Some(attribute) => Err(invalid(Tag::ATTRIBUTE_INDEX, &format!("of {} is not supported", attribute.name))),
        None => Ok(()),
    }
}
