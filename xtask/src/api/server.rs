//! A `lunette serve` with an API on TCP, which can write nowhere but to a folder of its own.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{self, wait_at_most};

/// The time from the start to the first line of the log that names the API.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The time from SIGTERM to the end that the server promises.
const STOP_LIMIT: Duration = Duration::from_secs(10);

const CONFIGURATION: &str = r#"
listen = ["127.0.0.1:0"]
state = "@/state"

[api]
listen = ["127.0.0.1:0", "unix:@/api.sock"]
tokens = "@/tokens"
tls = { certificates = "@/certificate.pem", key = "@/key.pem" }
"#;

/// A server that listens. Dropping it without [`Server::stop`] kills it.
pub(super) struct Server {
    child: Child,
    folder: PathBuf,
    address: String,
    token: String,
}

impl Server {
    /// Starts a server with these targets, whose files are in `folder`. Random requests name random files, so all
    /// others are read-only to it.
    pub(super) fn start(folder: &Path, targets: &str) -> Result<Self> {
        let path = |name: &str| folder.join(name);
        make_certificate(folder)?;
        let token = random_token()?;
        fs::write(path("tokens"), &token)?;
        fs::write(path("lunette.toml"), CONFIGURATION.replace('@', &folder.display().to_string()) + targets)?;
        let child = Command::new("bwrap")
            .args(["--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--bind"])
            .args([folder, folder])
            .arg(process::built("lunette"))
            .args(["serve", "--config"])
            .arg(path("lunette.toml"))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(File::create(path("urls"))?)
            .stderr(File::create(path("log"))?)
            .spawn()
            .context("cannot start bwrap")?;
        let mut server = Self { child, folder: folder.into(), address: String::new(), token };
        server.address = server.find_address()?;
        Ok(server)
    }

    /// The address of the API, which the log names.
    fn find_address(&mut self) -> Result<String> {
        let deadline = Instant::now() + START_LIMIT;
        while wait_at_most(&mut self.child, Duration::from_millis(50))?.is_none() && Instant::now() < deadline {
            if let Some((_, rest)) = self.log()?.split_once(" address=")
                && let Some((address, _)) = rest.split_once('\n')
            {
                return Ok(address.into());
            }
        }
        bail!("lunette serve has not started:\n{}", self.log()?)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// The URL of the first logical unit.
    pub(super) fn disk(&self) -> Result<String> {
        let urls = fs::read_to_string(self.folder.join("urls"))?;
        urls.lines().next().map(str::to_owned).context("lunette serve names no URL")
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    /// The process of the server: the one child of bwrap, which passes on no signals.
    fn pid(&self) -> Result<String> {
        let bwrap = self.child.id();
        let children = fs::read_to_string(format!("/proc/{bwrap}/task/{bwrap}/children"))?;
        Ok(children.trim().into())
    }

    fn log(&self) -> Result<String> {
        fs::read_to_string(self.folder.join("log")).context("cannot read the log of the server")
    }

    /// Stops the server in an orderly way. Fails when that fails, something panicked, or its log names the token.
    pub(super) fn stop(mut self) -> Result<()> {
        process::run(Command::new("kill").args(["-TERM", &self.pid()?]))?;
        let status = wait_at_most(&mut self.child, STOP_LIMIT)?;
        let log = self.log()?;
        if !status.is_some_and(|status| status.success()) || log.contains("panicked") {
            bail!("the server ended badly: {status:?}\n{log}");
        }
        if log.contains(&self.token) {
            bail!("the log names a token:\n{log}");
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn make_certificate(folder: &Path) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=127.0.0.1"]);
    command.args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"]);
    process::run(command.current_dir(folder))
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
