//! The clients that ask for blocks, and the loads that they make.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::compare::contestant::Stage;
use crate::compare::measure::limit;
use crate::process::target_dir;

/// Requests in flight.
const DEPTH: &str = "32";

/// A kind of load. fio and `lunette bench` call the kinds by the same names.
pub(super) struct Load {
    pub(super) name: &'static str,
    mode: &'static str,
    len_bytes: &'static str,
}

/// The loads, at depth 32.
pub(super) const LOADS: [Load; 4] = [
    Load { name: "4 KiB reads", mode: "randread", len_bytes: "4096" },
    Load { name: "4 KiB writes", mode: "randwrite", len_bytes: "4096" },
    Load { name: "64 KiB reads", mode: "randread", len_bytes: "65536" },
    Load { name: "64 KiB writes", mode: "randwrite", len_bytes: "65536" },
];

/// Requests a second of fio at an NBD server.
pub(super) fn fio(stage: &Stage, load: &Load, seconds: u32, uri: &str) -> Result<f64> {
    let arguments = [
        "--name=load".to_owned(),
        "--ioengine=nbd".into(),
        format!("--uri={uri}"),
        format!("--rw={}", load.mode),
        format!("--bs={}", load.len_bytes),
        format!("--iodepth={DEPTH}"),
        "--time_based".into(),
        format!("--runtime={seconds}"),
        "--output-format=json".into(),
    ];
    let fio = stage.start("fio", stage.cpus.initiator, Path::new("fio"), arguments.map(Into::into).into())?;
    let printed = fio.finish(limit(seconds))?.stdout;
    fio_iops(&printed).with_context(|| format!("the report of fio: {printed}"))
}

/// Requests a second of our own initiator.
pub(super) fn bench(stage: &Stage, load: &Load, seconds: u32, url: &str) -> Result<f64> {
    let seconds_text = seconds.to_string();
    let arguments =
        ["bench", url, "--json", "--rw", load.mode, "--bs", load.len_bytes, "--depth", DEPTH, "--time", &seconds_text];
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

#[derive(Deserialize)]
struct FioReport {
    jobs: [FioJob; 1],
}

#[derive(Deserialize)]
struct FioJob {
    read: FioSide,
    write: FioSide,
}

#[derive(Deserialize)]
struct FioSide {
    iops: f64,
}

/// Requests of both directions. fio may print messages before its report.
fn fio_iops(printed: &str) -> Result<f64> {
    let report = printed.find('{').map_or("", |at| &printed[at..]);
    let FioReport { jobs: [FioJob { read, write }] } = serde_json::from_str(report)?;
    Ok(read.iops + write.iops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_of_fio_count() {
        let printed = "note\n{\"jobs\": [{\"read\": {\"iops\": 1.5}, \"write\": {\"iops\": 2}}]}";
        assert!((fio_iops(printed).unwrap() - 3.5).abs() < 1e-9);
        assert!(fio_iops("fio: failed").is_err());
    }
}
