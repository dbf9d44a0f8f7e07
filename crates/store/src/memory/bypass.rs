//! Copies that bypass the processor's cache.
//!
//! A disk is larger than the cache, so the place of a write is seldom there. An ordinary copy reads that place from
//! memory first, although it overwrites all of it, and pushes something else out of the cache; one that bypasses the
//! cache only writes (`docs/measurements/2026-11-23-long-writes.md`).
#![allow(unsafe_code)]

/// The shortest copy that bypasses the cache, in bytes: a block of most file systems.
const MIN_LEN: usize = 4096;

/// Bytes of four lines, which the processor moves between cache and memory as a whole. A step for each takes
/// more instructions.
const LINES_LEN: usize = 4 * 64;

#[repr(C, align(64))]
struct Lines([u8; LINES_LEN]);

/// Like [`copy_from_slice`](slice::copy_from_slice). A copy that is not short leaves the cache as it is, but for its
/// ends.
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    if from.len() < MIN_LEN {
        return to.copy_from_slice(from);
    }
    assert_eq!(to.len(), from.len(), "bytes to copy");
    // SAFETY: lines are nothing but bytes.
    let (head, lines, tail) = unsafe { to.align_to_mut::<Lines>() };
    let (from_head, from) = from.split_at(head.len());
    let (from_lines, from_tail) = from.as_chunks();
    copy_lines(lines, from_lines);
    for (to, from) in [(head, from_head), (tail, from_tail)] {
        // Blocks leave nothing at their ends.
        if !to.is_empty() {
            to.copy_from_slice(from);
        }
    }
}

/// Copies lines, past the cache if the processor can.
fn copy_lines(to: &mut [Lines], from: &[[u8; LINES_LEN]]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX.
        return unsafe { stream_lines(to, from) };
    }
    for (to, from) in to.iter_mut().zip(from) {
        to.0 = *from;
    }
}

/// Copies lines past the cache.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[expect(
    clippy::cast_ptr_alignment,
    reason = "words that are written to are aligned, and those of the source need not be"
)]
fn stream_lines(to: &mut [Lines], from: &[[u8; LINES_LEN]]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    for (to, from) in to.iter_mut().zip(from) {
        let (to, from) = (to.0.as_mut_ptr().cast::<__m256i>(), from.as_ptr().cast::<__m256i>());
        for word in 0..LINES_LEN / size_of::<__m256i>() {
            // SAFETY: both words lie within their lines, which begin at a multiple of a word's length where they are
            // written to.
            unsafe { _mm256_stream_si256(to.add(word), _mm256_loadu_si256(from.add(word))) };
        }
    }
    // Such stores have no order with others, not even with the one that releases the lock of the bytes, but by this.
    #[allow(unused_unsafe, reason = "older compilers of our range call the fence unsafe")]
    // SAFETY: a fence reads and writes no memory.
    unsafe {
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_all_bytes_and_no_more_wherever_it_begins() {
        let from: Vec<u8> = (0..3 * MIN_LEN).map(|at| (at % 251) as u8 + 1).collect();
        let lens = [0, 1, LINES_LEN, MIN_LEN - 1, MIN_LEN, MIN_LEN + 1, 2 * MIN_LEN - 7];
        for (start, len) in (0..=64).flat_map(|start| lens.map(|len| (start, len))) {
            let from = &from[len % 100..][..len];
            let (mut copied, mut expected) = (vec![0; 3 * MIN_LEN], vec![0; 3 * MIN_LEN]);
            copy(&mut copied[start..start + len], from);
            expected[start..start + len].copy_from_slice(from);
            assert!(copied == expected, "{len} bytes at {start}");
        }
    }
}
