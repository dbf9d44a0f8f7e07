//! Third-party copy: parameter lists and data of EXTENDED COPY, the token commands, and the commands that report on
//! copies (SPC-5 5.18, 6.5 and following; SBC-4 5.17, 5.47).

pub mod extended;
pub mod results;
pub mod tokens;

use crate::FieldPointer;

/// The limits of a copy manager. The same values are reported and enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyLimits {
    /// MAXIMUM CSCD DESCRIPTOR COUNT.
    pub max_cscds: u16,
    /// MAXIMUM SEGMENT DESCRIPTOR COUNT.
    pub max_segments: u16,
    /// MAXIMUM DESCRIPTOR LIST LENGTH in bytes, of CSCD and segment descriptors together.
    pub max_descriptors_len: u32,
    /// MAXIMUM SEGMENT LENGTH in bytes.
    pub max_segment_len: u32,
    /// Number of copies that run on a logical unit at one time.
    pub max_copies: u8,
    /// MAXIMUM RANGES of one token command.
    pub max_ranges: u16,
    /// MAXIMUM TOKEN TRANSFER SIZE in blocks.
    pub max_token_blocks: u64,
    /// The longest inactivity timeout that POPULATE TOKEN may request, in seconds.
    pub max_inactivity_timeout_s: u32,
    /// The inactivity timeout in seconds when POPULATE TOKEN requests none.
    pub default_inactivity_timeout_s: u32,
}

/// Checks the bytes at offset `at` of the parameter list against `used`, the mask of the defined bits.
fn check_reserved(bytes: &[u8], at: usize, used: &[u8]) -> Result<(), FieldPointer> {
    for (index, (byte, used)) in bytes.iter().zip(used).enumerate() {
        let stray = byte & !used;
        if stray != 0 {
            return Err(field(at + index).bit(stray.ilog2() as u8));
        }
    }
    Ok(())
}

/// The field at offset `at`. Lists are shorter than 64 KiB.
fn field(at: usize) -> FieldPointer {
    FieldPointer::data(u16::try_from(at).unwrap_or(u16::MAX))
}

/// The big-endian number in the `N` bytes at `at`. Bytes beyond the end are ignored.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes.iter().skip(at).take(N).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Writes `field` at offset `at` of `data`.
fn put(data: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = data.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}
