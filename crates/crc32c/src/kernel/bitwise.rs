//! Long division bit by bit, as the definition has it. Slow, and plain enough to check the other kernels against.

use super::Algorithm;
use super::cursor::{Cursor, To};
use crate::cpu::Features;
use crate::gf2::times_x;

pub(super) struct Bitwise;

impl Algorithm for Bitwise {
    const NAME: &'static str = "bitwise";
    const NEEDS: Features = Features::NONE;

    unsafe fn run<const TO: To>(mut register: u32, mut rest: Cursor<TO>) -> u32 {
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
