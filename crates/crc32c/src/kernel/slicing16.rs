//! Slicing-by-16: like slicing-by-8, with twice the tables and half the waiting.

use super::Algorithm;
use super::cursor::{Cache, Cursor, To};
use super::sarwate;
use super::slicing8::four;
use crate::cpu::Features;

pub(super) struct Slicing16;

impl Algorithm for Slicing16 {
    const NAME: &'static str = "slicing16";
    const NEEDS: Features = Features::NONE;
    type Copy = Cache;

    unsafe fn run<T: To>(mut register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the caller's promise.
        let mut rest = unsafe { Cursor::<T>::new(dst, src, len) };
        // SAFETY: sixteen bytes are left.
        unsafe {
            while rest.left() >= 16 {
                let first = u64::from_le(rest.take());
                let second = u64::from_le(rest.take());
                register = four(15, first as u32 ^ register)
                    ^ four(11, (first >> 32) as u32)
                    ^ four(7, second as u32)
                    ^ four(3, (second >> 32) as u32);
            }
            sarwate::bytes(register, rest)
        }
    }
}
