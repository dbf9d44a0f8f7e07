//! The lookup tables, computed at compile time from the polynomial.

/// The Castagnoli polynomial, bit-reflected, its leading term left out.
pub(crate) const POLYNOMIAL: u32 = 0x82F6_3B78;

/// `SLICES[k][b]`: what byte `b` does to the register when `k` more bytes follow it.
pub(crate) static SLICES: [[u32; 256]; 8] = slices();

const fn slices() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            register = (register >> 1) ^ (POLYNOMIAL & (register & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = register;
        byte += 1;
    }
    let mut slice = 1;
    while slice < 8 {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[slice - 1][byte];
            tables[slice][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xFF) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}
