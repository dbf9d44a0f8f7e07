//! `cargo xtask ceph up|down`: a Ceph cluster on this machine, for tests of disks in Ceph.
//!
//! A monitor and an OSD that keeps its objects in memory, on the loopback interface, without authentication. All that
//! they write is in one folder. Clusters in different folders know nothing of each other.

mod cluster;
mod daemon;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::packages;
use crate::process;
use crate::programs::{self, Programs};
pub(crate) use cluster::Cluster;

/// A Ceph cluster on this machine.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    /// The folder of the cluster, which is made by `up` and removed by `down`.
    #[arg(long, value_name = "FOLDER", global = true)]
    folder: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Start a cluster with the pool `rbd`, and print the path of its ceph.conf.
    Up,
    /// End its processes and remove its folder.
    Down,
}

/// The tests that start a ceph-mgr. They come last: what it has told the monitors stays after its end.
const MANAGED: &str = "dashboard::";

/// Runs the tests of disks in Ceph with a cluster of their own, as a step of `cargo xtask test`.
pub(crate) fn step() -> Result<()> {
    packages::provide()?;
    packages::provide_for_ceph()?;
    programs::build()?;
    let tests = Programs::end_to_end("ceph")?;
    let folder = process::target_dir().join("ceph-tests");
    if let Ok(left) = Cluster::at(&folder) {
        left.stop()?;
    }
    let cluster = Cluster::start(&folder)?;
    cluster.hasten_monitors()?;
    let configuration = cluster.configuration().display().to_string();
    let variables = [("LUNETTE_CEPH_CONF", configuration.as_str())];
    let outcome =
        tests.run_some(&["--skip", MANAGED], &variables).and_then(|()| tests.run_some(&[MANAGED], &variables));
    cluster.stop()?;
    outcome
}

/// Starts or ends a cluster.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = arguments.folder.clone().unwrap_or_else(|| process::target_dir().join("ceph"));
    match arguments.what {
        What::Up => {
            packages::provide_for_ceph()?;
            println!("{}", Cluster::start(&folder)?.configuration().display());
        }
        What::Down => Cluster::at(&folder)?.stop()?,
    }
    Ok(ExitCode::SUCCESS)
}
