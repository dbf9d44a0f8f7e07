//! Tables computed at compile time.

use crate::gf2::{carry, multiply, times_x, x_to};

/// One table of 256 entries for a byte.
pub(crate) type ByteTable = [u32; 256];

/// `SLICES[k][b]`: what byte `b` does to the register when `k` more bytes follow it. Sarwate's table is the first, slicing-by-8 uses eight, and
/// slicing-by-16 all.
pub(crate) static SLICES: [ByteTable; 16] = {
    let mut tables = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            register = times_x(register);
            bit += 1;
        }
        tables[0][byte] = register;
        byte += 1;
    }
    let mut slice = 1;
    while slice < tables.len() {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[slice - 1][byte];
            tables[slice][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xFF) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
};

/// Four tables, one for each byte of a register, that together carry it over `bytes` zero bytes.
pub(crate) const fn skip(bytes: i64) -> [ByteTable; 4] {
    let factor = x_to(8 * bytes);
    let mut tables = [[0; 256]; 4];
    let mut place = 0;
    while place < 4 {
        // Entries are sums of the entries of their single bits.
        let mut bit = 0;
        while bit < 8 {
            let single = multiply(1 << (8 * place + bit), factor);
            let mut below = 0;
            while below < 1 << bit {
                tables[place][(1 << bit) + below] = tables[place][below] ^ single;
                below += 1;
            }
            bit += 1;
        }
        place += 1;
    }
    tables
}

/// The farthest word, in bytes before the end, that [`CARRIES`] brings home.
const FARTHEST: usize = 512;

/// Words that end behind the end of the message: the unread part of a last, partial vector.
const BEHIND: usize = 64;

/// Entries of [`CARRIES`].
const CARRY_COUNT: usize = (FARTHEST + BEHIND) / 8;

/// Factors of descending distance, aligned for wide loads.
#[repr(C, align(64))]
pub(crate) struct Carries([u64; CARRY_COUNT]);

/// The factors that bring the last words of a message home: for the word that begins `n` bytes before the end, and so has `n - 8` after it, the
/// entry `(FARTHEST - n) / 8`. A vector's factors lie side by side, so one load fetches them.
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

/// Where the factors begin for a vector of up to 64 bytes that begins `left` bytes before the end of the message; `left` is a multiple of 8 and
/// from 8 to 512.
#[inline]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "the carry-less kernels are x86-64's"))]
pub(crate) fn carries_from(left: usize) -> *const u64 {
    debug_assert!(left.is_multiple_of(8) && (8..=FARTHEST).contains(&left));
    CARRIES.0.as_ptr().wrapping_byte_add(FARTHEST.wrapping_sub(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_a_product() {
        static SKIP: [ByteTable; 4] = skip(168);
        for register in [0, 1, 0x8000_0000, 0xDEAD_BEEF, u32::MAX] {
            let mut skipped = 0;
            for (byte, table) in register.to_le_bytes().iter().zip(&SKIP) {
                skipped ^= table[usize::from(*byte)];
            }
            assert_eq!(skipped, multiply(register, x_to(8 * 168)));
        }
    }

    #[test]
    fn slices_are_products() {
        for (slice, table) in (0..).zip(&SLICES) {
            for byte in 0..=255u8 {
                // A byte is eight coefficients, its lowest bit that of x^7; behind it come `slice` bytes, and the register's 32 bits.
                let expected = multiply(u32::from(byte), x_to(8 * slice + 8));
                assert_eq!(table[usize::from(byte)], expected);
            }
        }
    }
}
