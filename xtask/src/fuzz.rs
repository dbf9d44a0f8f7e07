//! `cargo xtask fuzz`: coverage-guided fuzzing on nightly. The replay of the same targets on the stable toolchain is a
//! step of `cargo xtask test`.

use std::fs;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::{self, file_stems, root};
use crate::programs;

/// Random inputs per target that a replay adds to the corpus.
const RANDOM_INPUTS: &str = "4000";

/// Coverage-guided fuzzing.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds for each target.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time: u32,
    /// One target; without it, one after the other.
    target: Option<String>,
}

/// Runs cargo-fuzz on one target or on all; a failing target does not stop the others. New inputs go to
/// `fuzz/artifacts` (crashes) and, beside the corpus that is kept in git, to `target/corpus`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let targets = file_stems(&root().join("fuzz/fuzz_targets"))?;
    let chosen: Vec<&String> = match &arguments.target {
        None => targets.iter().collect(),
        Some(name) => match targets.iter().find(|target| *target == name) {
            Some(target) => vec![target],
            None => bail!("there is no fuzz target {name:?}; the targets are {}", targets.join(", ")),
        },
    };
    need_cargo_fuzz()?;
    let mut failed = Vec::new();
    for target in chosen {
        let found = process::target_dir().join("corpus").join(target);
        fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
        let mut command = Command::new("cargo");
        command.args(["+nightly", "fuzz", "run", "--features", "libfuzzer", target]);
        command.arg(&found).arg(root().join("fuzz/corpus").join(target));
        command.arg("--").arg(format!("-max_total_time={}", arguments.time)).arg("-max_len=16384");
        if let Err(error) = process::run(command.current_dir(root())) {
            eprintln!("{error:#}");
            failed.push(target.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("{} failed; what they say stands above, and inputs that crash are in fuzz/artifacts", failed.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs every target over its corpus and over random inputs, without coverage, on the installed toolchain.
pub(crate) fn replay() -> Result<()> {
    process::run(Command::new(programs::checked("replay")?).args(["--random", RANDOM_INPUTS]).current_dir(root()))
}

fn need_cargo_fuzz() -> Result<()> {
    let succeeds = |arguments: &[&str]| {
        let status = Command::new("cargo").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !succeeds(&["+nightly", "--version"]) {
        bail!("coverage-guided fuzzing needs a nightly toolchain; install one: rustup toolchain install nightly");
    }
    if !succeeds(&["+nightly", "fuzz", "--version"]) {
        bail!("coverage-guided fuzzing needs cargo-fuzz; install it: cargo install cargo-fuzz --locked");
    }
    // The compiler that the build script of libfuzzer-sys chooses.
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let answer = Command::new(&compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !answer.is_ok_and(|status| status.success()) {
        bail!(
            "coverage-guided fuzzing needs a C++ compiler, and {compiler:?} is none; install g++ or clang, or set CXX"
        );
    }
    Ok(())
}
