//! Running other programs, all from the root of the workspace.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The interval at which a child is polled.
const POLL: Duration = Duration::from_millis(20);

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the workspace").to_path_buf()
}

/// The folder of cargo's build output.
pub(crate) fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo` of the toolchain that runs this program, with these arguments.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// The path of a program of this workspace after [`build`](crate::programs::build).
pub(crate) fn built(name: &str) -> PathBuf {
    target_dir().join("debug").join(name)
}

/// Runs `command` without input, and fails when the command fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Installs Rust's standard library for `target`, unless it is there.
pub(crate) fn add_rust_target(target: &str) -> Result<()> {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    let folder = output.context("rustc cannot be started")?.stdout;
    if Path::new(String::from_utf8_lossy(&folder).trim()).is_dir() {
        return Ok(());
    }
    run(Command::new("rustup").args(["target", "add", target]))
        .with_context(|| format!("the Rust target {target} is missing"))
}

/// The exit status of `child`, when it ends within `limit`.
pub(crate) fn wait_at_most(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait()? {
            None if Instant::now() < deadline => thread::sleep(POLL),
            status => return Ok(status),
        }
    }
}

/// The command as a user would type it.
fn show(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args()).map(OsStr::to_string_lossy);
    words.collect::<Vec<_>>().join(" ")
}

/// The names of the files in a folder, without their extensions, in order. Each such file is a target for cargo.
pub(crate) fn file_stems(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        if let Some(name) = entry?.path().file_stem().and_then(OsStr::to_str) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
