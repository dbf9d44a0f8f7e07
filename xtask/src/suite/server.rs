//! A `lunette serve` for one disk.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{self, wait_at_most};

/// The time from SIGTERM to the end that the server promises.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A server that listens. Dropping it without [`Server::stop`] kills it.
pub(super) struct Server {
    child: Child,
    log: PathBuf,
    /// The URLs of the logical unit at the two portals.
    pub(super) urls: [String; 2],
}

impl Server {
    /// Starts a server with `configuration`, whose files are in `folder`.
    pub(super) fn start(configuration: &str, folder: &Path) -> Result<Self> {
        let file = folder.join("lunette.toml");
        fs::write(&file, configuration).with_context(|| format!("cannot write {}", file.display()))?;
        let log = folder.join("server.log");
        let child = Command::new(process::built("lunette"))
            .args(["serve", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()
            .context("cannot start lunette")?;
        let mut server = Self { child, log, urls: Default::default() };
        server.urls = server.find_urls()?;
        Ok(server)
    }

    /// Finds both URLs. The server prints the one at the first portal when it listens; discovery reports the other
    /// portal.
    fn find_urls(&mut self) -> Result<[String; 2]> {
        let stdout = self.child.stdout.as_mut().context("the pipe was asked for")?;
        let mut first = String::new();
        BufReader::new(stdout).read_line(&mut first)?;
        let first = first.trim();
        let parts: Vec<&str> = first.split('/').collect();
        let ["iscsi:", "", address, target, lun] = parts[..] else {
            bail!("lunette serve prints {first:?}, not a URL; see {}", self.log.display());
        };
        let found =
            Command::new("iscsi-ls").arg(format!("iscsi://{address}")).output().context("cannot run iscsi-ls")?;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let mut portals = found.lines().filter_map(|line| line.split_once(" Portal:")?.1.split(',').next());
        match portals.find(|portal| *portal != address) {
            Some(other) => Ok([first.into(), format!("iscsi://{other}/{target}/{lun}")]),
            None => bail!("discovery names no second portal:\n{found}"),
        }
    }

    /// Stops the server in an orderly way. Fails when that fails, or something panicked.
    pub(super) fn stop(mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().context("cannot run kill")?;
        let status = wait_at_most(&mut self.child, STOP_LIMIT)?;
        let log = fs::read_to_string(&self.log)?;
        if !status.is_some_and(|status| status.success()) || log.contains("panicked") {
            bail!("the server ended badly: {status:?}; see {}", self.log.display());
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
