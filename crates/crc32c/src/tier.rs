//! Tiers of CPUs, so that any machine can show what an older one does.

use core::fmt;

use crate::cpu::Features;

/// A set of extensions that many CPUs have in common, and no wider ones: CPUs of one tier use the same kernels.
///
/// The environment variable `LUNETTE_CPU=NAME` hides from the kernels what this CPU has beyond a tier. It never adds an
/// extension.
#[derive(Debug, PartialEq, Eq)]
pub struct Tier {
    name: &'static str,
    features: Features,
    examples: &'static str,
}

/// The tiers of this architecture, the plainest first.
static TIERS: &[Tier] = &[
    Tier { name: "plain", features: Features::NONE, examples: "any" },
    #[cfg(target_arch = "x86_64")]
    Tier { name: "sse4.2", features: SSE42, examples: "Nehalem to Ivy Bridge, Bulldozer" },
    #[cfg(target_arch = "x86_64")]
    Tier { name: "avx2", features: AVX2, examples: "Haswell, Zen 1, Zen 2" },
    #[cfg(target_arch = "x86_64")]
    Tier { name: "broadwell", features: BROADWELL, examples: "Broadwell, Skylake-SP, Cascade Lake" },
    #[cfg(target_arch = "x86_64")]
    Tier { name: "vpclmulqdq", features: VPCLMULQDQ, examples: "Alder Lake, Zen 3" },
    #[cfg(target_arch = "x86_64")]
    Tier { name: "avx512", features: VPCLMULQDQ.and(Features::AVX512F), examples: "Ice Lake-SP, Zen 4" },
    #[cfg(target_arch = "aarch64")]
    Tier { name: "crc32", features: Features::CRC32, examples: "Cortex-A53 without cryptographic extension" },
    #[cfg(target_arch = "aarch64")]
    Tier { name: "pmull", features: PMULL, examples: "Neoverse N1" },
    #[cfg(target_arch = "aarch64")]
    Tier { name: "sha3", features: PMULL.and(Features::SHA3), examples: "Neoverse V1, Apple M1" },
];

#[cfg(target_arch = "x86_64")]
const SSE42: Features = Features::SSE42;
#[cfg(target_arch = "x86_64")]
const AVX2: Features = SSE42.and(Features::PCLMULQDQ).and(Features::AVX2);
#[cfg(target_arch = "x86_64")]
const BROADWELL: Features = AVX2.and(Features::FAST_PCLMULQDQ);
#[cfg(target_arch = "x86_64")]
const VPCLMULQDQ: Features = BROADWELL.and(Features::VPCLMULQDQ);
#[cfg(target_arch = "aarch64")]
const PMULL: Features = Features::CRC32.and(Features::PMULL);

impl Tier {
    /// The tiers of this architecture, the plainest first.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        TIERS.iter()
    }

    /// The tier with this name.
    ///
    /// ```
    /// use lunette_crc32c::{Features, Tier, UnknownTier};
    ///
    /// assert_eq!(Tier::named("plain")?.features(), Features::NONE);
    /// assert_eq!(Tier::named("abacus"), Err(UnknownTier));
    /// # Ok::<(), lunette_crc32c::UnknownTier>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When no tier of this architecture has this name.
    pub fn named(name: &str) -> Result<&'static Self, UnknownTier> {
        TIERS.iter().find(|tier| tier.name == name).ok_or(UnknownTier)
    }

    /// The tier's name, which `LUNETTE_CPU` takes.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The extensions that CPUs of the tier have.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Some CPUs of the tier, for people.
    pub fn examples(&self) -> &'static str {
        self.examples
    }
}

/// The tier that the environment variable `LUNETTE_CPU` names, if it is set. The kernels take it into account when this
/// process first asks for [`Features::of_this_cpu`], and ignore an unknown name without a word; a command can report
/// the error from here. Without the feature `std` there is no environment.
pub fn requested_tier() -> Option<Result<&'static Tier, UnknownTier>> {
    #[cfg(feature = "std")]
    return std::env::var_os("LUNETTE_CPU").map(|name| name.to_str().ok_or(UnknownTier).and_then(Tier::named));
    #[cfg(not(feature = "std"))]
    None
}

/// No tier of this architecture has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownTier;

impl fmt::Display for UnknownTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no tier of CPUs has this name; there are")?;
        TIERS.iter().try_for_each(|tier| write!(f, " {}", tier.name))
    }
}

impl core::error::Error for UnknownTier {}
