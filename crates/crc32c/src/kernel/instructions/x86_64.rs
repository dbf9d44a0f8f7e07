//! SSE4.2 and PCLMULQDQ.
//!
//! The functions are inlined into kernels that enable the instructions, and have no other callers: that is the safety
//! contract of each.

use core::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128,
    _mm_cvtsi128_si64, _mm_extract_epi64, _mm_setzero_si128, _mm_xor_si128,
};

/// Two words of a message, or their products.
pub(super) type Lane = __m128i;

/// Takes eight bytes into the register, whose upper half is zero. A `u32` would be extended for every word.
#[inline(always)]
pub(super) unsafe fn crc_u64(register: u64, word: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { _mm_crc32_u64(register, word) }
}

#[inline(always)]
pub(super) unsafe fn crc_u32(register: u32, word: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { _mm_crc32_u32(register, word) }
}

#[inline(always)]
pub(super) unsafe fn crc_u16(register: u32, word: u16) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { _mm_crc32_u16(register, word) }
}

#[inline(always)]
pub(super) unsafe fn crc_u8(register: u32, byte: u8) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { _mm_crc32_u8(register, byte) }
}

/// The lane with `word` first and zero second.
#[inline(always)]
pub(super) unsafe fn lane(word: u64) -> Lane {
    // SAFETY: the caller's promise.
    unsafe { _mm_cvtsi64_si128(word as i64) }
}

#[inline(always)]
pub(super) unsafe fn zero() -> Lane {
    // SAFETY: the caller's promise.
    unsafe { _mm_setzero_si128() }
}

#[inline(always)]
pub(super) unsafe fn add(a: Lane, b: Lane) -> Lane {
    // SAFETY: the caller's promise.
    unsafe { _mm_xor_si128(a, b) }
}

/// The carry-less product.
#[inline(always)]
pub(super) unsafe fn multiply(a: u64, b: u64) -> Lane {
    // SAFETY: the caller's promise.
    unsafe { _mm_clmulepi64_si128::<0x00>(lane(a), lane(b)) }
}

/// The two words of a lane.
#[inline(always)]
pub(super) unsafe fn words(lane: Lane) -> [u64; 2] {
    // SAFETY: the caller's promise.
    unsafe { [_mm_cvtsi128_si64(lane) as u64, _mm_extract_epi64::<1>(lane) as u64] }
}
