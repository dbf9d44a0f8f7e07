//! Folding by carry-less multiplication, for vectors of any width.
//!
//! Four vectors of the message are the accumulators. A step multiplies each 128-bit lane of them by the power of `x` that carries it over the
//! step, and adds the next four vectors of the message: by the bit replacement principle of the slicing paper, a prefix may be replaced by
//! anything that is congruent to it. At the end no further folding brings the lanes together: every word of the accumulators, and every word
//! that is left, is multiplied by the factor of its own distance from the end (`carry::CARRIES`), the products are added up, and one `crc32q`
//! reduces the sum.
//!
//! The multiplier and the `crc32q` unit are different ones, so both can work at once: a *block* is cut into a few streams for `crc32q` and a part
//! for the vectors. The streams' registers are added to the accumulators at the block's end, each times the factor of its distance.

use core::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_extract_epi64,
    _mm_setzero_si128, _mm_xor_si128,
};

use super::LINE;
use super::crc32q;
use super::cursor::{Cursor, To, Word};
use crate::carry::{carries_from, carry};

/// A vector of 128-bit lanes.
///
/// The functions are inlined into kernels that enable the instructions they are made of, and have no other callers.
pub(super) trait Vector: Word {
    /// A vector with the same two factors in every lane.
    unsafe fn factors(first: u64, second: u64) -> Self;

    /// Loads as many factors as the vector has words.
    unsafe fn load_factors(factors: *const u64) -> Self;

    /// `self` plus the products of each lane's first and second word with the factors.
    unsafe fn add_products(self, lanes: Self, factors: Self) -> Self;

    /// `self` plus `lane` in the first lane.
    unsafe fn add_to_first(self, lane: __m128i) -> Self;

    /// The sum of all lanes.
    unsafe fn sum(self) -> __m128i;
}

/// How a kernel divides a block between the multiplier and `crc32q`.
pub(super) trait Shape {
    /// The vectors that it folds.
    type Vector: Vector;

    /// Streams for `crc32q`; 0 means folding alone.
    const STREAMS: usize = 0;

    /// Words of each stream for each round.
    const WORDS: usize = 1;

    /// Steps of the accumulators in a block, not counting the one that fills them.
    const ROUNDS: usize = 1;

    /// Messages from this length on are only folded. They are likely to come from memory, where reading the bytes in order is fastest.
    const FOLD_ONLY_FROM: usize = 2 << 20;

    /// Bytes of a vector.
    const WIDTH: usize = size_of::<Self::Vector>();

    /// Bytes of a step, which is also the shortest message that can be folded.
    const STEP: usize = 4 * Self::WIDTH;

    /// Bytes of one stream.
    const STREAM: usize = 8 * Self::WORDS * Self::ROUNDS;

    /// Bytes of all streams: the part of a block before the vectors' part.
    const STREAMED: usize = Self::STREAMS * Self::STREAM;

    /// Bytes of a block.
    const BLOCK: usize = Self::STREAMED + (1 + Self::ROUNDS) * Self::STEP;

    /// Cache lines of the next block that a round prefetches.
    const LINES: usize = Self::BLOCK.div_ceil(LINE).div_ceil(Self::ROUNDS);

    /// For each stream, the factor that adds its register to the first lane of the accumulators at the end of the block.
    const STREAM_FACTORS: [u64; MAX_STREAMS] = {
        let mut factors = [0; MAX_STREAMS];
        let mut stream = 0;
        while stream < Self::STREAMS {
            let behind = Self::BLOCK - (stream + 1) * Self::STREAM;
            // Carrying a register to the end takes `carry(behind - 8)`, and the product is 32 degrees too high. A lane at the block's end is 32
            // degrees lower than the register: 64 degrees less, which are eight bytes. The first lane begins STEP - 16 bytes before that.
            factors[stream] = carry(behind as i64 - Self::STEP as i64);
            stream += 1;
        }
        factors
    };
}

/// The most streams of any shape.
const MAX_STREAMS: usize = 4;

/// The accumulators.
type Lanes<S> = [<S as Shape>::Vector; 4];

/// Advances the register over all bytes that are left.
///
/// # Safety
///
/// The function is inlined into one that enables the instructions of `S::Vector`, PCLMULQDQ and SSE4.2, and the CPU has them.
#[inline(always)]
pub(super) unsafe fn run<S: Shape, const TO: To>(register: u32, mut rest: Cursor<TO>) -> u32 {
    // SAFETY: each step takes no more than is left; the instructions are the caller's promise.
    unsafe {
        if rest.left() < S::STEP {
            return crc32q::one(register, rest);
        }
        let mut lanes;
        if S::STREAMS != 0 && rest.left() >= S::BLOCK && rest.left() < S::FOLD_ONLY_FROM {
            let over_streams = const { Factors::over(S::STREAMED + S::STEP) }.vector::<S>();
            let mut start = register;
            lanes = load::<S, TO>(&rest, S::STREAMED);
            while rest.left() >= 2 * S::BLOCK {
                lanes = block::<S, TO, true>(start, lanes, rest.split(S::BLOCK));
                lanes = fold::<S>(lanes, over_streams, load::<S, TO>(&rest, S::STREAMED));
                start = 0;
            }
            lanes = block::<S, TO, false>(start, lanes, rest.split(S::BLOCK));
        } else {
            lanes = load::<S, TO>(&rest, 0);
            lanes[0] = lanes[0].add_to_first(_mm_cvtsi64_si128(i64::from(register)));
            rest.pass(S::STEP);
        }
        let over_step = const { Factors::over(S::STEP) }.vector::<S>();
        while rest.left() >= S::STEP {
            lanes = fold::<S>(lanes, over_step, load::<S, TO>(&rest, 0));
            rest.pass(S::STEP);
        }
        finish::<S, TO>(lanes, rest)
    }
}

