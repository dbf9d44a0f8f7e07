//! VPCLMULQDQ folding on 256-bit vectors, with `crc32q` beside it, for CPUs without AVX-512.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_xor_si128, _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256,
    _mm256_loadu_si256, _mm256_set_epi64x, _mm256_xor_si256, _mm256_zextsi128_si256,
};

use super::Algorithm;
use super::cursor::{Cursor, NOWHERE, To};
use super::fold::{self, Shape, Vector};
use crate::cpu::Features;

pub(super) struct Vpclmul256;

impl Algorithm for Vpclmul256 {
    const NAME: &'static str = "vpclmul256";
    const NEEDS: Features = Features::VPCLMULQDQ.and(Features::AVX2).and(Features::PCLMULQDQ).and(Features::SSE42);

    unsafe fn run<const TO: To>(register: u32, rest: Cursor<TO>) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<TO>(register, rest) }
    }
}

#[target_feature(enable = "vpclmulqdq,avx2,pclmulqdq,sse4.2")]
unsafe fn run<const TO: To>(register: u32, rest: Cursor<TO>) -> u32 {
    // SAFETY: the features are enabled here.
    unsafe {
        if TO == NOWHERE { fold::run::<Digest, TO>(register, rest) } else { fold::run::<Copy, TO>(register, rest) }
    }
}

/// The shape of a digest: `crc32q` adds half to the multiplier's speed where that starts an operation every second cycle.
struct Digest;

impl Shape for Digest {
    type Vector = __m256i;
    const STREAMS: usize = 3;
    const WORDS: usize = 4;
    const ROUNDS: usize = 17;
}

/// The shape of a copy: folding only. Streams would gain a fifth in the cache, and lose half in memory.
struct Copy;

impl Shape for Copy {
    type Vector = __m256i;
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
