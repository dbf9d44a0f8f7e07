//! SSE4.2's `crc32` instruction alone.

use super::Algorithm;
use super::cursor::{Cache, Cursor, To};
use super::streams;
use crate::cpu::Features;

pub(super) struct Crc32q;

impl Algorithm for Crc32q {
    const NAME: &'static str = "crc32q";
    const NEEDS: Features = Features::SSE42;
    type Copy = Cache;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<T>(register, dst, src, len) }
    }
}

#[target_feature(enable = "sse4.2")]
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
#[target_feature(enable = "sse4.2")]
unsafe fn long<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the feature is enabled here.
    unsafe { streams::run::<T>(register, Cursor::new(dst, src, len)) }
}
