//! VPCLMULQDQ folding on 512-bit vectors.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_xor_si256,
    _mm512_castsi512_si256, _mm512_clmulepi64_epi128, _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_set_epi64,
    _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::Algorithm;
use super::cursor::{Cache, Cursor, To};
use super::fold::{self, Shape, Vector};
use crate::cpu::Features;

pub(super) struct Vpclmul512;

impl Algorithm for Vpclmul512 {
    const NAME: &'static str = "vpclmul512";
    const NEEDS: Features = Features::VPCLMULQDQ.and(Features::AVX512F).and(Features::PCLMULQDQ).and(Features::SSE42);
    type Copy = Cache;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<T>(register, dst, src, len) }
    }
}

#[target_feature(enable = "vpclmulqdq,avx512f,pclmulqdq,sse4.2")]
unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the features are enabled here.
    unsafe {
        let rest = Cursor::new(dst, src, len);
        if T::STORES { fold::run::<Copy, T>(register, rest) } else { fold::run::<Digest, T>(register, rest) }
    }
}

/// The shape of a digest: the multiplier is the limit, and `crc32q` adds a fifth to its speed.
struct Digest;

impl Shape for Digest {
    type Vector = __m512i;
    const STREAMS: usize = 4;
    const WORDS: usize = 2;
    const ROUNDS: usize = 12;
    // 256 KiB from memory: 18.4 GB/s in blocks and 22.5 folded only; with pages of 2 MiB 24.8 and 26.8. In the cache 66
    // and 59.
    const FOLD_ONLY_FROM: usize = 64 << 10;
}

/// The shape of a copy: stores are the limit, and the small ones of streams would cost more than `crc32q` gains.
struct Copy;

impl Shape for Copy {
    type Vector = __m512i;
}

/// The truth table of the sum of three bits.
const XOR3: i32 = 0x96;

impl Vector for __m512i {
    #[inline(always)]
    unsafe fn factors(first: u64, second: u64) -> Self {
        let (first, second) = (first as i64, second as i64);
        // SAFETY: the caller's promise.
        unsafe { _mm512_set_epi64(second, first, second, first, second, first, second, first) }
    }

    #[inline(always)]
    unsafe fn load_factors(factors: *const u64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_si512(factors.cast()) }
    }

    #[inline(always)]
    unsafe fn add_products(self, lanes: Self, factors: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let first = _mm512_clmulepi64_epi128::<0x00>(lanes, factors);
            let second = _mm512_clmulepi64_epi128::<0x11>(lanes, factors);
            _mm512_ternarylogic_epi64::<XOR3>(self, first, second)
        }
    }

    #[inline(always)]
    unsafe fn add_to_first(self, lane: __m128i) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_xor_si512(self, _mm512_zextsi128_si512(lane)) }
    }

    #[inline(always)]
    unsafe fn sum(self) -> __m128i {
        // SAFETY: the caller's promise.
        unsafe {
            let half = _mm256_xor_si256(_mm512_castsi512_si256(self), _mm512_extracti64x4_epi64::<1>(self));
            _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half))
        }
    }
}
