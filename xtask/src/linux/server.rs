//! The server that the system uses, and what happens to it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::wait_at_most;

pub(super) const TARGET: &str = "iqn.2026-11.lunette:linux";

/// The secrets of initiator and target: 12 characters, which open-iscsi and RFC 7143 ask for.
pub(super) const SECRET: &str = "initiator-12";
pub(super) const OTHER_SECRET: &str = "target-12-12";

/// Lengths of the disk that grows, in bytes.
const LEN: u64 = 512 << 20;
const GROWN_LEN: u64 = 640 << 20;

/// The time from SIGTERM to the end that the server promises.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A server at two portals that stay the same when it starts again.
pub(super) struct Server {
    program: PathBuf,
    folder: PathBuf,
    portals: [SocketAddr; 2],
    child: Option<Child>,
    /// Open, because the server prints more than what is read.
    output: Option<BufReader<ChildStdout>>,
}

impl Server {
    /// Writes the configuration, with this at its end, and makes the disks.
    pub(super) fn new(program: &Path, folder: &Path, more: &str) -> Result<Self> {
        // Held together, so that they differ; free again when this returns.
        let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
        let portals = [listeners[0].local_addr()?, listeners[1].local_addr()?];
        let server = Self { program: program.into(), folder: folder.into(), portals, child: None, output: None };
        for name in ["first.img", "second.img"] {
            File::create(server.folder.join(name))?.set_len(LEN)?;
        }
        for (name, secret) in [("secret", SECRET), ("other-secret", OTHER_SECRET)] {
            let path = server.folder.join(name);
            fs::write(&path, secret)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        }
        fs::write(server.folder.join("lunette.toml"), server.configuration() + more)?;
        Ok(server)
    }

    fn configuration(&self) -> String {
        let [first, second] = self.portals;
        let at = |name: &str| self.folder.join(name).display().to_string();
        format!(
            r#"listen = ["{first}", "{second}"]
state = "{}"
[[target]]
name = "{TARGET}"
chap = [{{ user = "linux", secret_file = "{}" }}]
mutual_chap = {{ user = "lunette", secret_file = "{}" }}
lun = [{{ number = 0, disk = "{}" }}, {{ number = 1, disk = "{}" }}]
"#,
            at("state"),
            at("secret"),
            at("other-secret"),
            at("first.img"),
            at("second.img")
        )
    }

    pub(super) fn addresses(&self) -> [SocketAddr; 2] {
        self.portals
    }

    /// Starts it and waits until it listens.
    pub(super) fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.join("server.log"))?;
        let mut command = Command::new(&self.program);
        command.args(["serve", "--config"]).arg(self.folder.join("lunette.toml"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("the pipe was asked for")?);
        self.child = Some(child);
        let mut first = String::new();
        output.read_line(&mut first)?;
        self.output = Some(output);
        if !first.starts_with("iscsi://") {
            bail!("lunette serve does not start; see {}", self.folder.join("server.log").display());
        }
        Ok(())
    }

    /// Stops it in an orderly way.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.signal("-TERM")?;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        match wait_at_most(&mut child, STOP_LIMIT)? {
            Some(status) if status.success() => Ok(()),
            status => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("the server ended badly: {status:?}")
            }
        }
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let id = self.child.as_ref().context("the server runs")?.id().to_string();
        Command::new("kill").args([signal, &id]).status().context("cannot run kill")?;
        Ok(())
    }

    /// Makes an event happen that the script asks for.
    pub(super) fn make_happen(&mut self, event: &str) -> Result<()> {
        match event {
            "restart" => {
                self.stop()?;
                self.start()
            }
            "kill" => {
                if let Some(mut child) = self.child.take() {
                    child.kill()?;
                    child.wait()?;
                }
                self.start()
            }
            "grow" => {
                File::options().write(true).open(self.folder.join("second.img"))?.set_len(GROWN_LEN)?;
                self.signal("-HUP")
            }
            _ => bail!("the script asks for {event:?}, which is unknown"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
