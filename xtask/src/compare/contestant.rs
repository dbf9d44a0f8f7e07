//! The parties to the comparison: tgt, libiscsi's `iscsi-perf`, Lunette on both sides, and the ceiling.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::ceiling;
use super::cells::{BLOCK_LEN, Cell, Direction, Initiator};
use super::child::Child;
use super::system::{Cpus, Interrupt};
use crate::process::target_dir;

/// The longest time from the start of a server until it answers.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(20);

/// The longest time that a copy may take.
const FILL_LIMIT: Duration = Duration::from_mins(1);

const TGT_NAME: &str = "iqn.2026-11.lunette:tgt";
const TUNED_NAME: &str = "iqn.2026-11.lunette:tuned";

/// tgt's best settings, for its second target.
pub(crate) const TGT_SETTINGS: [(&str, &str); 4] = [
    ("MaxRecvDataSegmentLength", "262144"),
    ("MaxBurstLength", "1048576"),
    ("FirstBurstLength", "262144"),
    ("InitialR2T", "No"),
];

/// The setting that all processes of one comparison share.
pub(crate) struct Stage {
    /// The folder for their output.
    pub(crate) folder: PathBuf,
    pub(crate) cpus: Cpus,
    pub(crate) interrupt: Interrupt,
}

impl Stage {
    pub(crate) fn start(
        &self,
        name: &str,
        cpus: impl fmt::Display,
        program: &Path,
        arguments: Vec<OsString>,
    ) -> Result<Child> {
        Child::start(&self.folder, name, cpus, program, arguments, &self.interrupt)
    }

    /// The two CPUs, as a list.
    pub(crate) fn both_cpus(&self) -> String {
        format!("{},{}", self.cpus.target, self.cpus.initiator)
    }
}

/// The words of a command line.
macro_rules! words {
    ($($word:expr),* $(,)?) => { vec![$(OsString::from($word)),*] };
}

/// `tgtd` with two targets over one file: one as it is, one tuned.
pub(crate) struct Tgt {
    pub(crate) child: Child,
    /// The URL of the untuned logical unit.
    pub(crate) url: String,
    /// The URL of the tuned logical unit.
    pub(crate) tuned_url: String,
    control: u16,
}

impl Tgt {
    pub(crate) fn start(stage: &Stage, disk: &Path) -> Result<Self> {
        fs::create_dir_all(TGT_FOLDER).with_context(|| format!("cannot create {TGT_FOLDER}"))?;
        let port = free_port()?;
        let control = port % CONTROLS;
        let arguments = words!["-f", "-C", control.to_string(), "--iscsi", format!("portal=127.0.0.1:{port}")];
        let child = stage.start("tgtd", stage.cpus.target, Path::new("tgtd"), arguments)?;
        let url = |name| format!("iscsi://127.0.0.1:{port}/{name}/1");
        let mut tgt = Self { child, url: url(TGT_NAME), tuned_url: url(TUNED_NAME), control };
        tgt.child.wait_until(START_LIMIT, |_| Ok(tgtadm(control, &["--op", "show", "--mode", "sys"]).ok()))?;
        tgt.add("1", TGT_NAME, disk)?;
        tgt.add("2", TUNED_NAME, disk)?;
        for (key, value) in TGT_SETTINGS {
            tgtadm(control, &["--op", "update", "--mode", "target", "--tid", "2", "--name", key, "--value", value])?;
        }
        Ok(tgt)
    }

    fn add(&self, tid: &str, name: &str, disk: &Path) -> Result<()> {
        let disk = disk.to_str().context("the disk's path is not UTF-8")?;
        let block_len = BLOCK_LEN.to_string();
        tgtadm(self.control, &["--op", "new", "--mode", "target", "--tid", tid, "-T", name])?;
        let unit = ["--op", "new", "--mode", "logicalunit", "--tid", tid, "--lun", "1"];
        tgtadm(self.control, &[&unit[..], &["-b", disk, "--blocksize", &block_len]].concat())?;
        tgtadm(self.control, &["--op", "bind", "--mode", "target", "--tid", tid, "-I", "ALL"])
    }
}

/// Numbers for `-C` are below this. A free port gives a number that another `tgtd` is unlikely to have; if it has, this
/// one fails with a message.
const CONTROLS: u16 = 1 << 15;

/// The folder of tgtd's control sockets. A killed tgtd leaves its socket behind.
const TGT_FOLDER: &str = "/var/run/tgtd";

impl Drop for Tgt {
    fn drop(&mut self) {
        for suffix in ["", ".lock"] {
            let _ = fs::remove_file(format!("{TGT_FOLDER}/socket.{}{suffix}", self.control));
        }
    }
}

