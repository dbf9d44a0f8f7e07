//! The common value, and its encoding.
//!
//! All numbers are big-endian. A *text* is its length in two bytes, then its bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `LUNETTEG` |
//! | 1 | version of this encoding, 1 |
//! | 8 | version of the value, from 1 |
//! | 2 | the group that is wanted as owner; 0 for none |
//! | 1 | 0: no owner; 1: the owner takes the image; 2: it has the image |
//! | with an owner: 2, 8, text | its group and incarnation, and the address of its client |
//! | 1 | number of members |
//! | for each: 2, 8 | its group and incarnation |
//! | 1 | number of entries |
//! | for each: text, 1, 4, n | its name, whether it survives, and its bytes behind their length |

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits::{MAX_ENTRIES, MAX_MEMBERS, MAX_NAME_BYTES, MAX_VALUE_BYTES};

const MAGIC: [u8; 8] = *b"LUNETTEG";
const ENCODING: u8 = 1;

/// Bytes at the beginning of an encoded value that no two versions have in common.
pub const HEADER_LEN: usize = 17;

/// A gateway, from its start to its end or its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The target port group of its ports, which is its name: not 0.
    pub group: u16,
    /// A random number of each start, so that a gateway that was removed does not take itself for a member.
    pub incarnation: u64,
}

/// The gateway that may write to the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The gateway that owns the disk.
    pub member: Member,
    /// The address of the client with which it writes: what the blocklist needs.
    pub client: Arc<str>,
    /// Whether it has the lock of the image. Until then it does not write.
    pub is_active: bool,
}

/// Something that the device servers of all gateways have in common. Gateways do not look into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The bytes of the entry.
    pub bytes: Arc<[u8]>,
    /// Whether it outlives the time in which there is no gateway.
    pub survives: bool,
}

/// The common value of all gateways of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Counts the changes.
    pub version: u64,
    /// The gateways, by group: their incarnations.
    pub members: BTreeMap<u16, u64>,
    /// The gateway that may write.
    pub owner: Option<Owner>,
    /// The gateway that should become the owner.
    pub wanted: Option<u16>,
    /// The entries by name.
    pub entries: BTreeMap<Arc<str>, Entry>,
}

/// Why a value cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The bytes are not a value that this version of Lunette knows.
    #[error(
        "the common object of the gateways holds no value of a known version; remove it when no gateway is running"
    )]
    Unknown,
    /// The value has more of something than it may have.
    #[error(
        "the common value of the gateways has {MAX_MEMBERS} members, {MAX_ENTRIES} entries and {MAX_VALUE_BYTES} bytes at most"
    )]
    TooLong,
}

impl Value {
    /// The value before the first gateway. It is never stored.
    pub(crate) fn empty() -> Self {
        Self { version: 0, members: BTreeMap::new(), owner: None, wanted: None, entries: BTreeMap::new() }
    }

    /// Whether `member` is one.
    pub fn has(&self, member: Member) -> bool {
        self.members.get(&member.group) == Some(&member.incarnation)
    }

    /// The members.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.members.iter().map(|(group, incarnation)| Member { group: *group, incarnation: *incarnation })
    }

    /// The first [`HEADER_LEN`] bytes of the encoded value of that version.
    pub fn header(version: u64) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&MAGIC);
        header[8] = ENCODING;
        header[9..].copy_from_slice(&version.to_be_bytes());
        header
    }

    /// The value as bytes.
    ///
    /// # Errors
    ///
    /// When it is beyond a limit.
    pub fn encode(&self) -> Result<Vec<u8>, ValueError> {
        let mut bytes = Self::header(self.version).to_vec();
        bytes.extend_from_slice(&self.wanted.unwrap_or(0).to_be_bytes());
        match &self.owner {
            None => bytes.push(0),
            Some(owner) => {
                bytes.push(1 + u8::from(owner.is_active));
                put_member(&mut bytes, owner.member);
                put_text(&mut bytes, &owner.client)?;
            }
        }
        bytes.push(count(self.members.len(), MAX_MEMBERS)?);
        self.members().for_each(|member| put_member(&mut bytes, member));
        bytes.push(count(self.entries.len(), MAX_ENTRIES)?);
        for (name, entry) in &self.entries {
            put_text(&mut bytes, name)?;
            bytes.push(u8::from(entry.survives));
            let len = u32::try_from(entry.bytes.len()).map_err(|_| ValueError::TooLong)?;
            bytes.extend_from_slice(&len.to_be_bytes());
            bytes.extend_from_slice(&entry.bytes);
        }
        if bytes.len() > MAX_VALUE_BYTES { Err(ValueError::TooLong) } else { Ok(bytes) }
    }

    /// The value of these bytes.
    ///
    /// # Errors
    ///
    /// For any other bytes than those of [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Result<Self, ValueError> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= MAX_VALUE_BYTES);
        bytes.and_then(|bytes| Reader(bytes).value()).ok_or(ValueError::Unknown)
    }
}

