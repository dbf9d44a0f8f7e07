//! The header of a volume: 512 bytes at its beginning, in two copies.

use std::ops::RangeInclusive;

use crate::associated::VolumeId;
use crate::cipher::Cipher;
use crate::codec::{Holes, Seed};
use crate::error::HeaderError;
use crate::key::KeyRing;
use crate::limits::{MAX_EPOCHS, MAX_GROUP_DATA, MAX_GROUP_PARITY, MAX_JOURNAL_LEN, MAX_QUANTA, MIN_JOURNAL_LEN};
use crate::packed::MAX_BLOCK_LEN;
use crate::size::QuantumSize;
use crate::slot::{CRC_AT, SLOT_LEN, Slot, array};

/// Bytes of a header: the smallest block.
pub const HEADER_LEN: usize = 512;

/// Copies of the header in a volume.
pub const HEADER_COPIES: u64 = 2;

const SLOT_AT: usize = HEADER_LEN - SLOT_LEN;

/// Bytes that the tag of a header covers: all fields, generation and epoch.
pub(crate) const AUTHENTICATED_LEN: usize = SLOT_AT + 12;

const MAGIC: [u8; 8] = *b"LUNQUANT";
const FORMAT_VERSION: u16 = 1;
const NATIVE: u8 = 1;
const PACKED: u8 = 2;
const FLAG_NO_HOLES: u32 = 1;

/// Where the first byte of each field is.
mod at {
    pub(super) const FORMAT_VERSION: usize = 8;
    pub(super) const CIPHER: usize = 10;
    pub(super) const PLACEMENT: usize = 11;
    pub(super) const SIZE: usize = 12;
    pub(super) const VOLUME: usize = 16;
    pub(super) const QUANTA: usize = 32;
    pub(super) const JOURNAL_LEN: usize = 40;
    pub(super) const BLOCK_LEN: usize = 48;
    pub(super) const FLAGS: usize = 52;
    pub(super) const FIRST_EPOCH: usize = 56;
    pub(super) const NEWEST_EPOCH: usize = 60;
    pub(super) const GROUP_DATA: usize = 64;
    pub(super) const GROUP_PARITY: usize = 66;
    pub(super) const RESERVED: usize = 68;
}

/// How a volume lies on its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The unit's block is the EDU.
    Native,
    /// Ciphertexts, slots and a journal in blocks of the usual lengths.
    Packed {
        /// Bytes of the unit's block: 512 or 4096.
        block_len: u32,
        /// Bytes of the journal.
        journal_len: u64,
    },
}

/// The sizes of a parity group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The number of data EDUs in a group.
    pub data: u16,
    /// Parity EDUs: as many damaged EDUs of the group can be repaired.
    pub parity: u16,
}

impl Group {
    /// The bounds of both.
    pub(crate) fn check(self) -> Result<(), HeaderError> {
        within("data EDUs of a group", self.data.into(), 1..=MAX_GROUP_DATA.into())?;
        within("parity EDUs of a group", self.parity.into(), 1..=MAX_GROUP_PARITY.into())
    }
}

/// The description that a volume has of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The volume.
    pub volume: VolumeId,
    /// The cipher of the volume.
    pub cipher: Cipher,
    /// The size of its quanta.
    pub size: QuantumSize,
    /// How it lies on the unit.
    pub placement: Placement,
    /// How many quanta it has.
    pub quanta: u64,
    /// Whether quanta may be without content.
    pub holes: Holes,
    /// The oldest epoch of which there may be quanta.
    pub first_epoch: u32,
    /// The newest epoch: that of the key that seals quanta, and this header.
    pub newest_epoch: u32,
    /// The parity groups, where the volume has them.
    pub group: Option<Group>,
    /// How often the header was changed. Its lowest bit names the copy that holds it.
    pub generation: u64,
}

