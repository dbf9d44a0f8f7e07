//! The attributes of an object: which can be set, added and removed, and which are told.

use super::limits::MAX_USERS;
use super::object::{Object, StoredKind};
use crate::kmip::limits::MAX_ATTRIBUTES;
use crate::kmip::{Attribute, AttributeValue, NameType, Refusal, ResultReason, RevocationCode};

/// The attribute that names a client that may use an object besides its owner.
pub const USER_ATTRIBUTE: &str = "x-lunette-user";

impl Object {
    /// Sets an attribute that the request for a new object has.
    pub(super) fn set_initial(&mut self, attribute: Attribute) -> Result<(), Refusal> {
        let Attribute { name, value, index } = attribute;
        match (&*name, value) {
            ("Object Type", AttributeValue::Enumeration(kind)) if kind == self.kind().object_type().number() => Ok(()),
            ("Cryptographic Usage Mask", AttributeValue::Integer(mask)) => {
                self.usage_mask = mask;
                Ok(())
            }
            ("Cryptographic Algorithm", AttributeValue::Enumeration(value)) => match &mut self.kind {
                StoredKind::SymmetricKey { algorithm, .. } if algorithm.is_none_or(|known| known == value) => {
                    *algorithm = Some(value);
                    Ok(())
                }
                _ => Err(contradiction(&name)),
            },
            ("Cryptographic Length", AttributeValue::Integer(value)) => {
                let len = self.material_bits();
                match &mut self.kind {
                    StoredKind::SymmetricKey { bits, .. } if usize::try_from(value).ok() == len => {
                        *bits = Some(value);
                        Ok(())
                    }
                    StoredKind::SecretData(_) if usize::try_from(value).ok() == len => Ok(()),
                    _ => Err(contradiction(&name)),
                }
            }
            ("Activation Date", AttributeValue::Date(date)) => once(&mut self.activation_date, date, &name),
            ("Deactivation Date", AttributeValue::Date(date)) => once(&mut self.deactivation_date, date, &name),
            ("Contact Information", AttributeValue::Text(text)) => once(&mut self.contact, text, &name),
            // The only policy of this server: the owner, and users that are named.
            ("Operation Policy Name", AttributeValue::Text(policy)) if policy == "default" => Ok(()),
            (_, value) => self.add(Attribute { name, index, value }),
        }
    }

    /// Adds a value to an attribute that can have several.
    pub(super) fn add(&mut self, attribute: Attribute) -> Result<(), Refusal> {
        if self.names.len() + self.groups.len() + self.custom.len() >= MAX_ATTRIBUTES {
            return Err(refused(format!("an object has at most {MAX_ATTRIBUTES} attributes")));
        }
        match (&*attribute.name, attribute.value) {
            ("Name", AttributeValue::Name(name, kind)) => add_once(&mut self.names, (name, kind.number()), "Name"),
            ("Object Group", AttributeValue::Text(group)) => add_once(&mut self.groups, group, "Object Group"),
            (USER_ATTRIBUTE, AttributeValue::Text(user)) => {
                if self.users.len() >= MAX_USERS {
                    return Err(refused(format!("an object has at most {MAX_USERS} users")));
                }
                self.users.insert(user);
                Ok(())
            }
            (name, AttributeValue::Text(text)) if name.starts_with("x-") => {
                add_once(&mut self.custom, (name.into(), text), name)
            }
            (name, _) => Err(refused(format!("clients cannot set {name} to this value"))),
        }
    }

    /// Removes a value of one of the clients' own attributes. Without an index it is the first one.
    pub(super) fn delete(&mut self, name: &str, index: Option<i32>) -> Result<Attribute, Refusal> {
        let index = index.unwrap_or(0);
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let missing = || Refusal::new(ResultReason::ItemNotFound, format!("there is no value {index} of {name}"));
        if name == USER_ATTRIBUTE {
            let user = self.users.iter().nth(at).cloned().ok_or_else(missing)?;
            self.users.remove(&user);
            return Ok(indexed(name, index, AttributeValue::Text(user)));
        }
        if !name.starts_with("x-") {
            return Err(refused(format!("clients cannot remove {name}")));
        }
        let mut of_name = self.custom.iter().enumerate().filter(|(_, (custom, _))| custom == name);
        let (position, _) = of_name.nth(at).ok_or_else(missing)?;
        let (_, text) = self.custom.remove(position);
        Ok(indexed(name, index, AttributeValue::Text(text)))
    }

