//! What the CPU can do, by its feature bits.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

/// A set of instruction set extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u8);

impl Features {
    /// No extension, which any CPU can do with.
    pub const NONE: Self = Self(0);
    /// SSE4.2, for `crc32`.
    pub const SSE42: Self = Self(1);
    /// PCLMULQDQ, carry-less multiplication.
    pub const PCLMULQDQ: Self = Self(1 << 1);
    /// AVX2, and an operating system that keeps 256-bit registers.
    pub const AVX2: Self = Self(1 << 2);
    /// VPCLMULQDQ, carry-less multiplication of whole vectors.
    pub const VPCLMULQDQ: Self = Self(1 << 3);
    /// AVX-512F, and an operating system that keeps 512-bit registers.
    pub const AVX512F: Self = Self(1 << 4);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::SSE42, "SSE4.2"),
        (Self::PCLMULQDQ, "PCLMULQDQ"),
        (Self::AVX2, "AVX2"),
        (Self::VPCLMULQDQ, "VPCLMULQDQ"),
        (Self::AVX512F, "AVX-512F"),
    ];

    /// Set in the cache once the CPU has been asked.
    const ASKED: u8 = 1 << 7;

    /// The extensions of this CPU. The CPU is asked once.
    #[inline]
    pub fn of_this_cpu() -> Self {
        static KNOWN: AtomicU8 = AtomicU8::new(0);
        match KNOWN.load(Ordering::Relaxed) {
            0 => {
                let features = detect();
                KNOWN.store(features.0 | Self::ASKED, Ordering::Relaxed);
                features
            }
            known => Self(known & !Self::ASKED),
        }
    }

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The extensions in `self` that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the set is empty.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let mut separator = "";
        for (feature, name) in Self::NAMES {
            if self.0 & feature.0 != 0 {
                write!(f, "{separator}{name}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Features {
    Features::NONE
}

/// Intel SDM volume 2, CPUID leaves 1 and 7; volume 1, section 13.3 for XCR0.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "older compilers of our range call CPUID unsafe")]
fn detect() -> Features {
    use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    const BASE_PCLMULQDQ: u32 = 1 << 1;
    const BASE_SSE42: u32 = 1 << 20;
    const BASE_OSXSAVE: u32 = 1 << 27;
    const MORE_EBX_AVX2: u32 = 1 << 5;
    const MORE_EBX_AVX512F: u32 = 1 << 16;
    const MORE_ECX_VPCLMULQDQ: u32 = 1 << 10;
    const STATE_256: u64 = 0b110;
    const STATE_512: u64 = 0b1110_0110;

    // SAFETY: every x86-64 CPU has CPUID.
    let (highest, base) = unsafe { (__cpuid(0).eax, __cpuid(1)) };
    let mut found = Features::NONE;
    let mut note = |there: bool, feature| {
        if there {
            found = found.and(feature);
        }
    };
    note(base.ecx & BASE_SSE42 != 0, Features::SSE42);
    note(base.ecx & BASE_PCLMULQDQ != 0, Features::PCLMULQDQ);
    if highest >= 7 && base.ecx & BASE_OSXSAVE != 0 {
        // SAFETY: the leaf exists, and OSXSAVE says that XGETBV does.
        let (more, state) = unsafe { (__cpuid_count(7, 0), _xgetbv(0)) };
        let (keeps_256, keeps_512) = (state & STATE_256 == STATE_256, state & STATE_512 == STATE_512);
        note(keeps_256 && more.ebx & MORE_EBX_AVX2 != 0, Features::AVX2);
        note(keeps_256 && more.ecx & MORE_ECX_VPCLMULQDQ != 0, Features::VPCLMULQDQ);
        note(keeps_512 && more.ebx & MORE_EBX_AVX512F != 0, Features::AVX512F);
    }
    found
}

#[cfg(all(test, target_arch = "x86_64", feature = "std"))]
mod tests {
    use super::Features;

    #[test]
    fn agrees_with_the_standard_library() {
        use std::is_x86_feature_detected as has;
        for (feature, there) in [
            (Features::SSE42, has!("sse4.2")),
            (Features::PCLMULQDQ, has!("pclmulqdq")),
            (Features::AVX2, has!("avx2")),
            (Features::VPCLMULQDQ, has!("vpclmulqdq")),
            (Features::AVX512F, has!("avx512f")),
        ] {
            assert_eq!(feature.without(Features::of_this_cpu()).is_none(), there, "{feature}");
        }
    }
}
