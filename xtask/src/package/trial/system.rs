//! A system in a container, with systemd as its first process.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::network::Network;
use crate::process::{target_dir, wait_at_most};

/// How long the system may take to start, and a condition to become true.
const LIMIT: Duration = Duration::from_mins(1);

/// The interval at which conditions are looked at.
const POLL: Duration = Duration::from_millis(200);

/// A system that runs; what is changed in it is lost with it.
pub(super) struct System {
    container: Child,
    /// The first process of the container, as this system numbers it.
    leader: u32,
}

impl System {
    /// Boots `base` in the namespace of `network`; `packages` are at `/packages` there.
    pub(super) fn boot(base: &Path, packages: &Path, network: &Network) -> Result<Self> {
        let log = target_dir().join("trial.log");
        eprintln!("\n== boot {}; its console is {}", base.display(), log.display());
        let log = File::create(log)?;
        let container = Command::new("systemd-nspawn")
            .args(["--quiet", "--boot", "--volatile=overlay", "--register=no", "--keep-unit", "--console=pipe"])
            .arg("--machine=lunette-trial")
            .arg(format!("--directory={}", base.display()))
            .arg(format!("--bind-ro={}:/packages", packages.display()))
            .arg(format!("--network-namespace-path={}", network.inside()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start systemd-nspawn")?;
        let mut system = Self { container, leader: 0 };
        let deadline = Instant::now() + LIMIT;
        while !system.is_up() {
            if Instant::now() > deadline || system.container.try_wait()?.is_some() {
                bail!("the system does not start");
            }
            thread::sleep(POLL);
        }
        Ok(system)
    }

    fn is_up(&mut self) -> bool {
        let id = self.container.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        self.leader = children.split_whitespace().next().and_then(|id| id.parse().ok()).unwrap_or_default();
        let state = self.shell("systemctl is-system-running").output();
        // A unit that needs hardware may fail in a container.
        self.leader != 0 && state.is_ok_and(|output| matches!(output.stdout.trim_ascii(), b"running" | b"degraded"))
    }

    /// Runs commands as root, and gives what they print.
    pub(super) fn run(&self, commands: &str) -> Result<String> {
        for line in commands.lines() {
            eprintln!("# {line}");
        }
        let output = self.shell(commands).stderr(Stdio::inherit()).output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let _ =
                self.shell("journalctl --sync; journalctl --no-pager --unit=lunette").stdout(Stdio::inherit()).status();
            bail!("{commands}: {}\n{printed}", output.status);
        }
        Ok(printed)
    }

    /// Waits until a command succeeds.
    pub(super) fn wait_for(&self, condition: &str) -> Result<()> {
        eprintln!("# until {condition}");
        let deadline = Instant::now() + LIMIT;
        while !self.shell(condition).output()?.status.success() {
            if Instant::now() > deadline {
                bail!("{condition}: this does not become true");
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn shell(&self, commands: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.leader)).args([
            "--all",
            "--",
            "/bin/bash",
            "-euo",
            "pipefail",
            "-c",
            commands,
        ]);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = self.shell("systemctl poweroff").output();
        if !matches!(wait_at_most(&mut self.container, LIMIT), Ok(Some(_))) {
            let _ = self.container.kill();
            let _ = self.container.wait();
        }
    }
}
