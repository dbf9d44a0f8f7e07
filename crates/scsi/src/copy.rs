//! Third-party copy: parameter lists and data of EXTENDED COPY, of the token commands and of what tells their outcome
//! (SPC-5 5.18, 6.5 and following; SBC-4 5.17, 5.47).

pub mod extended;
pub mod results;
pub mod tokens;

use crate::{AdditionalSense, FieldPointer, SenseData};

/// What a copy manager takes at most. The same values are reported and enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyLimits {
    /// MAXIMUM CSCD DESCRIPTOR COUNT.
    pub max_cscds: u16,
    /// MAXIMUM SEGMENT DESCRIPTOR COUNT.
    pub max_segments: u16,
    /// MAXIMUM DESCRIPTOR LIST LENGTH in bytes: both kinds together.
    pub max_descriptors_len: u32,
    /// MAXIMUM SEGMENT LENGTH in bytes.
    pub max_segment_len: u32,
    /// Copies of a logical unit that run at one time.
    pub max_copies: u8,
    /// MAXIMUM RANGES of one token command.
    pub max_ranges: u16,
    /// MAXIMUM TOKEN TRANSFER SIZE in blocks.
    pub max_token_blocks: u64,
    /// What POPULATE TOKEN may ask for at most, in seconds.
    pub max_inactivity_timeout_s: u32,
    /// What it gets when it asks for nothing.
    pub default_inactivity_timeout_s: u32,
}

const LIST_LENGTH: SenseData = SenseData::illegal_request(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

/// Checks `bytes`, which stand at `at` of the parameter list, against a mask of the bits that have a meaning.
fn check_reserved(bytes: &[u8], at: usize, used: &[u8]) -> Result<(), FieldPointer> {
    for (index, (byte, used)) in bytes.iter().zip(used).enumerate() {
        let stray = byte & !used;
        if stray != 0 {
            return Err(field(at + index).bit(stray.ilog2() as u8));
        }
    }
    Ok(())
}

/// The field at `at`. Lists are shorter than 64 KiB.
fn field(at: usize) -> FieldPointer {
    FieldPointer::data(u16::try_from(at).unwrap_or(u16::MAX))
}

/// The number in the `N` bytes at `at`, zero for bytes that are not there.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes.iter().skip(at).take(N).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A list of bytes that grows by fields at fixed places.
fn put(data: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = data.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}
