//! The machine that a report was measured on.

use std::fs;
use std::thread;

/// CPU, cores, kernel.
pub(crate) fn describe() -> String {
    let cpu = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of an {cpu}; Linux {}", version(&release))
}

/// The value behind a colon.
fn line_of(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim().into())
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> String {
    release.trim().split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Runnable processes, on average over the last minute: what else the machine does.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
