//! The clients that ask for blocks, and the loads that they make.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::compare::contestant::Stage;
use crate::compare::fio::{self, Job};
use crate::compare::measure::limit;
use crate::process::target_dir;

/// Requests in flight.
const DEPTH: u32 = 32;

/// A kind of load. fio and `lunette bench` call the kinds by the same names.
pub(super) struct Load {
    pub(super) name: &'static str,
    mode: &'static str,
    len_bytes: u32,
}

/// The loads, at depth 32.
pub(super) const LOADS: [Load; 4] = [
    Load { name: "4 KiB reads", mode: "randread", len_bytes: 4096 },
    Load { name: "4 KiB writes", mode: "randwrite", len_bytes: 4096 },
    Load { name: "64 KiB reads", mode: "randread", len_bytes: 65536 },
    Load { name: "64 KiB writes", mode: "randwrite", len_bytes: 65536 },
];

/// Requests a second of fio at an NBD server.
pub(super) fn fio(stage: &Stage, load: &Load, seconds: u32, uri: &str) -> Result<f64> {
    let job = Job { mode: load.mode, len_bytes: load.len_bytes, depth: DEPTH };
    Ok(fio::run(stage, &job, seconds, uri.as_ref())?.iops)
}

/// Requests a second of our own initiator.
pub(super) fn bench(stage: &Stage, load: &Load, seconds: u32, url: &str) -> Result<f64> {
    let (len_bytes, depth, time) = (load.len_bytes.to_string(), DEPTH.to_string(), seconds.to_string());
    let arguments = ["bench", url, "--json", "--rw", load.mode, "--bs", &len_bytes, "--depth", &depth, "--time", &time];
    let program = target_dir().join("release/lunette");
    let bench = stage.start("bench", stage.cpus.initiator, &program, arguments.map(Into::into).into())?;
    let printed = bench.finish(limit(seconds))?.stdout;
    let report: BenchReport = serde_json::from_str(&printed).context("the report of lunette bench")?;
    Ok(report.iops)
}

#[derive(Deserialize)]
struct BenchReport {
    iops: f64,
}
