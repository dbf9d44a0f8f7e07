//! Quanta: data that is encrypted and authenticated where it is made, and stored as it is.
//!
//! Layer 1: over crc32c; under device, ecl, keys, lunette, volume.
//!
//! The crate is the format of a volume as bytes, and the rules for reading and writing it. It has no I/O, clock or
//! randomness. `docs/quanta.md` describes the format byte by byte, with the purpose of each part against an attacker.
//!
//! A volume is a run of *quanta*, all of one [`QuantumSize`]. Each is sealed into an *EDU* (encrypted data unit): the
//! ciphertext, and a [`Slot`] of 64 bytes with nonce, tag, version, key epoch and CRC. [`Codec`] seals and opens them;
//! [`check`] tells without a key whether one is damaged. [`Parity`] repairs damaged ones without a key. A [`Header`]
//! says what the volume is. Two placements bring EDUs onto a unit: [`Native`], whose block is the EDU, and [`packed`],
//! for units with blocks of 512 or 4096 bytes.
//!
//! The driver of this crate brings the keys, 32 random bytes for each request to seal, and the unit.
// Only `cipher/aegis/wide.rs` has unsafe code: it loads and stores vectors.
#![deny(unsafe_code)]

mod associated;
mod cipher;
mod codec;
mod error;
mod header;
mod key;
pub mod limits;
mod native;
pub mod packed;
mod parity;
mod size;
mod slot;
mod stored_digest;

pub use associated::VolumeId;
pub use cipher::{Cipher, CipherRow, TABLE};
pub use codec::{Codec, Holes, OpenRun, SealRun, Sealing, Seed};
pub use error::{HeaderError, OpenError, Reason};
pub use header::{Group, HEADER_COPIES, HEADER_LEN, Header, Placement};
pub use key::{DataKey, KEY_LEN, KeyRing, KeyRingError};
pub use native::{Native, UnitTooSmall, check_block, first_damaged};
pub use parity::{Members, Parity, Part, RepairError, Repaired};
pub use size::QuantumSize;
pub use slot::{Condition, NONCE_LEN, SLOT_LEN, Slot, TAG_LEN, check, intact_digest, never_written_digest};
pub use stored_digest::StoredDigest;
