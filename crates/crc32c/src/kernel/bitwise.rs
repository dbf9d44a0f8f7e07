//! Long division bit by bit, as the definition has it. Slow, and plain enough to check the other kernels against.

use super::Algorithm;
use super::cursor::{Cache, Cursor, To};
use crate::cpu::Features;
use crate::gf2::times_x;

pub(super) struct Bitwise;

impl Algorithm for Bitwise {
    const NAME: &'static str = "bitwise";
    const NEEDS: Features = Features::NONE;
    type Copy = Cache;

    unsafe fn run<T: To>(mut register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the caller's promise.
        let mut rest = unsafe { Cursor::<T>::new(dst, src, len) };
        while rest.left() != 0 {
            // SAFETY: a byte is left.
            register ^= u32::from(unsafe { rest.take::<u8>() });
            for _ in 0..8 {
                register = times_x(register);
            }
        }
        register
    }
}
