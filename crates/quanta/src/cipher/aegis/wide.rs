//! AEGIS-256 of several quanta side by side, for CPUs with AVX-512 and VAES.
//!
//! A vector of 64 bytes holds one block of each of four states, and one instruction makes a round of AES in all four.
//! The states share the key and nothing else, so the bytes are those of AEGIS-256 (draft-irtf-cfrg-aegis-aead, section
//! 4); the tests compare them with those of the crate `aegis`. A step of a state waits for the step before it; two
//! groups of four states fill the time.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm_loadu_si128, _mm512_aesenc_epi128, _mm512_broadcast_i32x4, _mm512_loadu_si512, _mm512_shuffle_i32x4,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};
use std::array;
use std::iter::zip;

use crate::associated;
use crate::cipher::lanes::Lane;
use crate::key::KEY_LEN;
use crate::slot::TAG_LEN;

/// States in one vector.
const STATES: usize = 4;

/// The most lanes that go side by side.
const MAX_STATES: usize = 2 * STATES;

/// Bytes of a vector, and of each lane that one round of the loop works on.
const VECTOR_LEN: usize = 64;

/// Bytes of a block of AEGIS-256.
const BLOCK_LEN: usize = 16;

/// The constants of the draft.
const C0: [u8; BLOCK_LEN] = [0, 1, 1, 2, 3, 5, 8, 0x0d, 0x15, 0x22, 0x37, 0x59, 0x90, 0xe9, 0x79, 0x62];
const C1: [u8; BLOCK_LEN] =
    [0xdb, 0x3d, 0x18, 0x55, 0x6d, 0xc2, 0x2f, 0xf1, 0x20, 0x11, 0x31, 0x42, 0x73, 0xb5, 0x28, 0xdd];

/// Says that the CPU has the instructions. Only [`detect`](Self::detect) makes one.
#[derive(Clone, Copy)]
pub(super) struct Wide(());

