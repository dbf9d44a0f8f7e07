//! The disks of the simulated target: blocks that name the command that wrote them.
//!
//! A block is written by one command as a whole, and its bytes follow from where it is and which command wrote it. So
//! the medium keeps one number for each block, and every byte on either side can be checked.

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

    pub(crate) fn block_len(&self) -> usize {
        self.block_len
    }

    pub(crate) fn writers(&self, unit: usize, first: usize, blocks: usize) -> Vec<Writer> {
        self.writers[unit][first..first + blocks].to_vec()
    }

    pub(crate) fn write(&mut self, unit: usize, first: usize, blocks: usize, writer: Writer) {
        self.writers[unit][first..first + blocks].fill(writer);
    }

    /// The bytes of blocks from `first` on that were written by `writers`: the name of the writer, then what follows
    /// from it.
    pub(crate) fn fill(&self, unit: usize, first: usize, writers: &[Writer], bytes: &mut [u8]) {
        for (index, block) in bytes.chunks_mut(self.block_len).enumerate() {
            for (word, expected) in block.chunks_mut(WORD_LEN).zip(words(unit, first + index, writers[index])) {
                word.copy_from_slice(&expected);
            }
        }
    }

    /// The command that wrote each of these blocks.
    ///
    /// # Errors
    ///
    /// The first byte that is not as [`fill`](Self::fill) makes it.
    pub(crate) fn read(&self, unit: usize, first: usize, bytes: &[u8]) -> Result<Vec<Writer>, usize> {
        let mut writers = Vec::new();
        for (index, block) in bytes.chunks(self.block_len).enumerate() {
            let writer = block.first_chunk().map_or(0, |name| Writer::from_le_bytes(*name));
            let mut words = block.chunks(WORD_LEN).zip(words(unit, first + index, writer));
            if let Some(at) = words.position(|(word, expected)| *word != expected) {
                return Err(index * self.block_len + at * WORD_LEN);
            }
            writers.push(writer);
        }
        Ok(writers)
    }
}

const WORD_LEN: usize = size_of::<u64>();

fn words(unit: usize, block: usize, writer: Writer) -> impl Iterator<Item = [u8; WORD_LEN]> {
    let first = mix((unit as u64) << 56 ^ (block as u64) << 40 ^ writer);
    let follow = |state: &u64| Some(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f));
    let rest = std::iter::successors(Some(first), follow);
    std::iter::once(writer).chain(rest).map(u64::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_their_place_and_their_writer() {
        let medium = Medium::new(2, 8, 512);
        let mut bytes = vec![0; 3 * 512];
        medium.fill(1, 2, &[7, 7, 9], &mut bytes);
        assert_eq!(medium.read(1, 2, &bytes), Ok(vec![7, 7, 9]));
        assert_eq!(medium.read(0, 2, &bytes), Err(8));
        assert_eq!(medium.read(1, 3, &bytes), Err(8));
        bytes[512 + 36] ^= 1;
        assert_eq!(medium.read(1, 2, &bytes), Err(512 + 32));
    }
}
