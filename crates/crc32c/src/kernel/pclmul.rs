//! PCLMULQDQ folding on 128-bit vectors, alone and with `crc32q` beside it.

use core::arch::x86_64::{__m128i, _mm_clmulepi64_si128, _mm_loadu_si128, _mm_set_epi64x, _mm_xor_si128};

use super::Algorithm;
use super::cursor::{Cursor, To};
use super::fold::{self, Shape, Vector};
use crate::cpu::Features;

/// Folding without streams.
pub(super) struct Pclmul;

/// Folding with streams. Where the multiplier starts an operation only every second cycle, the streams give the larger part of the gain.
pub(super) struct PclmulCrc32q;

impl Algorithm for Pclmul {
    const NAME: &'static str = "pclmul";
    const NEEDS: Features = Features::PCLMULQDQ.and(Features::SSE42);

    unsafe fn run<const TO: To>(register: u32, rest: Cursor<TO>) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<Self, TO>(register, rest) }
    }
}

impl Algorithm for PclmulCrc32q {
    const NAME: &'static str = "pclmul+crc32q";
    const NEEDS: Features = Pclmul::NEEDS;

    unsafe fn run<const TO: To>(register: u32, rest: Cursor<TO>) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<Self, TO>(register, rest) }
    }
}

#[target_feature(enable = "pclmulqdq,sse4.2")]
unsafe fn run<S: Shape, const TO: To>(register: u32, rest: Cursor<TO>) -> u32 {
    // SAFETY: the features are enabled here.
    unsafe { fold::run::<S, TO>(register, rest) }
}

impl Shape for Pclmul {
    type Vector = __m128i;
}

impl Shape for PclmulCrc32q {
    type Vector = __m128i;
    const STREAMS: usize = 3;
    const WORDS: usize = 4;
    const ROUNDS: usize = 25;
}

impl Vector for __m128i {
    #[inline(always)]
    unsafe fn factors(first: u64, second: u64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm_set_epi64x(second as i64, first as i64) }
    }

    #[inline(always)]
    unsafe fn load_factors(factors: *const u64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm_loadu_si128(factors.cast()) }
    }

    #[inline(always)]
    unsafe fn add_products(self, lanes: Self, factors: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let first = _mm_clmulepi64_si128::<0x00>(lanes, factors);
            let second = _mm_clmulepi64_si128::<0x11>(lanes, factors);
            _mm_xor_si128(self, _mm_xor_si128(first, second))
        }
    }

    #[inline(always)]
    unsafe fn add_to_first(self, lane: __m128i) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm_xor_si128(self, lane) }
    }

    #[inline(always)]
    unsafe fn sum(self) -> __m128i {
        self
    }
}
