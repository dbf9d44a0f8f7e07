//! PCLMULQDQ on 128-bit lanes and `crc32q`, in two shares, and copies by 256-bit vectors.
//!
//! Which share is right depends on the multiplier. AMD's start an operation every second cycle, and so does Haswell's:
//! folding takes 4 bytes a cycle, `crc32q` takes 8. Intel's later ones start one every cycle, and both take 8.

use core::arch::x86_64::{__m128i, __m256i, _mm_clmulepi64_si128, _mm_loadu_si128, _mm_set_epi64x, _mm_xor_si128};

use super::Algorithm;
use super::cursor::{Ahead, Cursor, To};
use super::fold::{self, Shape, Vector};
use crate::cpu::Features;

/// Three quarters for `crc32q`, the rest for the multiplier.
pub(super) struct Crc32qPclmul;

/// Half for each.
pub(super) struct PclmulCrc32q;

impl Algorithm for Crc32qPclmul {
    const NAME: &'static str = "crc32q+pclmul";
    const NEEDS: Features = Features::AVX2.and(Features::PCLMULQDQ).and(Features::SSE42);
    type Copy = Ahead<__m256i>;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<Self, T>(register, dst, src, len) }
    }
}

impl Algorithm for PclmulCrc32q {
    const NAME: &'static str = "pclmul+crc32q";
    const NEEDS: Features = Crc32qPclmul::NEEDS;
    type Copy = Ahead<__m256i>;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<Self, T>(register, dst, src, len) }
    }
}

#[target_feature(enable = "avx2,pclmulqdq,sse4.2")]
unsafe fn run<S: Shape, T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the features are enabled here.
    unsafe { fold::run::<S, T>(register, Cursor::new(dst, src, len)) }
}

/// Blocks of 1 KiB.
impl Shape for Crc32qPclmul {
    type Vector = __m128i;
    const STREAMS: usize = 3;
    const WORDS: usize = 8;
    const ROUNDS: usize = 4;
}

/// Blocks of 1 KiB.
impl Shape for PclmulCrc32q {
    type Vector = __m128i;
    const STREAMS: usize = 4;
    const WORDS: usize = 2;
    const ROUNDS: usize = 8;
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
