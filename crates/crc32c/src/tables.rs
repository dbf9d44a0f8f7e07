//! Tables computed at compile time.

use crate::gf2::times_x;

/// A table with an entry for each value of a byte.
pub(crate) type ByteTable = [u32; 256];

/// `SLICES[k][b]`: the change that byte `b` makes to the register when `k` more bytes follow it. Sarwate's table is the first, slicing-by-8 uses
/// eight, and slicing-by-16 all.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf2::{multiply, x_to};

    #[test]
    fn slices_are_products() {
        for (slice, table) in (0..).zip(&SLICES) {
            for byte in 0..=255u8 {
                // A byte is eight coefficients, its lowest bit that of x^7; after it come `slice` bytes, and the register's 32 bits.
                let expected = multiply(u32::from(byte), x_to(8 * slice + 8));
                assert_eq!(table[usize::from(byte)], expected);
            }
        }
    }
}
