//! Objects with their secret (KMIP 1.4, section 2).

use zeroize::Zeroizing;

use super::fields::{Fields, invalid, number};
use super::limits::MAX_MATERIAL_BYTES;
use super::{KeyFormat, ObjectType, Refusal, ResultReason};
use crate::ttlv::{Item, Tag, Value};

/// The kind of an object, with the values that its type has besides the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A key of this algorithm (a number of the standard; 3 is AES) and of this length in bits.
    SymmetricKey {
        /// The algorithm.
        algorithm: Option<u32>,
        /// The length in bits.
        bits: Option<i32>,
    },
    /// A password (1) or a seed (2).
    SecretData(u32),
    /// Bytes of a kind that the client knows.
    OpaqueData(u32),
}

/// An object with its secret bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct ManagedObject {
    /// The kind of the object.
    pub kind: Kind,
    /// The secret.
    pub material: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for ManagedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManagedObject").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Kind {
    /// The type on the wire.
    pub fn object_type(self) -> ObjectType {
        match self {
            Self::SymmetricKey { .. } => ObjectType::SymmetricKey,
            Self::SecretData(_) => ObjectType::SecretData,
            Self::OpaqueData(_) => ObjectType::OpaqueData,
        }
    }
}

impl ManagedObject {
    /// Takes the object of a type out of a payload.
    pub(super) fn take(fields: &mut Fields, of: ObjectType) -> Result<Self, Refusal> {
        let object = match of {
            ObjectType::SymmetricKey => {
                let (material, algorithm, bits) = key_block(fields.need(Tag::SYMMETRIC_KEY)?)?;
                if bits.is_some_and(|bits| usize::try_from(bits) != Ok(8 * material.len())) {
                    return Err(invalid(Tag::CRYPTOGRAPHIC_LENGTH, "is not that of the key"));
                }
                Self { kind: Kind::SymmetricKey { algorithm, bits }, material }
            }
            ObjectType::SecretData => {
                let mut secret = Fields::of(fields.need(Tag::SECRET_DATA)?)?;
                let kind = number(secret.need(Tag::SECRET_DATA_TYPE)?)?;
                let block = secret.need(Tag::KEY_BLOCK)?;
                secret.end()?;
                let (material, ..) = block_of(block)?;
                Self { kind: Kind::SecretData(kind), material }
            }
            ObjectType::OpaqueData => {
                let mut opaque = Fields::of(fields.need(Tag::OPAQUE_OBJECT)?)?;
                let kind = number(opaque.need(Tag::OPAQUE_DATA_TYPE)?)?;
                let material = opaque.bytes(Tag::OPAQUE_DATA_VALUE)?;
                opaque.end()?;
                let material = material.ok_or_else(|| invalid(Tag::OPAQUE_DATA_VALUE, "is missing"))?;
                Self { kind: Kind::OpaqueData(kind), material }
            }
        };
        if !(1..=MAX_MATERIAL_BYTES).contains(&object.material.len()) {
            return Err(invalid(Tag::KEY_MATERIAL, &format!("has 1 to {MAX_MATERIAL_BYTES} bytes")));
        }
        Ok(object)
    }

    pub(super) fn to_item(&self) -> Item {
        let material = Item::new(Tag::KEY_MATERIAL, Value::ByteString(self.material.clone()));
        match self.kind {
            Kind::SymmetricKey { algorithm, bits } => {
                let mut fields = vec![
                    Item::enumeration(Tag::KEY_FORMAT_TYPE, KeyFormat::Raw.number()),
                    Item::structure(Tag::KEY_VALUE, vec![material]),
                ];
                fields.extend(algorithm.map(|algorithm| Item::enumeration(Tag::CRYPTOGRAPHIC_ALGORITHM, algorithm)));
                fields.extend(bits.map(|bits| Item::integer(Tag::CRYPTOGRAPHIC_LENGTH, bits)));
                Item::structure(Tag::SYMMETRIC_KEY, vec![Item::structure(Tag::KEY_BLOCK, fields)])
            }
            Kind::SecretData(kind) => {
                let fields = vec![
                    Item::enumeration(Tag::KEY_FORMAT_TYPE, KeyFormat::Opaque.number()),
                    Item::structure(Tag::KEY_VALUE, vec![material]),
                ];
                let block = Item::structure(Tag::KEY_BLOCK, fields);
                Item::structure(Tag::SECRET_DATA, vec![Item::enumeration(Tag::SECRET_DATA_TYPE, kind), block])
            }
            Kind::OpaqueData(kind) => Item::structure(
                Tag::OPAQUE_OBJECT,
                vec![
                    Item::enumeration(Tag::OPAQUE_DATA_TYPE, kind),
                    Item::new(Tag::OPAQUE_DATA_VALUE, Value::ByteString(self.material.clone())),
                ],
            ),
        }
    }
}

/// Material, algorithm and length.
type KeyBlock = (Zeroizing<Vec<u8>>, Option<u32>, Option<i32>);

fn key_block(key: Item) -> Result<KeyBlock, Refusal> {
    let mut fields = Fields::of(key)?;
    let block = fields.need(Tag::KEY_BLOCK)?;
    fields.end()?;
    block_of(block)
}

fn block_of(block: Item) -> Result<KeyBlock, Refusal> {
    let mut block = Fields::of(block)?;
    let format = number(block.need(Tag::KEY_FORMAT_TYPE)?)?;
    if !matches!(KeyFormat::from_number(format), Some(KeyFormat::Raw | KeyFormat::Opaque)) {
        let message = format!("keys are taken in the formats Raw and Opaque, and this one has {format:#x}");
        return Err(Refusal::new(ResultReason::KeyFormatTypeNotSupported, message));
    }
    let mut value = Fields::of(block.need(Tag::KEY_VALUE)?)?;
    let material = value.bytes(Tag::KEY_MATERIAL)?.ok_or_else(|| invalid(Tag::KEY_MATERIAL, "is missing"))?;
    value.end()?;
    let algorithm = block.number(Tag::CRYPTOGRAPHIC_ALGORITHM)?;
    let bits = block.integer(Tag::CRYPTOGRAPHIC_LENGTH)?;
    block.end()?;
    Ok((material, algorithm, bits))
}
