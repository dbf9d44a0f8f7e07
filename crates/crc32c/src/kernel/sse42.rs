//! The `crc32q` instruction of SSE4.2: eight bytes a step.

use core::arch::x86_64::{__cpuid, _mm_crc32_u8, _mm_crc32_u64};
use core::sync::atomic::{AtomicU8, Ordering};

/// CPUID leaf 1, ECX: SSE4.2.
const SSE42: u32 = 1 << 20;

/// 0: not yet asked; 1: no; 2: yes.
static KNOWN: AtomicU8 = AtomicU8::new(0);

#[inline]
pub(super) fn is_available() -> bool {
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            #[allow(unused_unsafe, reason = "older compilers of our range call CPUID unsafe")]
            // SAFETY: every x86-64 CPU has CPUID.
            let leaf = unsafe { __cpuid(1) };
            let yes = leaf.ecx & SSE42 != 0;
            KNOWN.store(1 + u8::from(yes), Ordering::Relaxed);
            yes
        }
        known => known == 2,
    }
}

#[target_feature(enable = "sse4.2")]
pub(super) fn update(register: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut wide = u64::from(register);
    for word in words {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
    }
    let mut register = wide as u32;
    for byte in rest {
        register = _mm_crc32_u8(register, *byte);
    }
    register
}

#[target_feature(enable = "sse4.2")]
pub(super) fn copy(register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    let (words, rest) = src.as_chunks::<8>();
    let (word_places, rest_places) = dst.as_chunks_mut::<8>();
    let mut wide = u64::from(register);
    for (place, word) in word_places.iter_mut().zip(words) {
        let word = *word;
        *place = word;
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(word));
    }
    let mut register = wide as u32;
    for (place, byte) in rest_places.iter_mut().zip(rest) {
        let byte = *byte;
        *place = byte;
        register = _mm_crc32_u8(register, byte);
    }
    register
}
