//! `cargo xtask suite`: libiscsi's whole test suite over the kinds of disks that `lunette serve` has.
//!
//! Not every test runs on every disk: some need a removable medium, some a write-protected one. So the suite runs over
//! a table of disks, each with its own server, and passes when no test fails anywhere and each runs somewhere.

mod disks;
mod report;
mod server;
mod table;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::ceph::Cluster;
use crate::packages;
use crate::process::{self, wait_at_most};
use crate::programs;
use disks::{DISKS, Disk};
use report::Report;
use server::Server;
use table::Table;

/// Disks that are tested at the same time. The suite sleeps most of its time.
const AT_A_TIME: usize = 4;

/// The longest time that one run of the tool may take. A run over everything takes 30 seconds.
const RUN_LIMIT: Duration = Duration::from_secs(150);

/// libiscsi's test suite over all kinds of disks.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Test only this disk, such as "thin 512"; then tests may be skipped.
    #[arg(long, value_name = "DISK")]
    only: Option<String>,
}

/// Runs the suite and prints a table of tests and disks.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let disks = chosen(arguments.only.as_deref())?;
    packages::provide()?;
    programs::build()?;
    let cluster = disks.iter().any(|disk| disk.is_in_ceph()).then(start_cluster).transpose()?;
    let reports = run_all(&disks, cluster.as_ref());
    if let Some(cluster) = cluster {
        cluster.stop()?;
    }
    let reports = reports?;
    let table = Table::new(&all_tests()?, &disks, &reports);
    println!("{table}");
    let mut wrong = table.failures();
    if arguments.only.is_none() {
        wrong.extend(table.never_run());
    }
    for what in &wrong {
        println!("{what}");
    }
    println!(
        "{} tests over {} disks, {} faults; logs in {}",
        table.len(),
        disks.len(),
        wrong.len(),
        folder().display()
    );
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the whole suite, as a step of `cargo xtask test`.
pub(crate) fn step() -> Result<()> {
    if run(&Arguments { only: None })? != ExitCode::SUCCESS {
        bail!("libiscsi's suite finds faults");
    }
    Ok(())
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Disk>> {
    let Some(only) = only else { return Ok(DISKS.iter().collect()) };
    match DISKS.iter().find(|disk| disk.name == only) {
        Some(disk) => Ok(vec![disk]),
        None => bail!("there is no disk {only:?}; the disks are {}", DISKS.map(|disk| disk.name).join(", ")),
    }
}

/// Starts the cluster of the disks in Ceph.
fn start_cluster() -> Result<Cluster> {
    packages::provide_for_ceph()?;
    let folder = folder().join("cluster");
    if let Ok(left) = Cluster::at(&folder) {
        left.stop()?;
    }
    Cluster::start(&folder)
}

/// The folder of configurations, disks and logs.
fn folder() -> PathBuf {
    process::target_dir().join("suite")
}

/// The names of all tests, `SUITE.TEST`.
fn all_tests() -> Result<Vec<String>> {
    let output = Command::new("iscsi-test-cu").arg("--list").output().context("cannot start iscsi-test-cu")?;
    let names: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_prefix("ALL."))
        .filter(|name| name.contains('.'))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        bail!("iscsi-test-cu --list names no tests");
    }
    Ok(names)
}

/// Tests all disks, some at a time, and returns their reports in the same order.
fn run_all(disks: &[&Disk], cluster: Option<&Cluster>) -> Result<Vec<Report>> {
    let next = AtomicUsize::new(0);
    let reports: Vec<Mutex<Option<Result<Report>>>> = disks.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(disks.len()) {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|next| *next < disks.len()) {
                    let report = run_one(disks[index], cluster).with_context(|| format!("disk {}", disks[index].name));
                    *reports[index].lock().expect("no thread panics with it") = Some(report);
                }
            });
        }
    });
    reports.into_iter().map(|report| report.into_inner()?.expect("every disk was tested")).collect()
}

fn run_one(disk: &Disk, cluster: Option<&Cluster>) -> Result<Report> {
    let folder = folder().join(disk.name.replace(' ', "-"));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let server = Server::start(&disk.configuration(&folder, cluster)?, &folder)?;
    let mut report = Report::default();
    for (index, pattern) in disk.patterns.iter().enumerate() {
        eprintln!("{}: iscsi-test-cu -t {pattern}", disk.name);
        let output = folder.join(format!("suite-{index}.txt"));
        run_tool(pattern, &server.urls, &output)?;
        let text = fs::read(&output).with_context(|| format!("cannot read {}", output.display()))?;
        report.add(&String::from_utf8_lossy(&text)).with_context(|| output.display().to_string())?;
    }
    server.stop()?;
    // The disk may take gigabytes; only the logs are useful.
    if folder.join("disk").exists() {
        fs::remove_file(folder.join("disk")).context("cannot remove the disk")?;
    }
    Ok(report)
}

/// Runs the tool once. It may lose data (`-d`, `-S`) and prints all its actions (`-v -V`).
fn run_tool(pattern: &str, urls: &[String; 2], output: &Path) -> Result<()> {
    let file = File::create(output).with_context(|| format!("cannot create {}", output.display()))?;
    let mut command = Command::new("iscsi-test-cu");
    command.args(["-d", "-S", "-v", "-V", "-t", pattern]).args(urls).stdin(Stdio::null());
    command.stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().context("cannot start iscsi-test-cu")?;
    // The exit code adds nothing to the output.
    if wait_at_most(&mut child, RUN_LIMIT)?.is_none() {
        child.kill()?;
        child.wait()?;
        bail!("iscsi-test-cu -t {pattern} does not end within {RUN_LIMIT:?}; see {}", output.display());
    }
    Ok(())
}
