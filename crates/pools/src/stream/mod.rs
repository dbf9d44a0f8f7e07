//! The format of a stream: the content of a snapshot, or what it changed of an earlier one, as bytes.
//!
//! The codec has no I/O. A [`Writer`] gives the bytes beside the data, and a [`Reader`] is fed the bytes that it
//! [wants](Reader::wanted). Numbers have the first byte in front.
//!
//! ```text
//! preamble  "LunetteV" | version, u32 | length of the header, u32 | header in JSON | CRC32C of all before, u32
//! record    kind, u32 | offset, u64 | length, u64 | CRC32C of the data, u32 | CRC32C of the 24 bytes before, u32
//! data      the bytes of a record of data, or the chain of an end record, u32
//! ```
//!
//! Records come in the order of their offsets. Of kind 1 are data, and of kind 2 zeroes, which have no bytes. Kind 3
//! ends the stream: its offset is the number of the records before, and its four bytes of data are their *chain*. The
//! chain of no records is 0; a record makes it the CRC32C of the chain before and of the record without its data. So
//! the end tells of every bit of all records, and of one that is missing, doubled or in another place.

mod header;
mod reader;
mod writer;

pub use header::{Header, SentSnapshot, Since, is_identity};
pub use reader::{Item, Reader};
pub use writer::Writer;

/// The beginning of a stream.
pub const MAGIC: [u8; 8] = *b"LunetteV";

/// The version of the format that this program writes and reads.
pub const VERSION: u32 = 1;

/// Bytes of the preamble before the header.
pub const PREAMBLE_BYTES: usize = 16;

/// Bytes of a record without its data.
pub const RECORD_BYTES: usize = 28;

/// Bytes of a record that its own checksum is of.
const CHECKED_BYTES: usize = RECORD_BYTES - CRC_BYTES;

/// Bytes of a checksum.
const CRC_BYTES: usize = 4;

const DATA: u32 = 1;
const ZEROES: u32 = 2;
const END: u32 = 3;

/// Says why bytes are no stream, or none that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The first bytes are others.
    #[error("this is no stream of lunette volume send")]
    Magic,
    /// The format has another version.
    #[error("this stream has version {0}, and not {VERSION}; use a newer version of Lunette")]
    Version(u32),
    /// The header is longer than any.
    #[error("the header of this stream would have {0} bytes, which is too long")]
    LongHeader(u32),
    /// The header cannot be used.
    #[error("the header of this stream cannot be used: {0}")]
    Header(String),
    /// A checksum is wrong.
    #[error("this stream is damaged at its byte {0}; send it again")]
    Damaged(u64),
    /// The sender has made a record that no stream has.
    #[error("the record at byte {at} of this stream is wrong: {why}")]
    Record {
        /// The position of the record.
        at: u64,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The records are not those that the sender has counted.
    #[error("this stream has lost or doubled records; send it again")]
    Chain,
}

/// A record without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    kind: u32,
    offset: u64,
    len: u64,
    data_crc: u32,
}

impl Record {
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.kind.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.offset.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.len.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.data_crc.to_be_bytes());
        let crc = lunette_crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// The record of these bytes, if their checksum is right.
    fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (checked, crc) = bytes.split_at(CHECKED_BYTES);
        if u32_at(crc, 0) != lunette_crc32c::crc32c(checked) {
            return None;
        }
        Some(Self {
            kind: u32_at(checked, 0),
            offset: u64_at(checked, 4),
            len: u64_at(checked, 12),
            data_crc: u32_at(checked, 20),
        })
    }
}

/// The digest of all records up to one.
fn chained(chain: u32, record: &[u8; RECORD_BYTES]) -> u32 {
    let mut digest = lunette_crc32c::Crc32c::new();
    digest.update(&chain.to_be_bytes());
    digest.update(record);
    digest.finish()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests;
