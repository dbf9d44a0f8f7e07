//! Folding by carry-less multiplication, for vectors of any width.
//!
//! Four vectors of the message are the accumulators. A step multiplies each 128-bit lane of them by the power of `x`
//! that carries it over the step, and adds the next four vectors of the message: by the bit replacement principle of
//! the slicing paper, a prefix may be replaced by anything that is congruent to it. At the end no further folding
//! brings the lanes together: every word of the accumulators, and every word that is left, is multiplied by the factor
//! of its own distance from the end (`carry::CARRIES`), the products are added up, and one `crc32q` reduces the sum.
//!
//! The multiplier and the `crc32q` unit are different ones, so both can work at once: a *block* is cut into a few
//! streams for `crc32q` and a part for the vectors. The streams' registers are added to the accumulators at the block's
//! end, each times the factor of its distance.

use super::LINE;
use super::cursor::{Cursor, To, Word};
use super::instructions::{Lane, add, crc_u64, lane, multiply, words, zero};
use super::streams;
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
    unsafe fn add_to_first(self, lane: Lane) -> Self;

    /// The sum of all lanes.
    unsafe fn sum(self) -> Lane;
}

/// How a kernel divides a block between the multiplier and `crc32q`.
pub(super) trait Shape {
    /// The vectors that it folds.
    type Vector: Vector;

    /// Streams for `crc32q`; 0 means folding alone.
    const STREAMS: usize = 0;

    /// Words of each stream for each round.
    const WORDS: usize = 1;

    /// Rounds of a block; in each the accumulators take a step.
    const ROUNDS: usize = 1;

    /// Messages from this length on are only folded. They are likely to come from memory, where reading the bytes in
    /// order is fastest if folding alone keeps pace with it.
    const FOLD_ONLY_FROM: usize = usize::MAX;

    /// Bytes of a vector.
    const WIDTH: usize = size_of::<Self::Vector>();

    /// Bytes of a step, which is also the shortest message that can be folded.
    const STEP: usize = 4 * Self::WIDTH;

    /// Bytes of one stream.
    const STREAM: usize = 8 * Self::WORDS * Self::ROUNDS;

    /// Bytes of all streams: the part of a block before the vectors' part.
    const STREAMED: usize = Self::STREAMS * Self::STREAM;

    /// Bytes of a block.
    const BLOCK: usize = Self::STREAMED + Self::ROUNDS * Self::STEP;

    /// Cache lines that a round prefetches.
    const LINES: usize = Self::BLOCK.div_ceil(LINE).div_ceil(Self::ROUNDS);

    /// How far ahead of the block that is read lines are prefetched: whole blocks.
    const DISTANCE: usize = if PAGE < Self::BLOCK { Self::BLOCK } else { PAGE / Self::BLOCK * Self::BLOCK };

    /// Bytes of the next block that a round copies ahead: whole vectors of up to 32 bytes. The rest is copied at the
    /// start of the block.
    const COPIED: usize = Self::BLOCK / Self::ROUNDS / 32 * 32;

    /// For each stream, the factor that adds its register to the first lane of the accumulators at the end of the
    /// block.
    const STREAM_FACTORS: [u64; MAX_STREAMS] = {
        let mut factors = [0; MAX_STREAMS];
        let mut stream = 0;
        while stream < Self::STREAMS {
            let behind = Self::BLOCK - (stream + 1) * Self::STREAM;
            // Carrying a register to the end takes `carry(behind - 8)`, and the product is 32 degrees too high. A lane
            // at the block's end is 32 degrees lower than the register: 64 degrees less, which are eight bytes. The
            // first lane begins STEP - 16 bytes before that.
            factors[stream] = carry(behind as i64 - Self::STEP as i64);
            stream += 1;
        }
        factors
    };
}

/// The distance of prefetches. Shorter ones come too late (a digest of 64 KiB from memory: 15 GB/s at 1 KiB), longer
/// ones gain nothing more.
const PAGE: usize = 4096;

/// The most streams of any shape.
const MAX_STREAMS: usize = 4;

/// The accumulators.
type Lanes<S> = [<S as Shape>::Vector; 4];

/// Advances the register over all bytes that are left.
///
/// # Safety
///
/// The function is inlined into one that enables the instructions of `S::Vector`, of `T::Vector` and of `instructions`,
/// and the CPU has them.
#[inline(always)]
pub(super) unsafe fn run<S: Shape, T: To>(register: u32, mut rest: Cursor<T>) -> u32 {
    // SAFETY: each step takes no more than is left; the instructions are the caller's promise.
    unsafe {
        if rest.left() < S::STEP {
            return streams::one(register, rest);
        }
        let mut lanes;
        if S::STREAMS != 0 && rest.left() >= S::BLOCK && rest.left() < S::FOLD_ONLY_FROM {
            (lanes, rest) = blocks::<S, T>(register, rest);
        } else {
            lanes = load::<S, T>(&rest, 0);
            lanes[0] = lanes[0].add_to_first(lane(u64::from(register)));
            rest.pass(S::STEP);
        }
        let over_step = const { Factors::over(S::STEP) }.vector::<S>();
        while rest.left() >= S::STEP {
            lanes = fold::<S>(lanes, over_step, load::<S, T>(&rest, 0));
            rest.pass(S::STEP);
        }
        finish::<S, T>(lanes, rest)
    }
}