/// Whether the bytes are those of a header, of whatever version, and undamaged: magic and CRC have their places for
/// ever.
pub(crate) fn is_whole(bytes: &[u8; HEADER_LEN]) -> bool {
    let slot = Slot::decode(&array(bytes, SLOT_AT));
    bytes[..MAGIC.len()] == MAGIC && slot.crc == lunette_crc32c::crc32c(&bytes[..SLOT_AT + CRC_AT])
}

impl Header {
    /// Which copy holds this header: 0 or 1. A change writes the other copy than the one it replaces, so one is always
    /// whole.
    pub fn copy(&self) -> u64 {
        self.generation % HEADER_COPIES
    }

    /// Reads a header without a key, and believes it: for tools that look at a volume, and to know which keys to fetch.
    ///
    /// # Errors
    ///
    /// [`HeaderError`], except its last two kinds.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, HeaderError> {
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(HeaderError::NoHeader);
        }
        let format_version = u16::from_le_bytes(array(bytes, at::FORMAT_VERSION));
        if format_version != FORMAT_VERSION {
            return Err(HeaderError::FormatVersion(format_version));
        }
        if !is_whole(bytes) {
            return Err(HeaderError::Damaged);
        }
        let slot = Slot::decode(&array(bytes, SLOT_AT));
        let header = Self::fields(bytes, &slot)?;
        header.check()?;
        Ok(header)
    }

    /// Reads a header and verifies that an owner of the volume's keys made it.
    ///
    /// # Errors
    ///
    /// [`HeaderError`].
    pub fn open(bytes: &[u8; HEADER_LEN], keys: &KeyRing) -> Result<Self, HeaderError> {
        let header = Self::decode(bytes)?;
        let slot = Slot::decode(&array(bytes, SLOT_AT));
        let key = keys.get(slot.epoch).ok_or(HeaderError::UnknownEpoch(slot.epoch))?;
        key.open(&slot.nonce, &authenticated(bytes, &slot), &mut [], &slot.tag)
            .map_err(|_| HeaderError::NotAuthentic)?;
        Ok(header)
    }

    /// The header's bytes, sealed with the key of its newest epoch.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Field`] for a field out of its bounds, [`HeaderError::UnknownEpoch`] without a key of the newest
    /// epoch.
    pub fn seal(&self, keys: &KeyRing, seed: &Seed) -> Result<[u8; HEADER_LEN], HeaderError> {
        self.check()?;
        let key = keys.get(self.newest_epoch).ok_or(HeaderError::UnknownEpoch(self.newest_epoch))?;
        let mut bytes = [0; HEADER_LEN];
        self.put_fields(&mut bytes);
        let mut slot =
            Slot { nonce: seed.nonce(0), tag: [0; 16], version: self.generation, epoch: self.newest_epoch, crc: 0 };
        slot.tag = key.seal(&slot.nonce, &authenticated(&bytes, &slot), &mut []);
        let (fields, place) = bytes.split_last_chunk_mut().expect("a header is longer than a slot");
        slot.encode(place);
        let crc = lunette_crc32c::crc32c(&[&*fields, &place[..CRC_AT]].concat());
        place[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    fn fields(bytes: &[u8; HEADER_LEN], slot: &Slot) -> Result<Self, HeaderError> {
        let field = |field, value: u64| HeaderError::Field { field, value };
        let u32_at = |at| u32::from_le_bytes(array(bytes, at));
        let u64_at = |at| u64::from_le_bytes(array(bytes, at));
        let (cipher, size) = (bytes[at::CIPHER], u32_at(at::SIZE));
        let (block_len, journal_len) = (u32_at(at::BLOCK_LEN), u64_at(at::JOURNAL_LEN));
        let size = QuantumSize::of_bytes(size.into()).ok_or(field("quantum size", size.into()))?;
        let placement = match bytes[at::PLACEMENT] {
            NATIVE if block_len as usize != size.edu_len() => return Err(field("block length", block_len.into())),
            NATIVE if journal_len != 0 => return Err(field("journal length", journal_len)),
            NATIVE => Placement::Native,
            PACKED => Placement::Packed { block_len, journal_len },
            other => return Err(field("placement", other.into())),
        };
        let flags = u32_at(at::FLAGS);
        if flags & !FLAG_NO_HOLES != 0 {
            return Err(field("flags", flags.into()));
        }
        if let Some(byte) = bytes[at::RESERVED..SLOT_AT].iter().find(|byte| **byte != 0) {
            return Err(field("reserved bytes", (*byte).into()));
        }
        let group = |at| u16::from_le_bytes(array(bytes, at));
        let group = Group { data: group(at::GROUP_DATA), parity: group(at::GROUP_PARITY) };
        if slot.epoch != u32_at(at::NEWEST_EPOCH) {
            return Err(field("epoch of the seal", slot.epoch.into()));
        }
        Ok(Self {
            volume: VolumeId(array(bytes, at::VOLUME)),
            cipher: Cipher::of_id(cipher).ok_or(field("cipher", cipher.into()))?,
            size,
            placement,
            quanta: u64_at(at::QUANTA),
            holes: if flags & FLAG_NO_HOLES == 0 { Holes::Allowed } else { Holes::Refused },
            first_epoch: u32_at(at::FIRST_EPOCH),
            newest_epoch: slot.epoch,
            group: (group != Group { data: 0, parity: 0 }).then_some(group),
            generation: slot.version,
        })
    }

    fn put_fields(&self, bytes: &mut [u8; HEADER_LEN]) {
        let (placement, block_len, journal_len) = match self.placement {
            Placement::Native => (NATIVE, self.size.edu_len() as u32, 0),
            Placement::Packed { block_len, journal_len } => (PACKED, block_len, journal_len),
        };
        let flags = if self.holes == Holes::Refused { FLAG_NO_HOLES } else { 0 };
        let group = self.group.unwrap_or(Group { data: 0, parity: 0 });
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(at::FORMAT_VERSION, &FORMAT_VERSION.to_le_bytes());
        put(at::CIPHER, &[self.cipher.row().id]);
        put(at::PLACEMENT, &[placement]);
        put(at::SIZE, &(self.size.bytes() as u32).to_le_bytes());
        put(at::VOLUME, &self.volume.0);
        put(at::QUANTA, &self.quanta.to_le_bytes());
        put(at::JOURNAL_LEN, &journal_len.to_le_bytes());
        put(at::BLOCK_LEN, &block_len.to_le_bytes());
        put(at::FLAGS, &flags.to_le_bytes());
        put(at::FIRST_EPOCH, &self.first_epoch.to_le_bytes());
        put(at::NEWEST_EPOCH, &self.newest_epoch.to_le_bytes());
        put(at::GROUP_DATA, &group.data.to_le_bytes());
        put(at::GROUP_PARITY, &group.parity.to_le_bytes());
    }

    /// The bounds of every field that the types leave open.
    fn check(&self) -> Result<(), HeaderError> {
        within("number of quanta", self.quanta, 1..=MAX_QUANTA)?;
        within("first epoch", self.first_epoch.into(), 1..=self.newest_epoch.into())?;
        let newest = u64::from(self.first_epoch) + u64::from(MAX_EPOCHS) - 1;
        within("newest epoch", self.newest_epoch.into(), self.first_epoch.into()..=newest)?;
        self.group.map_or(Ok(()), Group::check)?;
        if let Placement::Packed { block_len, journal_len } = self.placement {
            if !matches!(block_len, 512 | 4096) || block_len as usize > self.size.bytes() {
                return Err(HeaderError::Field { field: "block length", value: block_len.into() });
            }
            within("journal length", journal_len, MIN_JOURNAL_LEN..=MAX_JOURNAL_LEN)?;
            within("journal length", journal_len % u64::from(MAX_BLOCK_LEN), 0..=0)?;
        }
        Ok(())
    }
}

fn within(field: &'static str, value: u64, bounds: RangeInclusive<u64>) -> Result<(), HeaderError> {
    if bounds.contains(&value) { Ok(()) } else { Err(HeaderError::Field { field, value }) }
}

/// The bytes that the tag covers.
fn authenticated(bytes: &[u8; HEADER_LEN], slot: &Slot) -> [u8; AUTHENTICATED_LEN] {
    let mut covered = [0; AUTHENTICATED_LEN];
    covered[..SLOT_AT].copy_from_slice(&bytes[..SLOT_AT]);
    covered[SLOT_AT..SLOT_AT + 8].copy_from_slice(&slot.version.to_le_bytes());
    covered[SLOT_AT + 8..].copy_from_slice(&slot.epoch.to_le_bytes());
    covered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataKey;

    fn header() -> Header {
        Header {
            volume: VolumeId([1; 16]),
            cipher: Cipher::Aegis256,
            size: QuantumSize::B1024,
            placement: Placement::Packed { block_len: 512, journal_len: 1 << 20 },
            quanta: 1000,
            holes: Holes::Allowed,
            first_epoch: 1,
            newest_epoch: 3,
            group: None,
            generation: 4,
        }
    }

    #[test]
    fn fields_have_bounds() {
        let ring = KeyRing::new(Cipher::Aegis256, 3, &DataKey::new([1; 32])).unwrap();
        let refused = |header: Header| match header.seal(&ring, &Seed::new([0; 32])) {
            Err(HeaderError::Field { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let packed = |block_len, journal_len| Placement::Packed { block_len, journal_len };
        let group = |data, parity| Some(Group { data, parity });
        assert!(header().seal(&ring, &Seed::new([0; 32])).is_ok());
        for (field, header) in [
            ("number of quanta", Header { quanta: 0, ..header() }),
            ("number of quanta", Header { quanta: MAX_QUANTA + 1, ..header() }),
            ("first epoch", Header { first_epoch: 0, ..header() }),
            ("first epoch", Header { first_epoch: 4, ..header() }),
            ("newest epoch", Header { newest_epoch: MAX_EPOCHS + 1, ..header() }),
            ("data EDUs of a group", Header { group: group(0, 1), ..header() }),
            ("data EDUs of a group", Header { group: group(MAX_GROUP_DATA + 1, 1), ..header() }),
            ("parity EDUs of a group", Header { group: group(1, 0), ..header() }),
            ("parity EDUs of a group", Header { group: group(1, MAX_GROUP_PARITY + 1), ..header() }),
            ("block length", Header { placement: packed(1024, 1 << 20), ..header() }),
            ("block length", Header { placement: packed(4096, 1 << 20), ..header() }),
            ("journal length", Header { placement: packed(512, MIN_JOURNAL_LEN - 4096), ..header() }),
            ("journal length", Header { placement: packed(512, MAX_JOURNAL_LEN + 4096), ..header() }),
            ("journal length", Header { placement: packed(512, MIN_JOURNAL_LEN + 512), ..header() }),
        ] {
            assert_eq!(refused(header), field);
        }
    }

    #[test]
    fn bytes_that_no_writer_makes_are_refused_by_their_field() {
        let ring = KeyRing::new(Cipher::Aegis256, 3, &DataKey::new([1; 32])).unwrap();
        let bytes = header().seal(&ring, &Seed::new([0; 32])).unwrap();
        for (at, value, expected) in [
            (0, 0, HeaderError::NoHeader),
            (8, 2, HeaderError::FormatVersion(2)),
            (10, 9, HeaderError::Field { field: "cipher", value: 9 }),
            (11, 1, HeaderError::Field { field: "block length", value: 512 }),
            (11, 3, HeaderError::Field { field: "placement", value: 3 }),
            (12, 1, HeaderError::Field { field: "quantum size", value: 1025 }),
            (52, 2, HeaderError::Field { field: "flags", value: 2 }),
            (60, 2, HeaderError::Field { field: "epoch of the seal", value: 3 }),
            (447, 1, HeaderError::Field { field: "reserved bytes", value: 1 }),
        ] {
            let mut bytes = bytes;
            bytes[at] = value;
            let crc = lunette_crc32c::crc32c(&bytes[..HEADER_LEN - 4]);
            bytes[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Header::decode(&bytes), Err(expected));
        }
    }
}
