//! How long requests have to wait when a disk in Ceph goes from one gateway to another.

use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::contestant::lunette;
use super::statistics::Spread;
use super::table::{Goal, Row};
use crate::ceph::Cluster;
use crate::failover;

/// A fault of the campaign, its name in the table, and the longest that requests should wait.
const FAULTS: [(&str, &str, f64); 2] =
    [("kill", "gateway killed: until requests go on", 5.0), ("move", "disk handed over: until requests go on", 1.0)];

/// Makes these rounds of each fault.
pub(super) fn measure(cluster: &Cluster, rounds: u32) -> Result<Vec<Row>> {
    let program = failover::program()?;
    let mut rows = Vec::new();
    for (fault, name, solid) in FAULTS {
        let mut campaign = failover::campaign(&program, &lunette(), cluster);
        campaign.args(["--json", "--only", fault, "--rounds", &rounds.to_string()]).stderr(Stdio::inherit());
        let output = campaign.output().context("cannot start lunette-failover")?;
        if !output.status.success() {
            bail!("a promise of two gateways is broken; what says so stands above");
        }
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).context("no report of two gateways")?;
        let waits_s = report[0]["answered_s"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64);
        rows.push(Row::new(format!("RBD, {name}"), Spread::of(waits_s), "s", Goal::AtMost { solid, aim: None }));
    }
    Ok(rows)
}
