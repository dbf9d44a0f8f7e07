//! The 64 bytes beside each ciphertext.

use lunette_crc32c::{Crc32c, combine, crc32c, zeroes};

use crate::QuantumSize;

/// Bytes of a slot.
pub const SLOT_LEN: usize = 64;

/// Bytes of a nonce, for every cipher.
pub const NONCE_LEN: usize = 32;

/// Bytes of a tag, for every cipher.
pub const TAG_LEN: usize = 16;

const TAG_AT: usize = NONCE_LEN;
const VERSION_AT: usize = TAG_AT + TAG_LEN;
const EPOCH_AT: usize = VERSION_AT + 8;
/// Where the CRC stands; it covers what is before it.
pub(crate) const CRC_AT: usize = EPOCH_AT + 4;

/// The fields of a slot, in the order of their bytes. Integers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The nonce of the ciphertext: 32 random bytes.
    pub nonce: [u8; NONCE_LEN],
    /// The tag over ciphertext and associated data.
    pub tag: [u8; TAG_LEN],
    /// The number that the writer gave this content of the quantum. A later content has a higher one.
    pub version: u64,
    /// The epoch of the key.
    pub epoch: u32,
    /// The CRC32C over the position, the ciphertext and the fields above.
    pub crc: u32,
}

impl Slot {
    /// Reads a slot. Every 64 bytes are one; whether it means something is for [`check`] and the tag to say.
    pub fn decode(bytes: &[u8; SLOT_LEN]) -> Self {
        Self {
            nonce: array(bytes, 0),
            tag: array(bytes, TAG_AT),
            version: u64::from_le_bytes(array(bytes, VERSION_AT)),
            epoch: u32::from_le_bytes(array(bytes, EPOCH_AT)),
            crc: u32::from_le_bytes(array(bytes, CRC_AT)),
        }
    }

    /// Writes a slot.
    pub fn encode(&self, bytes: &mut [u8; SLOT_LEN]) {
        bytes[..TAG_AT].copy_from_slice(&self.nonce);
        bytes[TAG_AT..VERSION_AT].copy_from_slice(&self.tag);
        bytes[VERSION_AT..EPOCH_AT].copy_from_slice(&self.version.to_le_bytes());
        bytes[EPOCH_AT..CRC_AT].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[CRC_AT..].copy_from_slice(&self.crc.to_le_bytes());
    }
}

/// `N` bytes from `at`, which lie within `bytes`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

/// The CRC that belongs into a slot at a position.
pub(crate) fn crc_of(position: u64, slot: &[u8; SLOT_LEN], data: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&position.to_le_bytes());
    crc.update(data);
    crc.update(&slot[..CRC_AT]);
    crc.finish()
}

/// The condition of an EDU by its bytes alone, without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The CRC is that of these bytes at this position. Only a key tells whether an owner of the volume made them.
    Intact,
    /// Every byte is zero: the quantum was never written, or was unmapped.
    NeverWritten,
    /// The bytes are not what was sealed for this position.
    Damaged,
}

/// Checks a ciphertext and its slot at `position` without a key, as a server's scrub can.
///
/// It finds damage and EDUs that stand in the wrong place. It does not find forgeries, because a CRC needs no key.
pub fn check(position: u64, data: &[u8], slot: &[u8; SLOT_LEN]) -> Condition {
    if slot.iter().all(|byte| *byte == 0) {
        let hole = data.iter().all(|byte| *byte == 0);
        return if hole { Condition::NeverWritten } else { Condition::Damaged };
    }
    let stored = u32::from_le_bytes(array(slot, CRC_AT));
    if stored == crc_of(position, slot, data) { Condition::Intact } else { Condition::Damaged }
}

/// The CRC32C of all bytes of an intact EDU, which depends on its position alone.
///
/// A CRC that follows its own message makes the CRC of both a constant. Here the message begins with the position,
/// which is not stored. So a server knows the data digest of an intact EDU without reading it: a digest made of these,
/// with [`lunette_crc32c::combine`], goes with bytes that are sent from a file. It tells the receiver that the EDUs are
/// intact and in their place, not which version they are.
///
/// ```
/// use lunette_quanta::{QuantumSize, intact_digest, never_written_digest};
/// # use lunette_quanta::{Cipher, Codec, DataKey, Holes, KeyRing, Seed, Sealing, VolumeId};
/// # let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32])).unwrap();
/// # let codec = Codec::new(VolumeId([1; 16]), QuantumSize::B512, Holes::Allowed, ring);
/// let mut edu = vec![0; 576];
/// codec.seal(Sealing { position: 9, version: 1, seed: Seed::new([2; 32]) }, &[0x5a; 512], &mut edu);
/// assert_eq!(lunette_crc32c::crc32c(&edu), intact_digest(9, QuantumSize::B512));
/// assert_eq!(lunette_crc32c::crc32c(&[0; 576]), never_written_digest(QuantumSize::B512));
/// ```
pub fn intact_digest(position: u64, size: QuantumSize) -> u32 {
    combine(crc32c(&position.to_le_bytes()), zeroes(4), size.edu_len() as u64)
}

/// The CRC32C of an EDU of zeroes.
pub fn never_written_digest(size: QuantumSize) -> u32 {
    zeroes(size.edu_len() as u64)
}
