//! The features of the CPU.

use core::fmt;
use core::sync::atomic::{AtomicU16, Ordering};

use crate::tier::requested_tier;

/// A set of instruction set extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u16);

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
    /// A multiplier that starts a PCLMULQDQ every cycle: Intel's from Broadwell on. Others start one every second
    /// cycle, or are slower still.
    pub const FAST_PCLMULQDQ: Self = Self(1 << 8);
    /// ARM's CRC32 instructions, which include those for CRC32C.
    pub const CRC32: Self = Self(1 << 5);
    /// PMULL on 64-bit words, ARM's carry-less multiplication.
    pub const PMULL: Self = Self(1 << 6);
    /// ARM's SHA3 instructions, for EOR3, the addition of three vectors.
    pub const SHA3: Self = Self(1 << 7);

    const NAMES: [(Self, &'static str); 9] = [
        (Self::SSE42, "SSE4.2"),
        (Self::PCLMULQDQ, "PCLMULQDQ"),
        (Self::FAST_PCLMULQDQ, "fast-PCLMULQDQ"),
        (Self::AVX2, "AVX2"),
        (Self::VPCLMULQDQ, "VPCLMULQDQ"),
        (Self::AVX512F, "AVX-512F"),
        (Self::CRC32, "CRC32"),
        (Self::PMULL, "PMULL"),
        (Self::SHA3, "SHA3"),
    ];

    /// Set in the cache once the CPU has been asked.
    const ASKED: u16 = 1 << 15;

    /// The extensions of this CPU that the environment variable `LUNETTE_CPU` leaves: those of the
    /// [`Tier`](crate::Tier) that it names, and all if it is not set or names none. The CPU is asked once, and so is
    /// the environment. An operating system without the feature `std` has no environment, and on ARM nothing to ask.
    #[inline]
    pub fn of_this_cpu() -> Self {
        static KNOWN: AtomicU16 = AtomicU16::new(0);
        match KNOWN.load(Ordering::Relaxed) {
            0 => {
                let features = match requested_tier() {
                    // There is nothing to ask, which spares Miri an instruction that it does not know.
                    Some(Ok(tier)) if tier.features() == Self::NONE => Self::NONE,
                    Some(Ok(tier)) => detect().only(tier.features()),
                    _ => detect(),
                };
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

    /// The extensions in both sets.
    #[must_use]
    pub const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
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

#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little", feature = "std"))))]
fn detect() -> Features {
    Features::NONE
}

/// The kernels expect little-endian words.
#[cfg(all(target_arch = "aarch64", target_endian = "little", feature = "std"))]
fn detect() -> Features {
    use std::arch::is_aarch64_feature_detected as has;

    [(has!("crc"), Features::CRC32), (has!("pmull"), Features::PMULL), (has!("sha3"), Features::SHA3)]
        .into_iter()
        .filter(|(there, _)| *there)
        .fold(Features::NONE, |found, (_, feature)| found.and(feature))
}

/// Intel SDM volume 2, CPUID leaves 0, 1 and 7; volume 1, section 13.3 for XCR0.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "older compilers of our range call CPUID unsafe")]
fn detect() -> Features {
    use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    const BASE_PCLMULQDQ: u32 = 1 << 1;
    const BASE_SSE42: u32 = 1 << 20;
    const BASE_OSXSAVE: u32 = 1 << 27;
    const MORE_EBX_AVX2: u32 = 1 << 5;
    const MORE_EBX_AVX512F: u32 = 1 << 16;
    const MORE_EBX_ADX: u32 = 1 << 19;
    const MORE_ECX_VPCLMULQDQ: u32 = 1 << 10;
    const STATE_256: u64 = 0b110;
    const STATE_512: u64 = 0b1110_0110;

    // SAFETY: every x86-64 CPU has CPUID.
    let (first, base) = unsafe { (__cpuid(0), __cpuid(1)) };
    let intel = [first.ebx, first.edx, first.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel";
    let mut found = Features::NONE;
    let mut note = |there: bool, feature| {
        if there {
            found = found.and(feature);
        }
    };
    note(base.ecx & BASE_SSE42 != 0, Features::SSE42);
    note(base.ecx & BASE_PCLMULQDQ != 0, Features::PCLMULQDQ);
    if first.eax >= 7 && base.ecx & BASE_OSXSAVE != 0 {
        // SAFETY: the leaf exists, and OSXSAVE says that XGETBV does.
        let (more, state) = unsafe { (__cpuid_count(7, 0), _xgetbv(0)) };
        let (keeps_256, keeps_512) = (state & STATE_256 == STATE_256, state & STATE_512 == STATE_512);
        // Broadwell brought ADX and the faster multiplier (uops.info: throughput 1, Haswell's 2).
        note(intel && base.ecx & BASE_PCLMULQDQ != 0 && more.ebx & MORE_EBX_ADX != 0, Features::FAST_PCLMULQDQ);
        note(keeps_256 && more.ebx & MORE_EBX_AVX2 != 0, Features::AVX2);
        note(keeps_256 && more.ecx & MORE_ECX_VPCLMULQDQ != 0, Features::VPCLMULQDQ);
        note(keeps_512 && more.ebx & MORE_EBX_AVX512F != 0, Features::AVX512F);
    }
    found
}

#[cfg(all(test, target_arch = "x86_64", feature = "std"))]
mod tests {
    use super::{Features, detect};

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
            assert_eq!(feature.without(detect()).is_none(), there, "{feature}");
        }
    }
}
