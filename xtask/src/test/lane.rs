//! Steps in a process of their own, beside the steps of this one.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

/// The priority of the other lane. What compiles must not keep tests from running.
const NICENESS: &str = "10";

/// A running lane. Its output goes to a file, so that the two do not mix on a terminal.
pub(super) struct Lane {
    child: Child,
    log: PathBuf,
}

impl Lane {
    /// Starts `steps`, one after the other.
    pub(super) fn start(steps: &[&str]) -> Result<Self> {
        let log = process::target_dir().join("other-lane.log");
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let steps = steps.join(",");
        eprintln!("== beside what follows: {steps}; output in {}", log.display());
        let mut command = Command::new("nice");
        command.args(["-n", NICENESS]).arg(process::built("xtask")).args(["test", "--only", &steps]);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).current_dir(process::root());
        let child = command.spawn().context("cannot start nice")?;
        Ok(Self { child, log })
    }

    /// Fails when a step of the lane has failed.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => self.outcome(status),
            None => Ok(()),
        }
    }

    /// Waits for the last step of the lane and shows the output.
    pub(super) fn finish(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        self.outcome(status)?;
        eprintln!("{}", self.output());
        Ok(())
    }

    fn outcome(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("{}\na step of the other lane failed: {status}", self.output());
        }
        Ok(())
    }

    fn output(&self) -> String {
        fs::read(&self.log).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }
}

impl Drop for Lane {
    /// Ends the lane when a step of this one has failed. A compiler that runs for it ends by itself.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
