//! The architectures of Debian that a package can be made for on amd64.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::packages;
use crate::process;

/// A target whose programs run on Debian's arm64.
const ARM64: &str = "aarch64-unknown-linux-gnu";

/// The prefix of the tools that Debian cross-builds for arm64 with.
const ARM64_TOOLS: &str = "aarch64-linux-gnu";

#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Architecture {
    #[default]
    Amd64,
    Arm64,
}

impl Architecture {
    /// Installs compiler, linker and emulator.
    pub(super) fn provide(self) -> Result<()> {
        if self == Self::Amd64 {
            return Ok(());
        }
        packages::provide_for_cross_building()?;
        process::add_rust_target(ARM64)
    }

    /// Has cargo build for this architecture.
    pub(super) fn cross(self, command: &mut Command) -> &mut Command {
        if self == Self::Amd64 {
            return command;
        }
        command.args(["--target", ARM64]);
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", format!("{ARM64_TOOLS}-gcc"))
    }

    /// The folder below cargo's that has the folders of the profiles.
    pub(super) fn folder(self, target_dir: PathBuf) -> PathBuf {
        if self == Self::Amd64 { target_dir } else { target_dir.join(ARM64) }
    }

    /// Starts a program that was built.
    pub(super) fn start(self, program: &Path) -> Command {
        if self == Self::Amd64 {
            return Command::new(program);
        }
        let mut command = Command::new("qemu-aarch64-static");
        command.args(["-L", &format!("/usr/{ARM64_TOOLS}")]).arg(program);
        command
    }
}
