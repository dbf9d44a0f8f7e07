//! Data that does not compress and does not repeat, the same in every run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// `len` bytes derived from `seed` (xorshift64*).
pub fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(len);
    bytes
}

/// Fills a new file with `mebibytes` of such data.
pub fn random_file(path: &Path, seed: u64, mebibytes: u64) {
    let mut file = BufWriter::new(File::create(path).expect("a file in a temporary folder"));
    for part in 0..mebibytes {
        file.write_all(&random_bytes(seed + part, 1 << 20)).expect("room for the file");
    }
    file.flush().expect("room for the file");
}
