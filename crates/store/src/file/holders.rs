//! The users of a file or block device, for error messages.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// The processes that a message names.
const MAX_NAMED: usize = 3;

/// The user of swap space.
pub(super) const SWAPPING: &str = "the system, which swaps to it (swapoff ends that)";

/// The user of the file or block device at `path`, as far as this process may know it: `known` is a process that the
/// system has named.
pub(super) fn describe(path: &Path, known: Option<i32>) -> Option<String> {
    if let Some(pid) = known {
        return Some(process(pid));
    }
    let metadata = fs::metadata(path).ok()?;
    let of_system = if metadata.file_type().is_block_device() { of_block_device(&metadata) } else { None };
    of_system.or_else(|| openers(path, &metadata))
}

/// A mount, or a device over this one.
fn of_block_device(metadata: &Metadata) -> Option<String> {
    let number = format!("{}:{}", major(metadata.rdev()), minor(metadata.rdev()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find_map(|fields| {
        let is_here = fields.get(2).is_some_and(|of| *of == number);
        is_here.then(|| fields.get(4).map(|place| format!("the file system mounted at {place}")))?
    });
    let holder = || fs::read_dir(format!("/sys/dev/block/{number}/holders")).ok()?.flatten().next();
    mount
        .or_else(|| holder().map(|over| format!("the device {}", over.file_name().display())))
        .or_else(|| is_swap_space(metadata).then(|| SWAPPING.into()))
}

/// Whether the system swaps to a block device.
fn is_swap_space(device: &Metadata) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let paths = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    paths.filter_map(|path| fs::metadata(path).ok()).any(|found| found.rdev() == device.rdev())
}

/// The processes that have the file open, under any of its names, or run it.
fn openers(path: &Path, metadata: &Metadata) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let has = |pid: &i32| {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let runs = fs::read_link(process.join("exe")).is_ok_and(|of| of == path);
        let mut files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        runs || files.any(|file| {
            let info = process.join("fdinfo").join(file.file_name());
            leads_to(&file.path(), &info, (&path, metadata))
        })
    };
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let names: Vec<String> = pids.filter(has).take(MAX_NAMED).map(process).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Whether a descriptor in procfs is of the file. Links are compared as text, and inodes as procfs has them. A file
/// system is asked only about a file that is this one but for its device, since it may not answer.
fn leads_to(link: &Path, info: &Path, (path, metadata): (&Path, &Metadata)) -> bool {
    let Ok(of) = fs::read_link(link) else { return false };
    // Not a socket, a pipe or the like.
    let is_file = of.is_absolute();
    of == path
        || is_file
            && inode(info) == Some(metadata.ino())
            && fs::metadata(link).is_ok_and(|found| (found.dev(), found.ino()) == (metadata.dev(), metadata.ino()))
}

/// The inode of an open file, which Linux tells since 5.14.
fn inode(info: &Path) -> Option<u64> {
    let text = fs::read_to_string(info).ok()?;
    text.lines().find_map(|line| line.strip_prefix("ino:"))?.trim().parse().ok()
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