/// Takes all whole blocks, at least one. Returns the accumulators at the end of the last one, and what is left.
#[inline(always)]
unsafe fn blocks<S: Shape, T: To>(register: u32, mut rest: Cursor<T>) -> (Lanes<S>, Cursor<T>) {
    // SAFETY: no more is taken than is left; the instructions are the caller's promise.
    unsafe {
        let over_streams = const { Factors::over(S::STREAMED + S::STEP) }.vector::<S>();
        let mut start = register;
        let first = rest.split(S::BLOCK);
        if T::AHEAD {
            first.copy_ahead(0, S::BLOCK);
        }
        let mut part = T::copied(first);
        let mut lanes = load::<S, _>(&part, S::STREAMED);
        while rest.left() >= S::BLOCK {
            let next = Next { block: rest.split(S::BLOCK), behind: rest.left() };
            lanes = block::<S, _, _>(start, lanes, part, Some(next));
            part = T::copied(next.block);
            lanes = fold::<S>(lanes, over_streams, load::<S, _>(&part, S::STREAMED));
            start = 0;
        }
        (block::<S, _, T>(start, lanes, part, None), rest)
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
unsafe fn load<S: Shape, T: To>(rest: &Cursor<T>, offset: usize) -> Lanes<S> {
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

/// The block after the one that is digested.
#[derive(Clone, Copy)]
struct Next<T: To> {
    block: Cursor<T>,
    /// Bytes of the message behind it.
    behind: usize,
}

impl<T: To> Next<T> {
    /// Copies what is no round's part of the block, if blocks are copied ahead.
    #[inline(always)]
    unsafe fn begin<S: Shape>(&self) {
        if T::AHEAD {
            // SAFETY: all within the block.
            unsafe { self.block.copy_ahead(0, S::BLOCK - S::ROUNDS * S::COPIED) };
        }
    }

    /// Does a round's part: copies some of the block, if blocks are copied ahead, and prefetches lines far ahead in
    /// order. The CPU's own prefetchers do not recognize a block's pattern of access, and a message that comes from
    /// memory would take twice the time.
    #[inline(always)]
    unsafe fn prepare<S: Shape>(&self, round: usize) {
        // The block that is read from the source is this one or the one before it.
        let far = if T::AHEAD { S::DISTANCE } else { S::DISTANCE - S::BLOCK };
        let far = if far <= self.behind { far } else { 0 };
        if far != 0 || !T::AHEAD {
            for line in 0..S::LINES {
                self.block.prefetch(far + (round * S::LINES + line) * LINE);
            }
        }
        if T::AHEAD {
            // SAFETY: all within the block.
            unsafe { self.block.copy_ahead(S::BLOCK - (S::ROUNDS - round) * S::COPIED, S::COPIED) };
        }
    }
}

/// Folds the rest of a block, whose first vectors are in the accumulators, digests its streams, the first from
/// `register`, and prepares the next block meanwhile.
#[inline(always)]
unsafe fn block<S: Shape, T: To, N: To>(
    register: u32,
    mut lanes: Lanes<S>,
    block: Cursor<T>,
    next: Option<Next<N>>,
) -> Lanes<S> {
    let mut registers = [u64::from(register), 0, 0, 0];
    // SAFETY: all within the blocks; the instructions are the caller's promise.
    unsafe {
        let over_step = const { Factors::over(S::STEP) }.vector::<S>();
        if let Some(next) = &next {
            next.begin::<S>();
        }
        for round in 0..S::ROUNDS {
            if round != 0 {
                lanes = fold::<S>(lanes, over_step, load::<S, T>(&block, S::STREAMED + round * S::STEP));
            }
            if let Some(next) = &next {
                next.prepare::<S>(round);
            }
            for word in 0..S::WORDS {
                for (stream, register) in registers.iter_mut().enumerate().take(S::STREAMS) {
                    let offset = stream * S::STREAM + 8 * (round * S::WORDS + word);
                    *register = crc_u64(*register, block.take_at(offset));
                }
            }
        }
        let mut sum = zero();
        for (stream, register) in registers.into_iter().enumerate().take(S::STREAMS) {
            sum = add(sum, multiply(register, S::STREAM_FACTORS[stream]));
        }
        lanes[0] = lanes[0].add_to_first(sum);
    }
    lanes
}

/// Carries the accumulators and all bytes that are left to the end, and reduces their sum to the register.
#[inline(always)]
unsafe fn finish<S: Shape, T: To>(lanes: Lanes<S>, mut rest: Cursor<T>) -> u32 {
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
            sum = add(sum, multiply(rest.take(), *home));
            home = home.add(1);
        }
        let [high, low] = words(sum);
        streams::last_bytes(crc_u64(0, high) as u32 ^ low as u32, rest)
    }
}
