//! VPCLMULQDQ folding on 256-bit vectors, with `crc32q` beside it, for CPUs without AVX-512.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_xor_si128, _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256,
    _mm256_loadu_si256, _mm256_set_epi64x, _mm256_xor_si256, _mm256_zextsi128_si256,
};

use super::Algorithm;
use super::cursor::{Ahead, Cursor, To};
use super::fold::{self, Shape, Vector};
use crate::cpu::Features;

pub(super) struct Vpclmul256;

impl Algorithm for Vpclmul256 {
    const NAME: &'static str = "vpclmul256";
    const NEEDS: Features = Features::VPCLMULQDQ.and(Features::AVX2).and(Features::PCLMULQDQ).and(Features::SSE42);
    type Copy = Ahead<__m256i>;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<T>(register, dst, src, len) }
    }
}

#[target_feature(enable = "vpclmulqdq,avx2,pclmulqdq,sse4.2")]
unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the features are enabled here.
    unsafe { fold::run::<Vpclmul256, T>(register, Cursor::new(dst, src, len)) }
}

/// Blocks of 1 KiB, half for `crc32q`: where the multiplier starts an operation every second cycle, both take 8 bytes a
/// cycle.
impl Shape for Vpclmul256 {
    type Vector = __m256i;
    const STREAMS: usize = 4;
    const WORDS: usize = 4;
    const ROUNDS: usize = 4;
    const FOLD_ONLY_FROM: usize = 2 << 20;
}

impl Vector for __m256i {
    #[inline(always)]
    unsafe fn factors(first: u64, second: u64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_set_epi64x(second as i64, first as i64, second as i64, first as i64) }
    }

    #[inline(always)]
    unsafe fn load_factors(factors: *const u64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_si256(factors.cast()) }
    }

    #[inline(always)]
    unsafe fn add_products(self, lanes: Self, factors: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let first = _mm256_clmulepi64_epi128::<0x00>(lanes, factors);
            let second = _mm256_clmulepi64_epi128::<0x11>(lanes, factors);
            _mm256_xor_si256(self, _mm256_xor_si256(first, second))
        }
    }

    #[inline(always)]
    unsafe fn add_to_first(self, lane: __m128i) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_xor_si256(self, _mm256_zextsi128_si256(lane)) }
    }

    #[inline(always)]
    unsafe fn sum(self) -> __m128i {
        // SAFETY: the caller's promise.
        unsafe { _mm_xor_si128(_mm256_castsi256_si128(self), _mm256_extracti128_si256::<1>(self)) }
    }
}
