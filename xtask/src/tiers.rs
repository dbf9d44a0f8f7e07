//! The digest kernels as other CPUs run them: tiers of x86-64 by `LUNETTE_CPU`, those of ARM in an emulator.

use std::process::Command;

use anyhow::Result;

use crate::packages;
use crate::process::{self, cargo};

/// The values of `LUNETTE_CPU` on x86-64. The widest tier is what the step `unit` tests.
const X86_64: [&str; 5] = ["plain", "sse4.2", "avx2", "broadwell", "vpclmulqdq"];

/// All test programs but `choice`, which sets the variable itself.
const X86_64_TESTS: [&str; 8] = ["--test", "kernels", "--test", "memory", "--test", "segments", "--test", "vectors"];

/// The values of `LUNETTE_CPU` on ARM, the widest tier first.
const AARCH64: [&str; 4] = ["sha3", "pmull", "crc32", "plain"];

/// The tests that ask which kernels a tier uses. Those of each kernel are the same on every tier that has it, and slow
/// in an emulator.
const OF_CHOICES: [&str; 3] = ["chosen", "long_messages", "which_kernels"];

/// A target whose programs need no C compiler to be linked, and no libraries to be run.
const AARCH64_TARGET: &str = "aarch64-unknown-linux-musl";

/// Runs the kernels' tests on all tiers.
pub(crate) fn step() -> Result<()> {
    for tier in X86_64 {
        process::run(tests("--workspace").args(X86_64_TESTS).env("LUNETTE_CPU", tier))?;
    }
    packages::provide_for_emulation()?;
    process::add_rust_target(AARCH64_TARGET)?;
    for tier in AARCH64 {
        let mut command = tests("--package=lunette-crc32c");
        command.args(["--target", AARCH64_TARGET, "--test", "kernels"]);
        if tier == AARCH64[0] {
            // The tests in `memory` race with time.
            command.args(["--test", "vectors", "--lib"]);
        } else {
            command.arg("--").args(OF_CHOICES);
        }
        command
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld")
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", "qemu-aarch64-static -cpu max")
            .env("LUNETTE_CPU", tier);
        process::run(&mut command)?;
    }
    Ok(())
}

fn tests(crates: &str) -> Command {
    cargo(["test", "--locked", crates])
}
