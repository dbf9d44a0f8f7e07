//! What lies on the disks of the simulated target: blocks that tell who wrote them.
//!
//! A block is written by one command as a whole, and its bytes follow from where it is and which command wrote it. So the
//! medium keeps one number for each block, and every byte on either side can be checked.

use crate::dice::mix;

/// The name of the command that wrote a block; 0 when none did.
pub(crate) type Writer = u64;

pub(crate) struct Medium {
    block_len: usize,
    /// By logical unit, by block.
    writers: Vec<Vec<Writer>>,
}

impl Medium {
    pub(crate) fn new(units: usize, blocks: usize, block_len: usize) -> Self {
        Self { block_len, writers: vec![vec![0; blocks]; units] }
    }

    pub(crate) fn writers(&self, unit: usize, first: usize, blocks: usize) -> Vec<Writer> {
        self.writers[unit][first..first + blocks].to_vec()
    }

    pub(crate) fn write(&mut self, unit: usize, first: usize, blocks: usize, writer: Writer) {
        self.writers[unit][first..first + blocks].fill(writer);
    }

    /// The bytes of blocks from `first` on that were written by `writers`.
    pub(crate) fn fill(&self, unit: usize, first: usize, writers: &[Writer], bytes: &mut [u8]) {
        for (index, block) in bytes.chunks_mut(self.block_len).enumerate() {
            let mut state = first_state(unit, first + index, writers[index]);
            for word in block.chunks_mut(8) {
                state = next_state(state);
                word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
            }
        }
    }

    /// The first byte that is not as [`fill`](Self::fill) makes it.
    pub(crate) fn first_wrong(&self, unit: usize, first: usize, writers: &[Writer], bytes: &[u8]) -> Option<usize> {
        for (index, block) in bytes.chunks(self.block_len).enumerate() {
            let mut state = first_state(unit, first + index, writers[index]);
            for (at, word) in block.chunks(8).enumerate() {
                state = next_state(state);
                if *word != state.to_le_bytes()[..word.len()] {
                    return Some(index * self.block_len + at * 8);
                }
            }
        }
        None
    }
}

fn first_state(unit: usize, block: usize, writer: Writer) -> u64 {
    mix((unit as u64) << 56 ^ (block as u64) << 40 ^ writer)
}

fn next_state(state: u64) -> u64 {
    state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_their_place_and_their_writer() {
        let medium = Medium::new(2, 8, 37);
        let mut bytes = vec![0; 3 * 37];
        medium.fill(1, 2, &[7, 7, 9], &mut bytes);
        assert_eq!(medium.first_wrong(1, 2, &[7, 7, 9], &bytes), None);
        assert_eq!(medium.first_wrong(0, 2, &[7, 7, 9], &bytes), Some(0));
        assert_eq!(medium.first_wrong(1, 3, &[7, 7, 9], &bytes), Some(0));
        assert_eq!(medium.first_wrong(1, 2, &[7, 7, 7], &bytes), Some(2 * 37));
        bytes[36] ^= 1;
        assert_eq!(medium.first_wrong(1, 2, &[7, 7, 9], &bytes), Some(32));
    }
}
