//! Slicing-by-8, as Kounavis and Berry give it.
//!
//! Sarwate's lookups wait for one another. Here eight bytes, the first four added to the register, are eight *slices*.
//! The CRC is linear, so the remainder of the eight bytes is the sum of the remainders of each slice with zeroes in the
//! place of the others (bit slicing), and takes the place of all that came before (bit replacement). Each position has
//! its table, so the eight lookups are independent.

use super::Algorithm;
use super::cursor::{Cache, Cursor, To};
use super::sarwate;
use crate::cpu::Features;
use crate::tables::SLICES;

pub(super) struct Slicing8;

impl Algorithm for Slicing8 {
    const NAME: &'static str = "slicing8";
    const NEEDS: Features = Features::NONE;
    type Copy = Cache;

    unsafe fn run<T: To>(mut register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the caller's promise.
        let mut rest = unsafe { Cursor::<T>::new(dst, src, len) };
        // SAFETY: eight bytes are left.
        unsafe {
            while rest.left() >= 8 {
                let word = u64::from_le(rest.take());
                register = four(7, word as u32 ^ register) ^ four(3, (word >> 32) as u32);
            }
            sarwate::bytes(register, rest)
        }
    }
}

/// The remainders of four bytes, the first of which has `behind` bytes after it.
#[inline(always)]
pub(super) fn four(behind: usize, bytes: u32) -> u32 {
    SLICES[behind][(bytes & 0xFF) as usize]
        ^ SLICES[behind - 1][(bytes >> 8 & 0xFF) as usize]
        ^ SLICES[behind - 2][(bytes >> 16 & 0xFF) as usize]
        ^ SLICES[behind - 3][(bytes >> 24) as usize]
}
