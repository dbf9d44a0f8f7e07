//! The programs that the checks run: built once, and started without cargo.
//!
//! cargo locks its folder while it checks what is fresh. Without cargo, tests run while another step compiles.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{self, cargo};

/// Builds all that tests run, once in the life of this process: the tests, and the programs that they start.
///
/// All of it is one build of the whole workspace, so that each crate is compiled once, with one set of features. The
/// tests are listed, too: a list that is made beside another step waits until that step has compiled.
pub(crate) fn build() -> Result<()> {
    static BUILT: OnceLock<()> = OnceLock::new();
    if BUILT.get().is_some() {
        return Ok(());
    }
    process::run(&mut cargo(["build", "--locked", "--workspace", "--bins", "--tests", "--examples"]))?;
    Programs::of_tests()?;
    Programs::end_to_end_tests()?;
    let _ = BUILT.set(());
    Ok(())
}

/// Builds a program with the compiler's checks in it, and gives its path.
pub(crate) fn checked(name: &str) -> Result<PathBuf> {
    build()?;
    Ok(process::built(name))
}

/// Test programs.
#[derive(Clone)]
pub(crate) struct Programs(Vec<Program>);

/// A test program, as cargo would start it.
#[derive(Clone)]
struct Program {
    name: String,
    folder: PathBuf,
    path: PathBuf,
}

impl Programs {
    /// All test programs but the end-to-end tests.
    pub(crate) fn of_tests() -> Result<&'static Self> {
        static LISTED: OnceLock<Programs> = OnceLock::new();
        Self::listed_once(&LISTED, &[])
    }

    /// The end-to-end tests of this name.
    pub(crate) fn end_to_end(name: &str) -> Result<Self> {
        Ok(Self::end_to_end_tests()?.named(name))
    }

    fn end_to_end_tests() -> Result<&'static Self> {
        static LISTED: OnceLock<Programs> = OnceLock::new();
        Self::listed_once(&LISTED, &["--test", "interop", "--test", "ceph", "--test", "habits"])
    }

    fn listed_once(list: &'static OnceLock<Self>, arguments: &[&str]) -> Result<&'static Self> {
        if list.get().is_none() {
            let _ = list.set(Self::listed(arguments)?);
        }
        list.get().context("the list is there")
    }

    /// The programs of this name.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|program| program.name == name).cloned().collect())
    }

    /// Runs all of them, one after the other, and names each that fails.
    pub(crate) fn run(&self, variables: &[(&str, &str)]) -> Result<()> {
        self.run_some(&[], variables)
    }

    /// Runs the tests of all of them that these arguments choose.
    pub(crate) fn run_some(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
        if self.0.is_empty() {
            bail!("there is no such test program");
        }
        let mut failed = Vec::new();
        for program in &self.0 {
            let mut command = Command::new(&program.path);
            command.args(arguments).current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
            if let Err(error) = process::run(command.envs(variables.iter().copied())) {
                eprintln!("{error:#}");
                failed.push(format!("{} of {}", program.name, program.folder.display()));
            }
        }
        if !failed.is_empty() {
            bail!("tests failed: {}", failed.join(", "));
        }
        Ok(())
    }

    /// Builds the tests that `arguments` choose, and lists them.
    fn listed(arguments: &[&str]) -> Result<Self> {
        let mut command =
            cargo(["test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
        command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().context("cannot start cargo")?;
        if !output.status.success() {
            bail!("the tests cannot be built");
        }
        String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect::<Result<_>>().map(Self)
    }
}

/// A message of cargo (`cargo help build`, message-format).
#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The test program that a line of cargo's output tells of.
fn program(line: &str) -> Option<Result<Program>> {
    let message: Message = match serde_json::from_str(line) {
        Ok(message) => message,
        Err(error) => return Some(Err(error).context("cargo printed something else than its messages")),
    };
    let Message { manifest_path: Some(manifest), executable: Some(path), target: Some(target), profile: Some(profile) } =
        message
    else {
        return None;
    };
    let folder = manifest.parent().unwrap_or(Path::new(".")).to_owned();
    profile.test.then_some(Ok(Program { name: target.name, folder, path }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_programs_are_listed() {
        let line = |executable: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"p","manifest_path":"/w/crates/a/Cargo.toml","target":{{"name":"server"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let listed = program(&line(r#""/w/target/debug/deps/server-1""#, true)).unwrap().unwrap();
        assert_eq!(listed.name, "server");
        assert_eq!(listed.folder, Path::new("/w/crates/a"));
        assert!(program(&line("null", true)).is_none());
        assert!(program(&line(r#""/w/target/debug/lunette""#, false)).is_none());
        assert!(program(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(program("warning: something").unwrap().is_err());
    }
}
