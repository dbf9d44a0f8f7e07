//! The CPU's own division alone: SSE4.2's `crc32` instruction, ARM's `CRC32CX`.

use super::Algorithm;
use super::cursor::{Cache, Cursor, To};
use super::streams;
use crate::cpu::Features;

pub(super) struct Division;

impl Algorithm for Division {
    const NAME: &'static str = if cfg!(target_arch = "x86_64") { "crc32q" } else { "crc32cx" };
    #[cfg(target_arch = "x86_64")]
    const NEEDS: Features = Features::SSE42;
    #[cfg(target_arch = "aarch64")]
    const NEEDS: Features = Features::CRC32;
    type Copy = Cache;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<T>(register, dst, src, len) }
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc"))]
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
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc"))]
unsafe fn long<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the feature is enabled here.
    unsafe { streams::run::<T>(register, Cursor::new(dst, src, len)) }
}