fn put_member(bytes: &mut Vec<u8>, member: Member) {
    bytes.extend_from_slice(&member.group.to_be_bytes());
    bytes.extend_from_slice(&member.incarnation.to_be_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) -> Result<(), ValueError> {
    let len = u16::try_from(text.len()).ok().filter(|len| usize::from(*len) <= MAX_NAME_BYTES);
    bytes.extend_from_slice(&len.ok_or(ValueError::TooLong)?.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    Ok(())
}

fn count(len: usize, limit: usize) -> Result<u8, ValueError> {
    u8::try_from(len).ok().filter(|_| len <= limit).ok_or(ValueError::TooLong)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn value(mut self) -> Option<Value> {
        if self.take()? != MAGIC || self.take()? != [ENCODING] {
            return None;
        }
        // 0 is that of no value, and the last one would have no next one.
        let version = Some(u64::from_be_bytes(self.take()?)).filter(|version| (1..u64::MAX).contains(version))?;
        let wanted = Some(u16::from_be_bytes(self.take()?)).filter(|group| *group != 0);
        let owner = match self.take()? {
            [0] => None,
            [phase @ 1..=2] => Some(Owner { member: self.member()?, client: self.text()?, is_active: phase == 2 }),
            _ => return None,
        };
        let mut value = Value { version, owner, wanted, ..Value::empty() };
        for _ in 0..self.count(MAX_MEMBERS)? {
            let Member { group, incarnation } = self.member()?;
            is_next(value.members.last_key_value().map(|(last, _)| last), &group)?;
            value.members.insert(group, incarnation);
        }
        for _ in 0..self.count(MAX_ENTRIES)? {
            let name = self.text()?;
            is_next(value.entries.last_key_value().map(|(last, _)| last), &name)?;
            let [survives @ 0..=1] = self.take()? else { return None };
            let len = u32::from_be_bytes(self.take()?);
            let bytes = self.bytes(usize::try_from(len).ok()?)?.into();
            value.entries.insert(name, Entry { bytes, survives: survives == 1 });
        }
        self.0.is_empty().then_some(value)
    }

    fn member(&mut self) -> Option<Member> {
        let group = Some(u16::from_be_bytes(self.take()?)).filter(|group| *group != 0)?;
        Some(Member { group, incarnation: u64::from_be_bytes(self.take()?) })
    }

    fn count(&mut self, limit: usize) -> Option<usize> {
        let [count] = self.take()?;
        Some(usize::from(count)).filter(|count| *count <= limit)
    }

    fn text(&mut self) -> Option<Arc<str>> {
        let len = usize::from(u16::from_be_bytes(self.take()?));
        let bytes = Some(len).filter(|len| *len <= MAX_NAME_BYTES).and_then(|len| self.bytes(len))?;
        std::str::from_utf8(bytes).ok().map(Arc::from)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

/// One value has one encoding, so lists are in order.
fn is_next<T: Ord>(last: Option<&T>, next: &T) -> Option<()> {
    last.is_none_or(|last| last < next).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members() -> impl Strategy<Value = BTreeMap<u16, u64>> {
        proptest::collection::btree_map(1_u16.., any::<u64>(), 0..MAX_MEMBERS)
    }

    fn entries() -> impl Strategy<Value = BTreeMap<Arc<str>, Entry>> {
        let entry = (proptest::collection::vec(any::<u8>(), 0..40), any::<bool>())
            .prop_map(|(bytes, survives)| Entry { bytes: bytes.into(), survives });
        proptest::collection::btree_map("[a-zä]{0,9}".prop_map(Arc::from), entry, 0..MAX_ENTRIES)
    }

    fn owner() -> impl Strategy<Value = Option<Owner>> {
        let owner = (1_u16.., any::<u64>(), "[0-9.:/]{0,30}", any::<bool>()).prop_map(
            |(group, incarnation, client, is_active)| Owner {
                member: Member { group, incarnation },
                client: client.into(),
                is_active,
            },
        );
        proptest::option::of(owner)
    }

    fn value() -> impl Strategy<Value = Value> {
        (1..u64::MAX, members(), owner(), proptest::option::of(1_u16..), entries())
            .prop_map(|(version, members, owner, wanted, entries)| Value { version, members, owner, wanted, entries })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in value()) {
            let bytes = value.encode().unwrap();
            prop_assert_eq!(&bytes[..HEADER_LEN], Value::header(value.version));
            prop_assert_eq!(Value::decode(&bytes), Ok(value));
        }

        #[test]
        fn cut_and_changed_values_are_refused_or_read_as_written(
            value in value(),
            at in any::<proptest::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = value.encode().unwrap();
            let at = at.index(bytes.len());
            prop_assert_eq!(Value::decode(&bytes[..at]), Err(ValueError::Unknown));
            bytes[at] = byte;
            if let Ok(other) = Value::decode(&bytes) {
                prop_assert_eq!(other.encode().unwrap(), bytes);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Value::decode(&bytes).is_err());
            let _ = Value::decode(&[&Value::header(1)[..], &bytes].concat());
        }
    }

    #[test]
    fn versions_that_are_no_version_are_refused() {
        for version in [0, u64::MAX] {
            let bytes = Value { version, ..Value::empty() }.encode().unwrap();
            assert_eq!(Value::decode(&bytes), Err(ValueError::Unknown));
        }
    }

    #[test]
    fn what_is_beyond_a_limit_is_not_written() {
        let too_long = |value: Value| assert_eq!(value.encode(), Err(ValueError::TooLong));
        too_long(Value { members: (1..).zip(0..=MAX_MEMBERS as u64).collect(), ..Value::empty() });
        let entry = |len| Entry { bytes: vec![0; len].into(), survives: true };
        let named = |name: String, len| BTreeMap::from([(Arc::from(name), entry(len))]);
        too_long(Value { entries: named("a".repeat(MAX_NAME_BYTES + 1), 0), ..Value::empty() });
        too_long(Value { entries: named("a".into(), MAX_VALUE_BYTES), ..Value::empty() });
        let entries = (0..=MAX_ENTRIES).map(|name| (Arc::from(name.to_string()), entry(0))).collect();
        too_long(Value { entries, ..Value::empty() });
    }
}
