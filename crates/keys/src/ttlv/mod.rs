//! TTLV, the encoding of KMIP (KMIP 1.4, section 9.1): items of tag, type, length and value, in structures of
//! structures.
//!
//! The codec knows no messages; [`crate::kmip`] does. It is strict: what it reads it would write with the same bytes.
//! Depth, number of items and length are bounded ([`limits`]) before memory is taken. It is our own because the crate
//! that exists, `kmip-protocol` 0.4.3, can only be a client, ends at KMIP 1.2, and is called immature by its authors.
//!
//! ```
//! use lunette_keys::ttlv::{Item, Tag, Value, decode, encode};
//!
//! let item = Item::new(Tag::BATCH_COUNT, Value::Integer(1));
//! let bytes = encode(&item);
//! assert_eq!(bytes[..8], [0x42, 0x00, 0x0d, 0x02, 0, 0, 0, 4]);
//! assert_eq!(decode(&bytes)?, item);
//! # Ok::<(), lunette_keys::ttlv::TtlvError>(())
//! ```

mod decode;
mod encode;
mod item;
pub mod limits;
mod tag;
#[cfg(test)]
mod tests;

pub use decode::{TtlvError, decode, message_len};
pub use encode::{encode, encoded_len};
pub use item::{Item, Value};
pub use tag::Tag;

/// The bytes before a value: tag, type and length.
pub const HEADER_LEN: usize = 8;
