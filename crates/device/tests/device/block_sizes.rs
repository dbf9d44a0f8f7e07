//! Blocks of every length: commands that work in pieces take whole blocks, whatever a piece holds.

use lunette_device::BLOCK_SIZES;
use lunette_scsi::{AdditionalSense, SenseKey, Status};

use crate::fixture::{Fixture, Medium, THIN};

/// Blocks of a medium that is longer than any piece, and no multiple of one.
fn medium(block_size: u32) -> (Medium, u16) {
    let blocks = (3 << 20) / block_size + 1;
    (Medium { len_bytes: u64::from(blocks * block_size), block_size, ..THIN }, blocks as u16)
}

/// A block whose bytes tell where in the block they stand.
fn block(block_size: u32) -> Vec<u8> {
    (0..block_size).map(|index| (index % 251) as u8 + 1).collect()
}

fn holds_only(fixture: &Fixture, block: &[u8], blocks: u16) -> bool {
    fixture.bytes(0, block.len() * usize::from(blocks)).chunks(block.len()).all(|found| found == block)
}

/// READ CAPACITY(16).
const CAPACITY: [u8; 16] = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];

#[test]
fn the_capacity_has_the_length_of_a_block_and_no_physical_block_that_it_does_not_divide() {
    for (block_size, exponent) in BLOCK_SIZES.into_iter().zip([3, 0, 0, 0, 0, 0]) {
        let (medium, blocks) = medium(block_size);
        let capacity = Fixture::new(medium).read(&CAPACITY);
        assert_eq!(capacity[..8], u64::to_be_bytes(u64::from(blocks) - 1));
        assert_eq!(capacity[8..12], block_size.to_be_bytes());
        assert_eq!(capacity[13] & 0x0f, exponent, "{block_size}");
    }
}

#[test]
fn a_block_is_repeated_as_a_whole() {
    for block_size in BLOCK_SIZES {
        let ((medium, blocks), block) = (medium(block_size), block(block_size));
        let fixture = Fixture::new(medium);
        let [high, low] = blocks.to_be_bytes();
        let write_same = [0x41, 0, 0, 0, 0, 0, 0, high, low, 0];
        assert_eq!(fixture.run(&write_same, &block).status, Status::GOOD);
        assert!(holds_only(&fixture, &block, blocks), "{block_size}");
    }
}

#[test]
fn every_block_is_compared_from_its_first_byte() {
    for block_size in BLOCK_SIZES {
        let ((medium, blocks), block) = (medium(block_size), block(block_size));
        let fixture = Fixture::new(medium);
        let [high, low] = blocks.to_be_bytes();
        fixture.run(&[0x41, 0, 0, 0, 0, 0, 0, high, low, 0], &block);
        let verify_each = [0x2f, 3 << 1, 0, 0, 0, 0, 0, high, low, 0];
        assert_eq!(fixture.run(&verify_each, &block).status, Status::GOOD, "{block_size}");
        let wrong = usize::from(blocks) * block.len() - 5;
        fixture.store.bytes.lock().unwrap()[wrong] ^= 1;
        let sense = fixture.refused(&verify_each, &block);
        assert_eq!((sense.key, sense.code), (SenseKey::MISCOMPARE, AdditionalSense::MISCOMPARE_DURING_VERIFY));
        assert_eq!(sense.information, Some(wrong as u64), "{block_size}");
    }
}

#[test]
fn a_pattern_begins_at_each_block() {
    for block_size in BLOCK_SIZES {
        let ((medium, blocks), pattern) = (medium(block_size), [1, 2, 3, 4, 5]);
        let fixture = Fixture::new(medium);
        let list = [&[0x01, 0, 0, pattern.len() as u8][..], &pattern].concat();
        let overwrite = [0x48, 1, 0, 0, 0, 0, 0, 0, list.len() as u8, 0];
        assert_eq!(fixture.run(&overwrite, &list).status, Status::GOOD);
        let expected: Vec<u8> = pattern.into_iter().cycle().take(block_size as usize).collect();
        assert!(holds_only(&fixture, &expected, blocks), "{block_size}");
    }
}

#[test]
fn zeroes_and_unmaps_reach_the_last_block() {
    for block_size in BLOCK_SIZES {
        let ((medium, blocks), block) = (medium(block_size), block(block_size));
        let fixture = Fixture::new(medium);
        let [high, low] = blocks.to_be_bytes();
        for unmap in [0, 8] {
            fixture.run(&[0x41, 0, 0, 0, 0, 0, 0, high, low, 0], &block);
            let zeroes = vec![0; block_size as usize];
            assert_eq!(fixture.run(&[0x41, unmap, 0, 0, 0, 0, 0, high, low, 0], &zeroes).status, Status::GOOD);
            assert!(holds_only(&fixture, &zeroes, blocks), "{block_size}");
        }
    }
}
