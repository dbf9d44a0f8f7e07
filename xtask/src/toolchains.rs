//! `cargo xtask oldest` and `cargo xtask miri`: checks that need another toolchain than the installed one.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process::{self, root, target_dir};

/// The tests that Miri runs: a crate with `unsafe`, and its tests that need nothing that Miri lacks. It has no
/// reservations of address space, no sockets, no C and few vector instructions.
const UNDER_MIRI: [(&str, &[&str]); 2] =
    [("lunette-crc32c", &["--test", "vectors"]), ("lunette-reactor", &["--lib", "lists"])];

/// The part of the workspace's manifest with the oldest compiler that it promises.
#[derive(Deserialize)]
struct Manifest {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    package: Package,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Package {
    rust_version: String,
}

/// Checks the command and all libraries with the oldest compiler that they promise.
pub(crate) fn oldest() -> Result<ExitCode> {
    let manifest: Manifest = toml::from_str(&fs::read_to_string(root().join("Cargo.toml"))?)?;
    let version = manifest.workspace.package.rust_version;
    process::run(Command::new("rustup").args(["toolchain", "install", &version, "--profile", "minimal"]))?;
    process::run(of_toolchain(&version).args(["check", "--locked", "--workspace", "--lib", "--bins"]))?;
    println!("Rust {version} compiles all of it");
    Ok(ExitCode::SUCCESS)
}

/// Runs tests of the crates with `unsafe` in Miri, which finds undefined behaviour.
pub(crate) fn miri() -> Result<ExitCode> {
    for (name, arguments) in UNDER_MIRI {
        let mut command = of_toolchain("nightly");
        command.args(["miri", "test", "--package", name]).args(arguments);
        // Files and the environment are this system's own.
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("LUNETTE_CPU", "plain");
        process::run(&mut command)
            .context("Miri is a component of nightly: rustup component add miri rust-src --toolchain nightly")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// cargo of another toolchain, with a folder of its own for what it builds.
fn of_toolchain(name: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", name, "cargo"]).current_dir(root()).env("CARGO_TARGET_DIR", target_dir().join(name));
    command
}
