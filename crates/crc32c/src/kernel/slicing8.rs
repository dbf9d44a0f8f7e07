//! Slicing-by-8: eight bytes a step, one table lookup for each.

use crate::tables::SLICES;

pub(super) fn update(mut register: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        register = step(register, *word);
    }
    for byte in rest {
        register = step_byte(register, *byte);
    }
    register
}

pub(super) fn copy(mut register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let (words, rest) = src.as_chunks::<8>();
    let (word_places, rest_places) = dst.as_chunks_mut::<8>();
    for (place, word) in word_places.iter_mut().zip(words) {
        let word = *word;
        *place = word;
        register = step(register, word);
    }
    for (place, byte) in rest_places.iter_mut().zip(rest) {
        let byte = *byte;
        *place = byte;
        register = step_byte(register, byte);
    }
    register
}

fn step(register: u32, word: [u8; 8]) -> u32 {
    let word = u64::from_le_bytes(word) ^ u64::from(register);
    let slices = word.to_le_bytes();
    let mut next = 0;
    for (slice, table) in slices.iter().zip(SLICES.iter().rev()) {
        next ^= table[usize::from(*slice)];
    }
    next
}

fn step_byte(register: u32, byte: u8) -> u32 {
    let [low, ..] = register.to_le_bytes();
    (register >> 8) ^ SLICES[0][usize::from(low ^ byte)]
}
