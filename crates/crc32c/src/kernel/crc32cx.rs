//! ARM's `CRC32CX` instruction alone.

use super::Algorithm;
use super::cursor::{Cache, Cursor, To};
use super::streams;
use crate::cpu::Features;

pub(super) struct Crc32cx;

impl Algorithm for Crc32cx {
    const NAME: &'static str = "crc32cx";
    const NEEDS: Features = Features::CRC32;
    type Copy = Cache;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<T>(register, dst, src, len) }
    }
}

#[target_feature(enable = "crc")]
unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the feature is enabled here.
    unsafe {
        if len < streams::FROM {
            streams::one::<T>(register, Cursor::new(dst, src, len))
        } else {
            long::<T>(register, dst, src, len)
        }
    }
}

/// A function of its own, so that a header does not pay for saving all the registers that streams use.
#[inline(never)]
#[target_feature(enable = "crc")]
unsafe fn long<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the feature is enabled here.
    unsafe { streams::run::<T>(register, Cursor::new(dst, src, len)) }
}
