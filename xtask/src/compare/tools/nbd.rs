//! `lunette nbd` beside nbdkit's file plugin, both over a file in memory.
//!
//! The server has one CPU and the client the other: fio with its NBD engine, or nbdcopy.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::{Contest, Side, Turn};
use crate::compare::child::Child;
use crate::compare::contestant::{START_LIMIT, Stage, lunette};
use crate::compare::disks::DiskFile;
use crate::compare::fio::{self, Job};
use crate::compare::measure::{DISK_LEN, limit};

/// Our speed should be at least this, beside that of nbdkit.
const SOLID: f64 = 1.2;

/// Bytes of a request of nbdcopy.
const COPY_REQUEST_LEN: u64 = 256 << 10;

/// The work of a client.
enum Work {
    Fio(Job),
    /// Reads all, and drops it.
    CopyOut,
    /// Writes all.
    CopyIn,
}

const fn fio_job(mode: &'static str, len_bytes: u32, depth: u32) -> Work {
    Work::Fio(Job { mode, len_bytes, depth })
}

const LOADS: [(&str, Work); 7] = [
    ("NBD, 4 KiB random reads, depth 1", fio_job("randread", 4 << 10, 1)),
    ("NBD, 4 KiB random reads, depth 32", fio_job("randread", 4 << 10, 32)),
    ("NBD, 4 KiB random writes, depth 32", fio_job("randwrite", 4 << 10, 32)),
    ("NBD, 256 KiB reads, depth 8", fio_job("read", 256 << 10, 8)),
    ("NBD, 256 KiB writes, depth 8", fio_job("write", 256 << 10, 8)),
    ("NBD, nbdcopy from the server", Work::CopyOut),
    ("NBD, nbdcopy to the server", Work::CopyIn),
];

pub(super) fn measure(stage: &Stage, rounds: u32, seconds: u32) -> Result<Vec<Contest>> {
    let folder = tempfile::tempdir()?;
    let source = DiskFile::create("nbd-source")?;
    let ours = Server::lunette(stage, &folder)?;
    let theirs = Server::nbdkit(stage, &folder)?;
    let mut contests = LOADS.map(|(load, _)| Contest {
        load,
        ours: Side::new("lunette nbd"),
        theirs: Side::new("nbdkit"),
        solid: SOLID,
    });
    for round in 1..=rounds {
        eprintln!("NBD, round {round} of {rounds}");
        for ((load, work), contest) in LOADS.iter().zip(&mut contests) {
            for (server, side) in [(&ours, &mut contest.ours), (&theirs, &mut contest.theirs)] {
                side.turns.push(server.serve(stage, work, &source, seconds).with_context(|| *load)?);
            }
        }
    }
    Ok(contests.into())
}

/// A server, with its disk.
struct Server {
    child: Child,
    uri: OsString,
    _disk: DiskFile,
}

impl Server {
    fn lunette(stage: &Stage, folder: &TempDir) -> Result<Self> {
        let (disk, socket) = (DiskFile::create("nbd")?, folder.path().join("lunette"));
        let arguments = vec!["nbd".into(), disk.path().into(), "--socket".into(), socket.clone().into()];
        Self::start(stage, "nbd", &lunette(), arguments, &socket, disk)
    }

    fn nbdkit(stage: &Stage, folder: &TempDir) -> Result<Self> {
        let (disk, socket) = (DiskFile::create("nbdkit")?, folder.path().join("nbdkit"));
        let arguments =
            vec!["--foreground".into(), "--unix".into(), socket.clone().into(), "file".into(), disk.path().into()];
        Self::start(stage, "nbdkit", Path::new("nbdkit"), arguments, &socket, disk)
    }

    fn start(
        stage: &Stage,
        name: &str,
        program: &Path,
        arguments: Vec<OsString>,
        socket: &Path,
        disk: DiskFile,
    ) -> Result<Self> {
        let mut child = stage.start(name, stage.cpus.target, program, arguments)?;
        child.wait_until(START_LIMIT, |_| Ok(UnixStream::connect(socket).ok()))?;
        Ok(Self { child, uri: format!("nbd+unix:///?socket={}", socket.display()).into(), _disk: disk })
    }

    fn serve(&self, stage: &Stage, work: &Work, source: &DiskFile, seconds: u32) -> Result<Turn> {
        let before = self.child.cpu()?;
        let (ios, speed) = match work {
            Work::Fio(job) => {
                let load = fio::run(stage, job, seconds, &self.uri)?;
                (load.ios, load.iops)
            }
            Work::CopyOut => copies(stage, &[self.uri.clone(), "null:".into()], seconds)?,
            Work::CopyIn => copies(stage, &[source.path().into(), self.uri.clone()], seconds)?,
        };
        let cpu = self.child.cpu()?.saturating_sub(before);
        Ok(Turn { speed, cpu_us: cpu.as_secs_f64() * 1e6 / ios })
    }
}

/// Copies until the time is over. Gives the requests, and how many there were in a second.
#[expect(clippy::cast_precision_loss, reason = "requests of an hour at most")]
fn copies(stage: &Stage, arguments: &[OsString], seconds: u32) -> Result<(f64, f64)> {
    let (started, time) = (Instant::now(), Duration::from_secs(seconds.into()));
    let mut requests = 0;
    while started.elapsed() < time {
        stage
            .start("nbdcopy", stage.cpus.initiator, Path::new("nbdcopy"), arguments.to_vec())?
            .finish(limit(seconds))?;
        requests += DISK_LEN / COPY_REQUEST_LEN;
    }
    Ok((requests as f64, requests as f64 / started.elapsed().as_secs_f64()))
}
