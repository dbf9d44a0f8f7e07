//! Factors that carry a part of a message over the bytes that come after it.

use crate::gf2::x_to;

/// The factor that carries a 64-bit word of a message forward over `bytes` bytes by carry-less multiplication: `x^(8 *
/// bytes + 31)`.
///
/// A reflected word `w` and a reflected 32-bit factor `f` in the low half of a 64-bit operand give the 128-bit product
/// `w * f * x^33`: 32 because the factor's lowest bit stands for `x^31` of 32 bits and not for `x^63`, one because a
/// product of 64-bit operands has 127 bits, which the instruction leaves at the low, that is the high-degree, end. So
///
/// - as part of a 128-bit lane that lies `d` bytes further on, the lane's first word needs `x^(8d + 64)` and so the
///   factor `carry(d)`, its second needs `x^(8d)`, the factor `carry(d - 8)`;
/// - as a contribution to the register behind the message, a word with `d` bytes after it needs `x^(8d + 32)`. The
///   product with `carry(d)` is 32 degrees above that, so its low three quarters are the sum `w' * x^32 + r`, which one
///   `crc32q` of `w'` and one XOR with `r` reduce;
/// - a register `s` with `d` bytes after it is a word of degree 32 more, and so takes the factor `carry(d - 8)`.
pub(crate) const fn carry(bytes: i64) -> u64 {
    x_to(8 * bytes + 31) as u64
}

/// The farthest word, in bytes before the end of the message, that [`CARRIES`] has a factor for.
const FARTHEST: usize = 512;

/// Entries of [`CARRIES`].
const CARRY_COUNT: usize = FARTHEST / 8;

/// Factors of descending distance, aligned for wide loads.
#[repr(C, align(64))]
struct Carries([u64; CARRY_COUNT]);

/// The factors that carry the last words of a message to its end: for the word that begins `n` bytes before the end,
/// and so has `n - 8` after it, the entry `(FARTHEST - n) / 8`. The factors of a vector lie side by side, so one load
/// fetches them.
static CARRIES: Carries = {
    let mut factors = [0; CARRY_COUNT];
    let mut index = 0;
    while index < CARRY_COUNT {
        let behind = FARTHEST.cast_signed() - 8 - 8 * index.cast_signed();
        factors[index] = carry(behind as i64);
        index += 1;
    }
    Carries(factors)
};

/// The factors of the words that begin `left` bytes before the end of the message and later, in order; `left` is a
/// multiple of 8 and at most 512.
#[inline]
pub(crate) fn carries_from(left: usize) -> *const u64 {
    debug_assert!(left.is_multiple_of(8) && left <= FARTHEST);
    CARRIES.0.as_ptr().wrapping_byte_add(FARTHEST.wrapping_sub(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_end_with_the_message() {
        // The last word has nothing after it; the first has all 512 bytes except its own.
        assert_eq!(CARRIES.0[CARRY_COUNT - 1], u64::from(x_to(31)));
        assert_eq!(CARRIES.0[0], carry(504));
        let from_the_third_last = carries_from(24);
        assert_eq!(from_the_third_last, &raw const CARRIES.0[CARRY_COUNT - 3]);
    }
}
