//! Sarwate's algorithm: eight steps of the division are one lookup in a table of 256 remainders.

use super::Algorithm;
use super::cursor::{Cache, Cursor, To};
use crate::cpu::Features;
use crate::tables::SLICES;

pub(super) struct Sarwate;

impl Algorithm for Sarwate {
    const NAME: &'static str = "sarwate";
    const NEEDS: Features = Features::NONE;
    type Copy = Cache;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { bytes::<T>(register, Cursor::new(dst, src, len)) }
    }
}

/// Advances the register over all bytes that are left, one by one.
#[inline]
pub(super) unsafe fn bytes<T: To>(mut register: u32, mut rest: Cursor<T>) -> u32 {
    while rest.left() != 0 {
        // SAFETY: a byte is left.
        let byte = unsafe { rest.take::<u8>() };
        register = (register >> 8) ^ SLICES[0][usize::from(register as u8 ^ byte)];
    }
    register
}
