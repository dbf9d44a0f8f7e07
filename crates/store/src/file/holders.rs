//! The users of a file or block device, for error messages.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

/// The processes that a message names.
const MAX_NAMED: usize = 3;

/// The user of the file or block device at `path`, as far as this process may know it: `known` is a process that the
/// system has named.
pub(super) fn describe(path: &Path, known: Option<i32>) -> Option<String> {
    if let Some(pid) = known {
        return Some(process(pid));
    }
    let metadata = fs::metadata(path).ok()?;
    let of_system = if metadata.file_type().is_block_device() { of_block_device(&metadata) } else { None };
    of_system.or_else(|| openers(path))
}

/// A mount, or a device over this one.
fn of_block_device(metadata: &Metadata) -> Option<String> {
    let number = format!("{}:{}", major(metadata.rdev()), minor(metadata.rdev()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find_map(|fields| {
        let is_here = fields.get(2).is_some_and(|of| *of == number);
        is_here.then(|| fields.get(4).map(|place| format!("the file system mounted at {place}")))?
    });
    mount.or_else(|| {
        let over = fs::read_dir(format!("/sys/dev/block/{number}/holders")).ok()?.flatten().next()?;
        Some(format!("the device {}", over.file_name().display()))
    })
}

/// The processes that have the file open. Links in procfs are compared as text: no file system is asked, since one may
/// not answer.
fn openers(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let has_open = |pid: &i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        Some(files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|of| of == path)))
    };
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let names: Vec<String> = pids.filter(|pid| has_open(pid) == Some(true)).take(MAX_NAMED).map(process).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn process(pid: i32) -> String {
    if pid == std::process::id().cast_signed() {
        return "another disk of this process".into();
    }
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}