impl Wide {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vaes")).then_some(Self(()))
    }

    /// Encrypts lanes, and makes their tags.
    pub(super) fn seal(self, key: &[u8; KEY_LEN], lanes: &mut [Lane<'_>]) {
        for lanes in lanes.chunks_mut(MAX_STATES) {
            let tags = self.run::<true>(key, lanes);
            zip(lanes, tags).for_each(|(lane, tag)| lane.tag = tag);
        }
    }

    /// Decrypts lanes. `Err` is the number of the first whose tag is another; what it and those behind it would have
    /// held is erased.
    pub(super) fn open(self, key: &[u8; KEY_LEN], lanes: &mut [Lane<'_>]) -> Result<(), usize> {
        for (run, lanes) in lanes.chunks_mut(MAX_STATES).enumerate() {
            let tags = self.run::<false>(key, lanes);
            if let Some(wrong) = zip(&*lanes, tags).position(|(lane, tag)| !is_same(&lane.tag, &tag)) {
                lanes[wrong..].iter_mut().for_each(|lane| lane.data.fill(0));
                return Err(run * MAX_STATES + wrong);
            }
        }
        Ok(())
    }

    fn run<const SEAL: bool>(self, key: &[u8; KEY_LEN], lanes: &mut [Lane<'_>]) -> [[u8; TAG_LEN]; MAX_STATES] {
        let Self(()) = self;
        let mut tags = [[0; TAG_LEN]; MAX_STATES];
        // Safety: `self` says that the CPU has the instructions. The function asks for nothing else: it checks the
        // lanes.
        unsafe {
            if lanes.len() <= STATES {
                run::<1, SEAL>(key, lanes, &mut tags);
            } else {
                run::<2, SEAL>(key, lanes, &mut tags);
            }
        }
        tags
    }
}

/// Compares tags in a time that does not depend on them.
fn is_same(one: &[u8; TAG_LEN], other: &[u8; TAG_LEN]) -> bool {
    u128::from_ne_bytes(*one) ^ u128::from_ne_bytes(*other) == 0
}

/// Four states, the blocks of one name in one vector.
type States = [__m512i; 6];

/// Encrypts or decrypts up to `STATES * GROUPS` lanes, and makes their tags.
#[target_feature(enable = "avx512f,vaes")]
fn run<const GROUPS: usize, const SEAL: bool>(
    key: &[u8; KEY_LEN],
    lanes: &mut [Lane<'_>],
    tags: &mut [[u8; TAG_LEN]; MAX_STATES],
) {
    let len = lanes.first().map_or(0, |lane| lane.data.len());
    let is_fit = |lane: &Lane<'_>| lane.data.len() == len && lane.from.is_none_or(|from| from.len() == len);
    assert!(len.is_multiple_of(VECTOR_LEN) && lanes.iter().all(is_fit), "lanes of one length, of whole vectors");
    // States without a lane of their own repeat the work of the last one, and write the same bytes to the same place.
    let last = lanes.len() - 1;
    let lane = |group: usize, state: usize| (group * STATES + state).min(last);
    let mut states: [States; GROUPS] = array::from_fn(|group| {
        let nonce = |half| gather(|state| block(&lanes[lane(group, state)].nonce, half));
        begin(key, [nonce(0), nonce(1)])
    });
    for at in 0..associated::LEN / BLOCK_LEN {
        for (group, states) in states.iter_mut().enumerate() {
            *states = update(*states, gather(|state| block(&lanes[lane(group, state)].associated, at)));
        }
    }
    let mut places = [(std::ptr::null(), std::ptr::null_mut()); MAX_STATES];
    for (place, lane) in zip(&mut places, lanes) {
        let to = lane.data.as_mut_ptr();
        *place = (lane.from.map_or(to.cast_const(), <[u8]>::as_ptr), to);
    }
    let places: [[_; STATES]; GROUPS] = array::from_fn(|group| array::from_fn(|state| places[lane(group, state)]));
    for at in (0..len).step_by(VECTOR_LEN) {
        for (states, places) in zip(&mut states, &places) {
            // Safety: all lanes have `len` bytes, a multiple of a vector's, before and after, and `at` is below it. All
            // bytes of this round are read before any is written, so a lane may work in place, and appear twice.
            let blocks = places.map(|(from, _)| unsafe { _mm512_loadu_si512(from.add(at).cast()) });
            let blocks = transpose(crypt::<SEAL>(states, transpose(blocks)));
            for (bytes, (_, to)) in zip(blocks, places) {
                // Safety: as above.
                unsafe { _mm512_storeu_si512(to.add(at).cast(), bytes) };
            }
        }
    }
    for (states, tags) in zip(states, tags.as_chunks_mut().0) {
        end(states, len, tags);
    }
}

/// The first states of four lanes (section 4.1).
#[target_feature(enable = "avx512f,vaes")]
fn begin(key: &[u8; KEY_LEN], [n0, n1]: [__m512i; 2]) -> States {
    let (k0, k1, c0, c1) = (broadcast(block(key, 0)), broadcast(block(key, 1)), broadcast(&C0), broadcast(&C1));
    let (kn0, kn1) = (_mm512_xor_si512(k0, n0), _mm512_xor_si512(k1, n1));
    let mut states = [kn0, kn1, c1, c0, _mm512_xor_si512(k0, c0), _mm512_xor_si512(k1, c1)];
    for _ in 0..4 {
        for message in [k0, k1, kn0, kn1] {
            states = update(states, message);
        }
    }
    states
}

/// One step of four states (section 4.2), for a `message` that is there early: it enters with the round's key.
#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn update([s0, s1, s2, s3, s4, s5]: States, message: __m512i) -> States {
    [
        _mm512_aesenc_epi128(s5, _mm512_xor_si512(s0, message)),
        _mm512_aesenc_epi128(s0, s1),
        _mm512_aesenc_epi128(s1, s2),
        _mm512_aesenc_epi128(s2, s3),
        _mm512_aesenc_epi128(s3, s4),
        _mm512_aesenc_epi128(s4, s5),
    ]
}

/// The step for a `message` that is made from the states: it enters behind the round.
#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn update_late([s0, s1, s2, s3, s4, s5]: States, message: __m512i) -> States {
    [
        _mm512_xor_si512(_mm512_aesenc_epi128(s5, s0), message),
        _mm512_aesenc_epi128(s0, s1),
        _mm512_aesenc_epi128(s1, s2),
        _mm512_aesenc_epi128(s2, s3),
        _mm512_aesenc_epi128(s3, s4),
        _mm512_aesenc_epi128(s4, s5),
    ]
}

/// Four steps, each of which encrypts or decrypts a block of each lane (sections 4.4 and 4.5).
#[target_feature(enable = "avx512f,vaes")]
fn crypt<const SEAL: bool>(states: &mut States, blocks: [__m512i; 4]) -> [__m512i; 4] {
    /// `a ^ b ^ c`, as a table of what three bits give.
    const XOR_XOR: i32 = 0x96;
    /// `a ^ (b & c)`.
    const XOR_AND: i32 = 0x78;
    blocks.map(|block| {
        let [_, s1, s2, s3, s4, s5] = *states;
        let stream = _mm512_ternarylogic_epi64::<XOR_XOR>(s1, s4, s5);
        let stream = _mm512_ternarylogic_epi64::<XOR_AND>(stream, s2, s3);
        let done = _mm512_xor_si512(stream, block);
        *states = if SEAL { update(*states, block) } else { update_late(*states, done) };
        done
    })
}

/// The tags of four lanes of `len` bytes (section 4.7).
#[target_feature(enable = "avx512f,vaes")]
fn end(mut states: States, len: usize, tags: &mut [[u8; TAG_LEN]; STATES]) {
    let mut lengths = [0; BLOCK_LEN];
    let (associated_bits, bits) = lengths.split_at_mut(BLOCK_LEN / 2);
    associated_bits.copy_from_slice(&(associated::LEN as u64 * 8).to_le_bytes());
    bits.copy_from_slice(&(len as u64 * 8).to_le_bytes());
    let message = _mm512_xor_si512(states[3], broadcast(&lengths));
    for _ in 0..7 {
        states = update(states, message);
    }
    let [s0, s1, s2, s3, s4, s5] = states;
    let (first, second) = (_mm512_xor_si512(s0, s1), _mm512_xor_si512(s2, s3));
    let tag = _mm512_xor_si512(_mm512_xor_si512(first, second), _mm512_xor_si512(s4, s5));
    // Safety: four tags are as long as a vector.
    unsafe { _mm512_storeu_si512(tags.as_mut_ptr().cast(), tag) };
}

/// Turns four vectors with four blocks of one lane each into vectors with one block of each of four lanes, and back.
#[target_feature(enable = "avx512f")]
fn transpose([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    const LOW_HALVES: i32 = 0x44;
    const HIGH_HALVES: i32 = 0xee;
    const EVEN: i32 = 0x88;
    const ODD: i32 = 0xdd;
    let (ab, cd) = (_mm512_shuffle_i32x4::<LOW_HALVES>(a, b), _mm512_shuffle_i32x4::<LOW_HALVES>(c, d));
    let (ab_high, cd_high) = (_mm512_shuffle_i32x4::<HIGH_HALVES>(a, b), _mm512_shuffle_i32x4::<HIGH_HALVES>(c, d));
    [
        _mm512_shuffle_i32x4::<EVEN>(ab, cd),
        _mm512_shuffle_i32x4::<ODD>(ab, cd),
        _mm512_shuffle_i32x4::<EVEN>(ab_high, cd_high),
        _mm512_shuffle_i32x4::<ODD>(ab_high, cd_high),
    ]
}

/// Block `at` of some bytes.
fn block(bytes: &[u8], at: usize) -> &[u8; BLOCK_LEN] {
    &bytes.as_chunks().0[at]
}

/// One block in all four places.
#[target_feature(enable = "avx512f")]
fn broadcast(block: &[u8; BLOCK_LEN]) -> __m512i {
    // Safety: a block has the bytes that are read.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(block.as_ptr().cast()) })
}

/// A block for each of four states.
#[target_feature(enable = "avx512f")]
fn gather<'a>(of: impl Fn(usize) -> &'a [u8; BLOCK_LEN]) -> __m512i {
    let blocks: [[u8; BLOCK_LEN]; STATES] = array::from_fn(|state| *of(state));
    // Safety: four blocks are as long as a vector.
    unsafe { _mm512_loadu_si512(blocks.as_ptr().cast()) }
}