    /// All attributes, in the order of the standard.
    pub(super) fn attributes(&self, now: i64) -> Vec<Attribute> {
        let mut list = vec![Attribute::new("Unique Identifier", AttributeValue::Text(self.id.clone()))];
        let name = |(name, kind): &(String, u32)| {
            AttributeValue::Name(
                name.clone(),
                NameType::from_number(*kind).unwrap_or(NameType::UninterpretedTextString),
            )
        };
        several(&mut list, "Name", self.names.iter().map(name));
        list.push(Attribute::object_type(self.kind().object_type()));
        if let StoredKind::SymmetricKey { algorithm, bits } = self.kind {
            one(&mut list, "Cryptographic Algorithm", algorithm.map(AttributeValue::Enumeration));
            one(&mut list, "Cryptographic Length", bits.map(AttributeValue::Integer));
        }
        if !matches!(self.kind, StoredKind::OpaqueData(_)) {
            list.push(Attribute::new("Cryptographic Usage Mask", AttributeValue::Integer(self.usage_mask)));
        }
        list.extend(self.state(now).map(Attribute::state));
        let dates = [
            ("Initial Date", Some(self.initial_date)),
            ("Activation Date", self.activation_date),
            ("Deactivation Date", self.deactivation_date),
            ("Destroy Date", self.destroy_date),
            ("Compromise Occurrence Date", self.compromise_occurrence_date),
            ("Compromise Date", self.compromise_date),
        ];
        for (name, date) in dates {
            one(&mut list, name, date.map(AttributeValue::Date));
        }
        let revocation = self.revocation.as_ref().map(|(code, message)| {
            let code = RevocationCode::from_number(*code).unwrap_or(RevocationCode::Unspecified);
            AttributeValue::Revocation(code, message.clone())
        });
        one(&mut list, "Revocation Reason", revocation);
        several(&mut list, "Object Group", self.groups.iter().cloned().map(AttributeValue::Text));
        one(&mut list, "Contact Information", self.contact.clone().map(AttributeValue::Text));
        one(&mut list, "Last Change Date", Some(AttributeValue::Date(self.last_change_date)));
        several(&mut list, USER_ATTRIBUTE, self.users.iter().cloned().map(AttributeValue::Text));
        let mut custom: Vec<_> = self.custom.iter().map(|(name, _)| name).collect();
        custom.sort_unstable();
        custom.dedup();
        for name in custom {
            let values = self.custom.iter().filter(|(other, _)| other == name);
            several(&mut list, name, values.map(|(_, text)| AttributeValue::Text(text.clone())));
        }
        list
    }

    /// Whether the object has each of these values. Two values of one date are the ends of a range.
    pub(super) fn matches(&self, wanted: &[Attribute], now: i64) -> bool {
        let has = self.attributes(now);
        wanted.iter().all(|attribute| {
            let same_name = |other: &&Attribute| other.name == attribute.name;
            let dates: Vec<i64> = wanted.iter().filter(same_name).filter_map(date).collect();
            match dates[..] {
                [from, to] => has.iter().filter(same_name).filter_map(date).any(|date| (from..=to).contains(&date)),
                _ => has.iter().filter(same_name).any(|other| other.value == attribute.value),
            }
        })
    }

    fn material_bits(&self) -> Option<usize> {
        self.managed().map(|object| 8 * object.material.len())
    }
}

fn date(attribute: &Attribute) -> Option<i64> {
    match attribute.value {
        AttributeValue::Date(date) => Some(date),
        _ => None,
    }
}

fn one(list: &mut Vec<Attribute>, name: &str, value: Option<AttributeValue>) {
    list.extend(value.map(|value| Attribute::new(name, value)));
}

fn several(list: &mut Vec<Attribute>, name: &str, values: impl Iterator<Item = AttributeValue>) {
    list.extend((0..).zip(values).map(|(index, value)| indexed(name, index, value)));
}

fn indexed(name: &str, index: i32, value: AttributeValue) -> Attribute {
    Attribute { name: name.into(), index: Some(index), value }
}

fn once<T>(slot: &mut Option<T>, value: T, name: &str) -> Result<(), Refusal> {
    match slot.replace(value) {
        Some(_) => Err(refused(format!("{name} stands there twice"))),
        None => Ok(()),
    }
}

fn add_once<T: PartialEq>(list: &mut Vec<T>, value: T, name: &str) -> Result<(), Refusal> {
    if list.contains(&value) {
        return Err(refused(format!("the object has this {name} already")));
    }
    list.push(value);
    Ok(())
}

fn contradiction(name: &str) -> Refusal {
    refused(format!("{name} contradicts the object"))
}

fn refused(message: String) -> Refusal {
    Refusal::new(ResultReason::InvalidField, message)
}
