//! The cluster: one monitor, one OSD, no manager.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::daemon;
use crate::process::wait_at_most;

/// The longest time that one command of the start may take. All of them take eight seconds.
const COMMAND_LIMIT: Duration = Duration::from_mins(1);

/// The room that the OSD claims to have. It takes memory only for what is written.
const MEMORY_BYTES: u64 = 8 << 30;

/// The names of the processes.
const DAEMONS: [&str; 2] = ["mon", "osd"];

/// A cluster in a folder.
pub(crate) struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    /// Starts a cluster in a folder that is empty or not there, and waits until its pool `rbd` can be used.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        if folder.join("ceph.conf").exists() {
            bail!("{} has a cluster; end it first: cargo xtask ceph down", folder.display());
        }
        for part in ["mon", "osd"] {
            fs::create_dir_all(folder.join(part)).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let cluster = Self { folder: folder.canonicalize()? };
        let started = cluster.start_monitor().and_then(|()| cluster.start_osd()).and_then(|()| cluster.create_pool());
        if let Err(error) = started {
            // The logs stay.
            cluster.end_daemons()?;
            return Err(error.context(format!("the cluster does not start; see {}", cluster.folder.display())));
        }
        Ok(cluster)
    }

    /// Lets the monitors agree more often. Each snapshot waits for them, for a second if the last one was just before,
    /// and the tests of pools take dozens.
    pub(crate) fn hasten_monitors(&self) -> Result<()> {
        run(self.program("ceph").args(["config", "set", "mon", "paxos_propose_interval", "0.05"]))
    }

    /// The cluster that was started in `folder`.
    pub(crate) fn at(folder: &Path) -> Result<Self> {
        if !folder.join("ceph.conf").is_file() {
            bail!("there is no cluster in {}", folder.display());
        }
        Ok(Self { folder: folder.canonicalize()? })
    }

    /// Ends the processes and removes the folder.
    pub(crate) fn stop(&self) -> Result<()> {
        self.end_daemons()?;
        fs::remove_dir_all(&self.folder).with_context(|| format!("cannot remove {}", self.folder.display()))
    }

    /// The ceph.conf of the cluster.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// A program of Ceph for this cluster.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.arg("--conf").arg(self.configuration());
        command
    }

    fn end_daemons(&self) -> Result<()> {
        DAEMONS.into_iter().try_for_each(|name| daemon::end(name, &self.folder))
    }

    fn start_monitor(&self) -> Result<()> {
        // The monitor cannot choose its port: the others find it by that. Another program may take it before the
        // monitor does; then the start fails.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (address, fsid) = (format!("[v2:127.0.0.1:{port}/0]"), random_uuid()?);
        fs::write(self.configuration(), configuration(&self.folder, &address, &fsid))?;
        let map = self.folder.join("monmap");
        run(Command::new("monmaptool").args(["--create", "--fsid", &fsid, "--addv", "a", &address]).arg(&map))?;
        run(self.program("ceph-mon").args(["--mkfs", "--id", "a", "--monmap"]).arg(&map))?;
        let mut monitor = self.program("ceph-mon");
        monitor.args(["--foreground", "--id", "a"]);
        daemon::start(monitor, "mon", &self.folder)
    }

    fn start_osd(&self) -> Result<()> {
        let uuid = random_uuid()?;
        // It waits for the monitor.
        run(self.program("ceph").args(["osd", "new", &uuid]))?;
        run(self.program("ceph-osd").args(["--mkfs", "--id", "0", "--osd-uuid", &uuid]))?;
        let mut osd = self.program("ceph-osd");
        osd.args(["--foreground", "--id", "0"]);
        daemon::start(osd, "osd", &self.folder)
    }

    fn create_pool(&self) -> Result<()> {
        run(self.program("ceph").args(["osd", "pool", "create", "rbd", "8"]))?;
        // It writes an object, so it waits for the OSD.
        run(self.program("rbd").args(["pool", "init", "rbd"]))
    }
}

/// Tests stop the OSD for up to a minute.
const HEARTBEAT_GRACE_S: u32 = 90;

/// The configuration of all daemons and clients.
fn configuration(folder: &Path, monitor: &str, fsid: &str) -> String {
    let folder = folder.display();
    format!(
        "[global]\n\
         fsid = {fsid}\n\
         mon host = {monitor}\n\
         auth cluster required = none\n\
         auth service required = none\n\
         auth client required = none\n\
         public addr = 127.0.0.1\n\
         ms bind msgr1 = false\n\
         osd pool default size = 1\n\
         osd pool default min size = 1\n\
         osd crush chooseleaf type = 0\n\
         # The lease of reads is .8 of it. An OSD that is stopped for longer never answers again where it has no peer.\n\
         osd heartbeat grace = {HEARTBEAT_GRACE_S}\n\
         mon allow pool size one = true\n\
         [mon]\n\
         mon data = {folder}/mon\n\
         run dir = {folder}\n\
         admin socket =\n\
         log file = {folder}/mon.log\n\
         mon cluster log file = {folder}/cluster.log\n\
         # The disk below is the test machine's own, and nothing of the pool lies on it.\n\
         mon data avail warn = 1\n\
         mon data avail crit = 0\n\
         [osd]\n\
         osd data = {folder}/osd\n\
         run dir = {folder}\n\
         admin socket =\n\
         log file = {folder}/osd.log\n\
         osd objectstore = memstore\n\
         memstore device bytes = {MEMORY_BYTES}\n\
         [client]\n\
         admin socket =\n\
         log file =\n"
    )
}

fn random_uuid() -> Result<String> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").context("the kernel gives no random UUID")?;
    Ok(uuid.trim().to_owned())
}

/// Runs a command to its end. What it prints is shown when it fails.
fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start {shown}"))?;
    // None of them prints more than a pipe holds.
    let status = wait_at_most(&mut child, COMMAND_LIMIT)?;
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    if status.is_some_and(|status| status.success()) {
        return Ok(());
    }
    let mut printed = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut printed)?;
    }
    match status {
        Some(status) => bail!("{shown}: {status}\n{printed}"),
        None => bail!("{shown} does not end within {COMMAND_LIMIT:?}\n{printed}"),
    }
}
