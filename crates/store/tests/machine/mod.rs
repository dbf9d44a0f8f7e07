//! Loop devices, file systems of their own, and other programs. They need root and Debian's packages, as CI has them.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod faulty;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::{Mutex, PoisonError};

pub(crate) use faulty::FaultyFile;
use tempfile::TempDir;

/// Runs a program that must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = command(program).args(arguments).output().unwrap();
    assert!(status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap().trim().to_owned()
}

/// A program of the system, which is there.
pub(crate) fn command(program: &str) -> Command {
    let found = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().map(|folder| Path::new(folder).join(program));
    let found = found.into_iter().find(|path| path.exists());
    Command::new(found.unwrap_or_else(|| panic!("{program} is missing; cargo xtask packages names its package")))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Held while a loop device is chosen, so that no test gets the one that another has only just left.
static CHOOSING: Mutex<()> = Mutex::new(());

/// A loop device, which is removed on drop.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    path: PathBuf,
    _backing: Option<TempDir>,
}

impl LoopDevice {
    /// A loop device over a new sparse file.
    pub(crate) fn of_len(len: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = attach(&folder.path().join("backing"), len);
        Self { path, _backing: Some(folder) }
    }

    /// A loop device over this file, which is made if it is missing.
    pub(crate) fn over(path: &Path, len: u64) -> Self {
        Self { path: attach(path, len), _backing: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Shows another file under the same path.
    pub(crate) fn show(&self, other: &Path) {
        let _choosing = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
        run("losetup", &["-d", text(&self.path)]);
        run("losetup", &[text(&self.path), text(other)]);
    }

    /// Takes over the length that its file has now.
    pub(crate) fn follow_length(&self) {
        run("losetup", &["-c", text(&self.path)]);
    }

    pub(crate) fn set_read_only(&self, read_only: bool) {
        run("blockdev", &[if read_only { "--setro" } else { "--setrw" }, text(&self.path)]);
    }
}

/// Shows a file of this length as a disk.
fn attach(path: &Path, len: u64) -> PathBuf {
    File::options().create(true).truncate(false).write(true).open(path).unwrap().set_len(len).unwrap();
    let _choosing = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
    run("losetup", &["--show", "-f", text(path)]).into()
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = command("losetup").arg("-d").arg(&self.path).output();
    }
}

/// A file system, which is unmounted on drop.
#[derive(Debug)]
pub(crate) struct Mount {
    folder: TempDir,
    device: Option<LoopDevice>,
}

impl Mount {
    pub(crate) fn tmpfs(len: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        run("mount", &["-t", "tmpfs", "-o", &format!("size={len}"), "tmpfs", text(folder.path())]);
        Self { folder, device: None }
    }

    /// A file system that turns read-only when it finds an error.
    pub(crate) fn ext4(len: u64) -> Self {
        let (folder, device) = (tempfile::tempdir().unwrap(), LoopDevice::of_len(len));
        run("mkfs.ext4", &["-q", "-m", "0", text(device.path())]);
        run("mount", &["-o", "errors=remount-ro", text(device.path()), text(folder.path())]);
        Self { folder, device: Some(device) }
    }

    /// A file system that cannot set space aside.
    pub(crate) fn ext2(len: u64) -> Self {
        let (folder, device) = (tempfile::tempdir().unwrap(), LoopDevice::of_len(len));
        run("mkfs.ext2", &["-q", "-m", "0", text(device.path())]);
        run("mount", &[text(device.path()), text(folder.path())]);
        Self { folder, device: Some(device) }
    }

    /// A file system with a quota, which [`Self::limit`] sets.
    pub(crate) fn btrfs(len: u64) -> Self {
        let (folder, device) = (tempfile::tempdir().unwrap(), LoopDevice::of_len(len));
        run("mkfs.btrfs", &["-q", text(device.path())]);
        run("mount", &[text(device.path()), text(folder.path())]);
        run("btrfs", &["quota", "enable", text(folder.path())]);
        Self { folder, device: Some(device) }
    }

    /// Files of btrfs may have this much space from now on.
    pub(crate) fn limit(&self, bytes: &str) {
        run("btrfs", &["qgroup", "limit", bytes, text(self.path())]);
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The loop device below it.
    pub(crate) fn device(&self) -> Option<PathBuf> {
        self.device.as_ref().map(|device| device.path().to_owned())
    }

    /// The free bytes, when all that is under way has reached the file system.
    pub(crate) fn free_bytes(&self) -> u64 {
        let folder = File::open(self.path()).unwrap();
        rustix::fs::syncfs(&folder).unwrap();
        let system = rustix::fs::fstatvfs(&folder).unwrap();
        system.f_bavail * system.f_frsize
    }

    /// Lets the file system be written to (`rw`) or not (`ro`).
    pub(crate) fn remount(&self, mode: &str) {
        run("mount", &["-o", &format!("remount,{mode}"), text(self.path())]);
    }

    /// Lets ext4 find an error.
    pub(crate) fn fail(&self) {
        let device = self.device().unwrap();
        let name = device.file_name().unwrap().to_str().unwrap().to_owned();
        fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "test").unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = command("umount").arg(self.folder.path()).output();
    }
}

/// A file or device that the system swaps to, until drop.
pub(crate) struct Swap(PathBuf);

impl Swap {
    pub(crate) fn on(path: &Path) -> Self {
        run("mkswap", &[text(path)]);
        run("swapon", &[text(path)]);
        Self(path.to_owned())
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = command("swapoff").arg(&self.0).output();
    }
}

/// Writes to a file until its file system is full.
pub(crate) fn fill(path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    for len in [1 << 16, 4096, 512] {
        while file.write_all(&vec![1; len]).is_ok() {}
    }
    let _ = file.sync_all();
}

/// Waits until a program says that it is ready, by `> `.
pub(crate) fn wait_for_prompt(child: &mut Child) {
    let (stdout, mut said) = (child.stdout.as_mut().unwrap(), Vec::new());
    while !said.ends_with(b"> ") {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "it has ended: {}", String::from_utf8_lossy(&said));
        said.extend(byte);
    }
}