fn tgtadm(control: u16, arguments: &[&str]) -> Result<()> {
    let output = Command::new("tgtadm")
        .args(["-C", &control.to_string(), "--lld", "iscsi"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot start tgtadm")?;
    if !output.status.success() {
        bail!("tgtadm {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// A port of loopback that no process listens on.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    Ok(listener.local_addr()?.port())
}

/// `lunette serve` with one disk.
pub(crate) struct Lunette {
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl Lunette {
    /// Starts a server with a disk in memory.
    pub(crate) fn start(stage: &Stage, name: &str, len_bytes: u64) -> Result<Self> {
        Self::start_on(stage, name, len_bytes, &[stage.cpus.target])
    }

    /// Starts a server with a disk in memory and a core for each of these CPUs.
    pub(crate) fn start_on(stage: &Stage, name: &str, len_bytes: u64, cpus: &[usize]) -> Result<Self> {
        let options = words![format!("mem:{len_bytes}"), "--cores", cpus.len().to_string()];
        Self::serve(stage, name, cpus, options)
    }

    /// Starts a server with a file.
    pub(crate) fn start_file(stage: &Stage, name: &str, disk: &Path, zero_copy: bool) -> Result<Self> {
        let option = zero_copy.then(|| "--zero-copy".into());
        Self::serve(stage, name, &[stage.cpus.target], words![disk].into_iter().chain(option).collect())
    }

    /// Starts a server with a disk in memory that speaks TLS by the files of a folder.
    pub(crate) fn start_tls(stage: &Stage, name: &str, len_bytes: u64, folder: &Path) -> Result<Self> {
        let options = words![format!("mem:{len_bytes}"), "--cores", "1", "--tls", folder];
        Self::serve(stage, name, &[stage.cpus.target], options)
    }

    /// Starts a server with quanta in memory and stored digests, which takes nothing else than EDUs in their places.
    pub(crate) fn start_quanta(stage: &Stage, name: &str, len_bytes: u64) -> Result<Self> {
        let quanta = words!["--quantum", BLOCK_LEN.to_string(), "--check-quanta", "--stored-digests"];
        let options = [words![format!("mem:{len_bytes}")], quanta].concat();
        Self::listen(stage, name, &[stage.cpus.target], options)
    }

    /// Starts a server with a disk in memory and one core, on either CPU.
    pub(crate) fn start_anywhere(stage: &Stage, name: &str, len_bytes: u64) -> Result<Self> {
        let cpus = [stage.cpus.target, stage.cpus.initiator];
        Self::serve(stage, name, &cpus, words![format!("mem:{len_bytes}")])
    }

    /// Starts a server with an image in Ceph, on either CPU.
    pub(crate) fn start_image(stage: &Stage, name: &str, image: &str) -> Result<Self> {
        Self::listen(stage, name, &[stage.cpus.target, stage.cpus.initiator], words![image])
    }

    fn serve(stage: &Stage, name: &str, cpus: &[usize], options: Vec<OsString>) -> Result<Self> {
        Self::listen(stage, name, cpus, [options, words!["--block-size", BLOCK_LEN.to_string()]].concat())
    }

    fn listen(stage: &Stage, name: &str, cpus: &[usize], options: Vec<OsString>) -> Result<Self> {
        let arguments = [words!["serve"], options, words!["--listen", "127.0.0.1:0"]].concat();
        let cpus: Vec<_> = cpus.iter().map(ToString::to_string).collect();
        let mut child = stage.start(name, cpus.join(","), &lunette(), arguments)?;
        let url = child.wait_until(START_LIMIT, Child::first_line)?;
        Ok(Self { child, url })
    }

    /// Writes the bytes of `disk` to the disk, so that both targets hold the same and all memory is allocated.
    pub(crate) fn fill(&self, stage: &Stage, disk: &Path) -> Result<()> {
        let copy = stage.start("cp", stage.cpus.initiator, &lunette(), words!["cp", disk, &self.url])?;
        copy.finish(FILL_LIMIT).map(drop)
    }
}

pub(crate) fn lunette() -> PathBuf {
    target_dir().join("release/lunette")
}

/// The ceiling's server, for one connection.
pub(crate) struct TcpServer {
    pub(crate) child: Child,
    address: String,
}

impl TcpServer {
    pub(crate) fn start(stage: &Stage, cell: &Cell) -> Result<Self> {
        let arguments = [tcp_arguments(cell), words!["server"]].concat();
        let mut child = stage.start("tcp-server", stage.cpus.target, &own_program(), arguments)?;
        let address = child.wait_until(START_LIMIT, Child::first_line)?;
        Ok(Self { child, address })
    }
}

/// The program as the release profile builds it, because the running one may be a debug build.
fn own_program() -> PathBuf {
    target_dir().join("release/xtask")
}

fn tcp_arguments(cell: &Cell) -> Vec<OsString> {
    let (ask, answer) = cell.message_lens();
    words!["ceiling", "--ask", ask.to_string(), "--answer", answer.to_string()]
}

/// The result of an initiator's run.
#[derive(Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) ios: f64,
    pub(crate) iops: f64,
    /// The median latency, where the initiator reports one.
    pub(crate) latency_us: Option<f64>,
}

/// Starts the client of the ceiling.
pub(crate) fn start_tcp(stage: &Stage, cell: &Cell, seconds: u32, server: &TcpServer) -> Result<Child> {
    let client = words!["client", &server.address, "--depth", cell.depth.to_string(), "--seconds", seconds.to_string()];
    stage.start("tcp-client", stage.cpus.initiator, &own_program(), [tcp_arguments(cell), client].concat())
}

/// Starts an initiator on the logical unit behind `url`.
pub(crate) fn start_initiator(
    stage: &Stage,
    initiator: Initiator,
    cell: &Cell,
    seconds: u32,
    url: &str,
) -> Result<Child> {
    match initiator {
        Initiator::Libiscsi => {
            let (depth, blocks) = (cell.depth.to_string(), (cell.len / BLOCK_LEN).to_string());
            let mut arguments = words!["-m", depth, "-b", blocks, "-t", seconds.to_string()];
            if cell.is_random() {
                arguments.push("-r".into());
            }
            arguments.push(url.into());
            stage.start("iscsi-perf", stage.cpus.initiator, Path::new("iscsi-perf"), arguments)
        }
        Initiator::Lunette => start_bench(stage, "bench", stage.cpus.initiator, cell, seconds, url),
    }
}

/// Starts our initiator on a CPU.
pub(crate) fn start_bench(
    stage: &Stage,
    name: &str,
    cpu: usize,
    cell: &Cell,
    seconds: u32,
    url: &str,
) -> Result<Child> {
    let digests = if cell.digests { "?header_digest=crc32c&data_digest=crc32c" } else { "" };
    let (url, len) = (format!("{url}{digests}"), cell.len.to_string());
    let (depth, seconds) = (cell.depth.to_string(), seconds.to_string());
    let arguments =
        words!["bench", url, "--json", "--rw", mode(cell), "--bs", len, "--depth", depth, "--time", seconds];
    stage.start(name, cpu, &lunette(), arguments)
}

/// The name of the load in `lunette bench --rw`.
fn mode(cell: &Cell) -> &'static str {
    match (cell.is_random(), cell.direction) {
        (false, Direction::Read) => "read",
        (false, Direction::Write) => "write",
        (true, Direction::Read) => "randread",
        (true, Direction::Write) => "randwrite",
    }
}

/// Reads the output of the ceiling's client.
#[expect(clippy::cast_precision_loss, reason = "requests of an hour at most")]
pub(crate) fn tcp_load(printed: &str) -> Result<Load> {
    let report: ceiling::Report = serde_json::from_str(printed).context("the ceiling's report")?;
    let ios = report.ios as f64;
    Ok(Load { ios, iops: ios / report.seconds, latency_us: report.latency_us })
}

/// Reads the output of an initiator.
pub(crate) fn initiator_load(initiator: Initiator, printed: &str, seconds: u32) -> Result<Load> {
    match initiator {
        Initiator::Libiscsi => {
            let iops = perf_average(printed).with_context(|| format!("iscsi-perf prints no average: {printed}"))?;
            Ok(Load { ios: iops * f64::from(seconds), iops, latency_us: None })
        }
        Initiator::Lunette => {
            let report: BenchReport = serde_json::from_str(printed).context("the report of lunette bench")?;
            let ios = report.reads + report.writes;
            Ok(Load { ios, iops: report.iops, latency_us: Some(report.latency_us.p50) })
        }
    }
}

/// The part of the output of `lunette bench --json` that is used here.
#[derive(Deserialize)]
struct BenchReport {
    reads: f64,
    writes: f64,
    iops: f64,
    latency_us: BenchLatencies,
}

#[derive(Deserialize)]
struct BenchLatencies {
    p50: f64,
}

/// The last average that `iscsi-perf` prints: `iops average 63000 (246 MB/s)`.
fn perf_average(printed: &str) -> Option<f64> {
    let (_, after) = printed.rsplit_once("iops average ")?;
    let average: u32 = after.split(' ').next()?.parse().ok()?;
    (average > 0).then(|| average.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_average_of_iscsi_perf_counts() {
        let printed = "will run for 2 seconds.\n\n\r00:00:01 - lba 77, iops current 5 (0 MB/s), iops average 5 (0 MB/s)  \
                       \riops average 10901 (42 MB/s)     \n\nfinished.\n";
        let load = initiator_load(Initiator::Libiscsi, printed, 2).unwrap();
        assert_eq!(load, Load { ios: 21802.0, iops: 10901.0, latency_us: None });
        assert!(initiator_load(Initiator::Libiscsi, "Login Failed", 2).is_err());
    }

    #[test]
    fn reads_and_writes_of_a_bench_count() {
        let printed = r#"{"rw":"randrw","reads":30,"writes":12,"iops":42.5,"latency_us":{"mean":2,"p50":1.5}}"#;
        let load = initiator_load(Initiator::Lunette, printed, 1).unwrap();
        assert_eq!(load, Load { ios: 42.0, iops: 42.5, latency_us: Some(1.5) });
    }
}
