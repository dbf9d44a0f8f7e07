//! The virtual machine, and the lines of its console that concern the server.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};

use super::cases::Cases;
use super::image::Image;
use super::server::{OTHER_SECRET, SECRET, TARGET};

/// The beginning of each script.
const START: &str = include_str!("start.sh");

/// The unit of a disk of QEMU.
const SECTOR: usize = 512;

/// Memory of the machine.
const MEMORY: &str = "1G";

/// The longest life of the machine, in seconds. Without KVM a run takes some 10 minutes.
const LIMIT_SECONDS: &str = "3000";

/// A line of the script.
pub(super) enum Line {
    Passed(String),
    Failed(String),
    /// An event at the server.
    Asks(String),
    End,
}

/// A running machine.
pub(super) struct Guest {
    qemu: Child,
    console: BufReader<ChildStdout>,
    log: File,
    log_path: PathBuf,
}

impl Guest {
    /// Boots `image`; changes to it are lost. Each portal is behind a network of its own.
    pub(super) fn boot(
        image: &Image,
        portals: &[SocketAddr; 2],
        folder: &Path,
        cases: &Cases,
        has_kvm: bool,
    ) -> Result<Self> {
        let script = folder.join("guest.sh");
        fs::write(&script, on_sectors(&script_for(portals, &cases.script)))?;
        let log_path = folder.join("console.log");
        let mut command = Command::new("timeout");
        command.args([LIMIT_SECONDS, "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot"]);
        command.args(["-display", "none", "-serial", "stdio", "-m", MEMORY, "-smp", "2", "-snapshot"]);
        let accelerator = if has_kvm { ["-accel", "kvm", "-cpu", "host"] } else { ["-accel", "tcg", "-cpu", "max"] };
        command.args(accelerator);
        command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initrd);
        command.args(["-append", "console=ttyS0 root=/dev/vda rw quiet net.ifnames=0 panic=-1 init=/lunette-init"]);
        for disk in [&image.disk, &script, &cases.disk] {
            command.args(["-drive", &format!("file={},format=raw,if=virtio", disk.display())]);
        }
        for network in [2, 3] {
            command.args(["-netdev", &format!("user,id=n{network},net=10.0.{network}.0/24")]);
            command.args(["-device", &format!("virtio-net-pci,netdev=n{network}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut qemu = command.spawn().context("cannot start timeout")?;
        let console = BufReader::new(qemu.stdout.take().context("the pipe was asked for")?);
        let log = File::create(&log_path).with_context(|| format!("cannot create {}", log_path.display()))?;
        Ok(Self { qemu, console, log, log_path })
    }

    /// The next line that concerns the server, or `None` when the machine is off.
    pub(super) fn next_line(&mut self) -> Result<Option<Line>> {
        loop {
            let mut bytes = Vec::new();
            if self.console.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
            self.log.write_all(&bytes)?;
            if let Some(line) = parse(String::from_utf8_lossy(&bytes).trim()) {
                return Ok(Some(line));
            }
        }
    }

    pub(super) fn log(&self) -> &Path {
        &self.log_path
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may be off already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn script_for(portals: &[SocketAddr; 2], cases: &str) -> String {
    let [first, second] = portals.map(|portal| portal.port());
    format!(
        "T={TARGET} P1=10.0.2.2:{first} P2=10.0.3.2:{second} SECRET={SECRET} OTHER_SECRET={OTHER_SECRET}\n{START}\n{cases}"
    )
}

/// The script as the bytes of a disk.
fn on_sectors(script: &str) -> Vec<u8> {
    let mut bytes = script.as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(SECTOR), b'\n');
    bytes
}

fn parse(line: &str) -> Option<Line> {
    let line = line.strip_prefix("== ")?;
    if line == "end" {
        return Some(Line::End);
    }
    let (word, rest) = line.split_once(' ')?;
    match word {
        "passed" => Some(Line::Passed(rest.into())),
        "failed" => Some(Line::Failed(rest.into())),
        "ask" => Some(Line::Asks(rest.into())),
        _ => None,
    }
}
