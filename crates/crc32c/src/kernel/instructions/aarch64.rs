//! CRC32 and PMULL.
//!
//! The functions are inlined into kernels that enable the instructions, and have no other callers: that is the safety
//! contract of each.

use core::arch::aarch64::{
    __crc32cb, __crc32cd, __crc32ch, __crc32cw, uint64x2_t, vcombine_u64, vcreate_u64, vdupq_n_u64, veorq_u64,
    vgetq_lane_u64, vmull_p64, vreinterpretq_u64_p128,
};

/// Two words of a message, or their products.
pub(super) type Lane = uint64x2_t;

/// Takes eight bytes into the register, whose upper half is zero.
#[inline]
#[target_feature(enable = "crc")]
pub(super) unsafe fn crc_u64(register: u64, word: u64) -> u64 {
    __crc32cd(register as u32, word).into()
}

#[inline]
#[target_feature(enable = "crc")]
pub(super) unsafe fn crc_u32(register: u32, word: u32) -> u32 {
    __crc32cw(register, word)
}

#[inline]
#[target_feature(enable = "crc")]
pub(super) unsafe fn crc_u16(register: u32, word: u16) -> u32 {
    __crc32ch(register, word)
}

#[inline]
#[target_feature(enable = "crc")]
pub(super) unsafe fn crc_u8(register: u32, byte: u8) -> u32 {
    __crc32cb(register, byte)
}

/// The lane with `word` first and zero second.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn lane(word: u64) -> Lane {
    vcombine_u64(vcreate_u64(word), vcreate_u64(0))
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn zero() -> Lane {
    vdupq_n_u64(0)
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn add(a: Lane, b: Lane) -> Lane {
    veorq_u64(a, b)
}

/// The carry-less product.
#[inline]
#[target_feature(enable = "aes")]
pub(super) unsafe fn multiply(a: u64, b: u64) -> Lane {
    vreinterpretq_u64_p128(vmull_p64(a, b))
}

/// The two words of a lane.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn words(lane: Lane) -> [u64; 2] {
    [vgetq_lane_u64::<0>(lane), vgetq_lane_u64::<1>(lane)]
}
