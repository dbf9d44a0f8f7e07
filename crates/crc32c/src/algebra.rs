//! Operations on CRCs that need no message bytes.

use crate::gf2::{multiply, x_to_bytes};
use crate::tables::{ByteTable, carry_over, skip};

/// The CRC32C of two messages put together, from the CRC32C of each and the length in bytes of the second, in
/// logarithmic time.
///
/// ```
/// use lunette_crc32c::{combine, crc32c};
///
/// assert_eq!(combine(crc32c(b"1234"), crc32c(b"56789"), 5), crc32c(b"123456789"));
/// ```
pub const fn combine(first: u32, second: u32, second_len: u64) -> u32 {
    // The complements at the start and at the end of the second message cancel out against those of the whole.
    multiply(first, x_to_bytes(second_len)) ^ second
}

/// The CRC32C of `len` zero bytes, in logarithmic time.
///
/// ```
/// use lunette_crc32c::{crc32c, zeroes};
///
/// assert_eq!(zeroes(32), crc32c(&[0; 32]));
/// ```
pub const fn zeroes(len: u64) -> u32 {
    !multiply(u32::MAX, x_to_bytes(len))
}

/// [`combine`] for second messages of one length, by four lookups in a table of 4 KiB.
///
/// ```
/// use lunette_crc32c::{Combiner, crc32c};
///
/// static FIVE_MORE: Combiner = Combiner::new(5);
/// assert_eq!(FIVE_MORE.combine(crc32c(b"1234"), crc32c(b"56789")), crc32c(b"123456789"));
/// ```
pub struct Combiner([ByteTable; 4]);

impl Combiner {
    /// The combiner for second messages of `second_len` bytes.
    pub const fn new(second_len: u32) -> Self {
        Self(skip(second_len as i64))
    }

    /// The CRC32C of two messages put together, from the CRC32C of each.
    #[inline]
    pub fn combine(&self, first: u32, second: u32) -> u32 {
        carry_over(first, &self.0) ^ second
    }
}
