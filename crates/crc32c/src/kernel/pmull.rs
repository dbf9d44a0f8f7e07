//! PMULL folding on 128-bit vectors with `CRC32CX` beside it, with and without the addition of three vectors at once
//! (EOR3).

use core::arch::aarch64::{
    uint64x2_t, vcombine_u64, vcreate_u64, veor3q_u64, veorq_u64, vgetq_lane_u64, vld1q_u64, vmull_high_p64, vmull_p64,
    vreinterpretq_p64_u64, vreinterpretq_u64_p128,
};

use super::Algorithm;
use super::cursor::{Ahead, Cursor, To, Word};
use super::fold::{self, Shape, Vector};
use crate::cpu::Features;

/// Folding with streams.
pub(super) struct Pmull;

/// The kernel with EOR3.
pub(super) struct PmullEor3;

impl Algorithm for Pmull {
    const NAME: &'static str = "pmull+crc32cx";
    const NEEDS: Features = Features::PMULL.and(Features::CRC32);
    type Copy = Ahead<uint64x2_t>;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run::<T>(register, dst, src, len) }
    }
}

#[target_feature(enable = "neon,aes,crc")]
unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the features are enabled here.
    unsafe { fold::run::<Pmull, T>(register, Cursor::new(dst, src, len)) }
}

impl Algorithm for PmullEor3 {
    const NAME: &'static str = "pmull+crc32cx+eor3";
    const NEEDS: Features = Pmull::NEEDS.and(Features::SHA3);
    type Copy = Ahead<uint64x2_t>;

    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the CPU has what the kernel needs.
        unsafe { run_eor3::<T>(register, dst, src, len) }
    }
}

#[target_feature(enable = "neon,aes,crc,sha3")]
unsafe fn run_eor3<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the features are enabled here.
    unsafe { fold::run::<PmullEor3, T>(register, Cursor::new(dst, src, len)) }
}

/// Blocks of 1 KiB, half for each unit, which take 8 bytes a cycle each on Neoverse N1 (Arm's optimization guide); not
/// measured.
impl Shape for Pmull {
    type Vector = uint64x2_t;
    const STREAMS: usize = 4;
    const WORDS: usize = 2;
    const ROUNDS: usize = 8;
}

impl Shape for PmullEor3 {
    type Vector = Eor3;
    const STREAMS: usize = Pmull::STREAMS;
    const WORDS: usize = Pmull::WORDS;
    const ROUNDS: usize = Pmull::ROUNDS;
}

impl Vector for uint64x2_t {
    #[inline(always)]
    unsafe fn factors(first: u64, second: u64) -> Self {
        // SAFETY: every CPU of this architecture has NEON.
        unsafe { vcombine_u64(vcreate_u64(first), vcreate_u64(second)) }
    }

    #[inline(always)]
    unsafe fn load_factors(factors: *const u64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { vld1q_u64(factors) }
    }

    #[inline(always)]
    unsafe fn add_products(self, lanes: Self, factors: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let [first, second] = products(lanes, factors);
            veorq_u64(self, veorq_u64(first, second))
        }
    }

    #[inline(always)]
    unsafe fn add_to_first(self, lane: uint64x2_t) -> Self {
        // SAFETY: the caller's promise.
        unsafe { veorq_u64(self, lane) }
    }

    #[inline(always)]
    unsafe fn sum(self) -> uint64x2_t {
        self
    }
}

/// A vector whose products are added by EOR3.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Eor3(uint64x2_t);

impl Word for Eor3 {}

impl Vector for Eor3 {
    #[inline(always)]
    unsafe fn factors(first: u64, second: u64) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { uint64x2_t::factors(first, second) })
    }

    #[inline(always)]
    unsafe fn load_factors(factors: *const u64) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { uint64x2_t::load_factors(factors) })
    }

    #[inline(always)]
    unsafe fn add_products(self, lanes: Self, factors: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let [first, second] = products(lanes.0, factors.0);
            Self(sum_of_three(self.0, first, second))
        }
    }

    #[inline(always)]
    unsafe fn add_to_first(self, lane: uint64x2_t) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { self.0.add_to_first(lane) })
    }

    #[inline(always)]
    unsafe fn sum(self) -> uint64x2_t {
        self.0
    }
}

/// The products of both words with their factors.
#[inline]
#[target_feature(enable = "aes")]
unsafe fn products(lanes: uint64x2_t, factors: uint64x2_t) -> [uint64x2_t; 2] {
    let first = vmull_p64(vgetq_lane_u64::<0>(lanes), vgetq_lane_u64::<0>(factors));
    let second = vmull_high_p64(vreinterpretq_p64_u64(lanes), vreinterpretq_p64_u64(factors));
    [vreinterpretq_u64_p128(first), vreinterpretq_u64_p128(second)]
}

#[inline]
#[target_feature(enable = "sha3")]
unsafe fn sum_of_three(a: uint64x2_t, b: uint64x2_t, c: uint64x2_t) -> uint64x2_t {
    veor3q_u64(a, b, c)
}