/// The factors that carry a lane forward.
struct Factors {
    first: u64,
    second: u64,
}

impl Factors {
    const fn over(bytes: usize) -> Self {
        Self { first: carry(bytes as i64), second: carry(bytes as i64 - 8) }
    }

    #[inline(always)]
    unsafe fn vector<S: Shape>(&self) -> S::Vector {
        // SAFETY: the caller's promise.
        unsafe { S::Vector::factors(self.first, self.second) }
    }
}

/// Loads the vectors of the next step.
#[inline(always)]
unsafe fn load<S: Shape, const TO: To>(rest: &Cursor<TO>, offset: usize) -> Lanes<S> {
    // SAFETY: the caller's promise.
    unsafe {
        [
            rest.take_at(offset),
            rest.take_at(offset + S::WIDTH),
            rest.take_at(offset + 2 * S::WIDTH),
            rest.take_at(offset + 3 * S::WIDTH),
        ]
    }
}

#[inline(always)]
unsafe fn fold<S: Shape>(lanes: Lanes<S>, factors: S::Vector, next: Lanes<S>) -> Lanes<S> {
    // SAFETY: the caller's promise.
    unsafe {
        [
            next[0].add_products(lanes[0], factors),
            next[1].add_products(lanes[1], factors),
            next[2].add_products(lanes[2], factors),
            next[3].add_products(lanes[3], factors),
        ]
    }
}

/// Folds the rest of a block, whose first vectors are in the accumulators, and digests its streams, the first from `register`.
///
/// When another block follows, its lines are prefetched in order: the CPU's own prefetchers do not recognize a block's pattern of access, and a
/// message that comes from memory would take twice the time.
#[inline(always)]
unsafe fn block<S: Shape, const TO: To, const MORE: bool>(
    register: u32,
    mut lanes: Lanes<S>,
    block: Cursor<TO>,
) -> Lanes<S> {
    // Stores past the cache must be aligned, in this block and in the next.
    const { assert!(S::STREAMED.is_multiple_of(S::WIDTH) && S::BLOCK.is_multiple_of(S::WIDTH)) }
    let mut registers = [u64::from(register), 0, 0, 0];
    // SAFETY: all within the block; the instructions are the caller's promise.
    unsafe {
        let over_step = const { Factors::over(S::STEP) }.vector::<S>();
        for round in 0..S::ROUNDS {
            lanes = fold::<S>(lanes, over_step, load::<S, TO>(&block, S::STREAMED + (1 + round) * S::STEP));
            if MORE {
                for line in 0..S::LINES {
                    block.prefetch(S::BLOCK + (round * S::LINES + line) * LINE);
                }
            }
            for word in 0..S::WORDS {
                for (stream, register) in registers.iter_mut().enumerate().take(S::STREAMS) {
                    let offset = stream * S::STREAM + 8 * (round * S::WORDS + word);
                    *register = _mm_crc32_u64(*register, block.take_at(offset));
                }
            }
        }
        let mut sum = _mm_setzero_si128();
        for (stream, register) in registers.into_iter().enumerate().take(S::STREAMS) {
            let factor = S::STREAM_FACTORS[stream];
            let product =
                _mm_clmulepi64_si128::<0x00>(_mm_cvtsi64_si128(register as i64), _mm_cvtsi64_si128(factor as i64));
            sum = _mm_xor_si128(sum, product);
        }
        lanes[0] = lanes[0].add_to_first(sum);
    }
    lanes
}

/// Carries the accumulators and all bytes that are left to the end, and reduces their sum to the register.
#[inline(always)]
unsafe fn finish<S: Shape, const TO: To>(lanes: Lanes<S>, mut rest: Cursor<TO>) -> u32 {
    // SAFETY: less than a step is left, each loop takes what is there, and `home` keeps pace with it.
    unsafe {
        let mut home = carries_from(S::STEP + rest.left() / 8 * 8);
        let mut sum = S::Vector::factors(0, 0);
        for lane in lanes {
            sum = sum.add_products(lane, S::Vector::load_factors(home));
            home = home.byte_add(S::WIDTH);
        }
        while rest.left() >= S::WIDTH {
            sum = sum.add_products(rest.take(), S::Vector::load_factors(home));
            home = home.byte_add(S::WIDTH);
        }
        let mut sum = sum.sum();
        while rest.left() >= 8 {
            let word = _mm_cvtsi64_si128(rest.take::<u64>() as i64);
            sum = _mm_xor_si128(sum, _mm_clmulepi64_si128::<0x00>(word, _mm_cvtsi64_si128(*home as i64)));
            home = home.add(1);
        }
        let high = _mm_crc32_u64(0, _mm_cvtsi128_si64(sum) as u64) as u32;
        crc32q::last_bytes(high ^ _mm_extract_epi64::<1>(sum) as u32, rest)
    }
}
