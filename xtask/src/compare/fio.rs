//! fio, as a client of NBD servers.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::contestant::{Load, Stage};
use super::measure::limit;

/// The job of fio.
pub(crate) struct Job {
    /// The kind of load, by fio's name (`randread`, ...).
    pub(crate) mode: &'static str,
    /// Bytes of a request.
    pub(crate) len_bytes: u32,
    /// Requests in flight.
    pub(crate) depth: u32,
}

/// Runs fio on the initiators' CPU, against the server behind `uri`.
pub(crate) fn run(stage: &Stage, job: &Job, seconds: u32, uri: &OsStr) -> Result<Load> {
    let mut server = std::ffi::OsString::from("--uri=");
    server.push(uri);
    let arguments = vec![
        "--name=load".into(),
        "--ioengine=nbd".into(),
        server,
        format!("--rw={}", job.mode).into(),
        format!("--bs={}", job.len_bytes).into(),
        format!("--iodepth={}", job.depth).into(),
        "--time_based".into(),
        format!("--runtime={seconds}").into(),
        "--output-format=json".into(),
    ];
    let fio = stage.start("fio", stage.cpus.initiator, Path::new("fio"), arguments)?;
    let printed = fio.finish(limit(seconds))?.stdout;
    load(&printed).with_context(|| format!("the report of fio: {printed}"))
}

#[derive(Deserialize)]
struct Report {
    jobs: [JobReport; 1],
}

#[derive(Deserialize)]
struct JobReport {
    read: SideReport,
    write: SideReport,
}

#[derive(Deserialize)]
struct SideReport {
    total_ios: f64,
    iops: f64,
}

/// Requests of both directions. fio may print messages before its report.
fn load(printed: &str) -> Result<Load> {
    let report = printed.find('{').map_or("", |at| &printed[at..]);
    let Report { jobs: [JobReport { read, write }] } = serde_json::from_str(report)?;
    Ok(Load { ios: read.total_ios + write.total_ios, iops: read.iops + write.iops, latency_us: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_of_fio_count() {
        let printed = "note\n{\"jobs\": [{\"read\": {\"iops\": 1.5, \"total_ios\": 3}, \"write\": {\"iops\": 2, \"total_ios\": 4}}]}";
        assert_eq!(load(printed).unwrap(), Load { ios: 7.0, iops: 3.5, latency_us: None });
        assert!(load("fio: failed").is_err());
    }
}
