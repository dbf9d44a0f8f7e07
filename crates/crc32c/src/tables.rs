//! Tables computed at compile time.

use crate::gf2::{multiply, times_x, x_to};

/// A table with an entry for each value of a byte.
pub(crate) type ByteTable = [u32; 256];

/// `SLICES[k][b]`: the change that byte `b` makes to the register when `k` more bytes follow it. Sarwate's table is the
/// first, slicing-by-8 uses eight, and slicing-by-16 all.
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

/// The register after the zero bytes that the tables of [`skip`] stand for.
#[inline]
pub(crate) fn carry_over(register: u32, skip: &[ByteTable; 4]) -> u32 {
    let [a, b, c, d] = register.to_le_bytes().map(usize::from);
    skip[0][a] ^ skip[1][b] ^ skip[2][c] ^ skip[3][d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_products() {
        for (slice, table) in (0..).zip(&SLICES) {
            for byte in 0..=255u8 {
                // A byte is eight coefficients, its lowest bit that of x^7; after it come `slice` bytes, and the
                // register's 32 bits.
                let expected = multiply(u32::from(byte), x_to(8 * slice + 8));
                assert_eq!(table[usize::from(byte)], expected);
            }
        }
    }

    #[test]
    fn a_skip_is_a_product() {
        static SKIP: [ByteTable; 4] = skip(168);
        for register in [0, 1, 0x8000_0000, 0xDEAD_BEEF, u32::MAX] {
            assert_eq!(carry_over(register, &SKIP), multiply(register, x_to(8 * 168)));
        }
    }
}
