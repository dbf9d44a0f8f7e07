//! A small file system on a loop device, and a server over a file in it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use lunette_testkit::ScriptedInitiator;
use tempfile::TempDir;

use super::model::{PAGE, filled};
use crate::configured::Configured;
use crate::initiator::attach;
use crate::server::Server;
use crate::tool::run;

/// Bytes of the file system.
const DEVICE_BYTES: u64 = 32 << 20;

/// The file system, and what is over it.
pub(super) struct Ground {
    folder: TempDir,
    place: Configured,
    device: String,
    is_mounted: bool,
    /// The configuration of the disk.
    lun: String,
    server: Option<Server>,
}

impl Ground {
    /// A new file system with a disk of this many pages, which is served.
    pub(super) fn new(pages: usize, is_full: bool) -> Self {
        let (folder, place) = (tempfile::tempdir().expect("a folder"), Configured::new());
        fs::create_dir(folder.path().join("mount")).expect("a folder");
        let image = folder.path().join("image");
        File::create(&image).and_then(|file| file.set_len(DEVICE_BYTES)).expect("room for a sparse file");
        let device = run("losetup", ["--show", "-f", text(&image)]).succeeded().trim().to_owned();
        run("mkfs.ext4", ["-q", "-m", "0", &device]).succeeded();
        let mut ground = Self { folder, place, device, is_mounted: false, lun: String::new(), server: None };
        ground.mount();
        let provisioning = if is_full { "full" } else { "thin" };
        let bytes = pages as u64 * PAGE;
        let disk = ground.disk().display().to_string();
        ground.lun =
            format!("{{ number = 0, disk = {disk:?}, create = \"{bytes}\", provisioning = \"{provisioning}\" }}");
        ground.start();
        ground
    }

    /// The file below the disk.
    pub(super) fn disk(&self) -> PathBuf {
        self.file("disk")
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("mount").join(name)
    }

    pub(super) fn server(&self) -> &Server {
        self.server.as_ref().expect("it is served")
    }

    pub(super) fn attach(&self) -> ScriptedInitiator {
        attach(self.server(), &[])
    }

    /// Starts the server, which must come.
    pub(super) fn start(&mut self) {
        self.server = Some(self.place.start(&config(&self.lun), 1));
    }

    /// Lets the server read its configuration again. Returns what it logs.
    pub(super) fn reload(&self) -> String {
        self.place.write(&config(&self.lun));
        self.server().hang_up(&["changes applied", "nothing has changed", "configuration refused"])
    }

    /// Lets the server read a configuration that it cannot follow.
    pub(super) fn reload_with(&self, luns: &str) -> String {
        self.place.write(&config(&format!("{}, {luns}", self.lun)));
        self.server().hang_up(&["changes applied", "nothing has changed", "configuration refused"])
    }

    /// Stops the server in an orderly way.
    pub(super) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }

    /// Kills the server.
    pub(super) fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    pub(super) fn mount(&mut self) {
        let mount = self.folder.path().join("mount");
        run("mount", ["-o", "errors=remount-ro", &self.device, text(&mount)]).succeeded();
        self.is_mounted = true;
    }

    /// Lets the file system be written to (`rw`) or not (`ro`).
    pub(super) fn remount(&self, mode: &str) {
        run("mount", ["-o", &format!("remount,{mode}"), text(&self.folder.path().join("mount"))]).succeeded();
    }

    pub(super) fn unmount(&mut self) {
        run("umount", [text(&self.folder.path().join("mount"))]).succeeded();
        self.is_mounted = false;
    }

    /// Lets the file system find an error: it is read-only from now on.
    pub(super) fn fail(&self) {
        let name = self.device.rsplit('/').next().unwrap_or_default();
        fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "test").expect("a file system of ext4");
    }

    /// Checks the file system after a failure.
    pub(super) fn repair(&self) {
        // It ends with 1 when it has corrected something.
        run("e2fsck", ["-fy", &self.device]);
    }

    /// The bytes that the file system has left.
    pub(super) fn free_bytes(&self) -> u64 {
        let folder = File::open(self.folder.path().join("mount")).expect("it is mounted");
        rustix::fs::syncfs(&folder).expect("a file system that works");
        let system = rustix::fs::fstatvfs(&folder).expect("a file system that works");
        system.f_bfree * system.f_frsize
    }

    /// Writes a file of pages and puts it where the disk is.
    pub(super) fn replace(&self, numbers: &[u64]) -> std::io::Result<()> {
        let new = self.file("new");
        let mut file = File::create(&new)?;
        let written = numbers.iter().try_for_each(|number| file.write_all(&filled(*number)));
        let replaced = written.and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, self.disk()));
        let replaced = replaced.and_then(|()| File::open(self.folder.path().join("mount"))?.sync_all());
        if replaced.is_err() {
            fs::remove_file(&new)?;
        }
        replaced
    }

    /// Takes all space that is left.
    pub(super) fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.file("filler")).expect("a file");
        for len in [1 << 16, 4096, 512] {
            while file.write_all(&vec![1; len]).is_ok() {}
        }
        // It may lack the space for that, too.
        let _ = file.sync_all();
    }

    /// Gives it back.
    pub(super) fn free(&self) {
        let _ = fs::remove_file(self.file("filler"));
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.server.take();
        if self.is_mounted {
            run("umount", [text(&self.folder.path().join("mount"))]);
        }
        run("losetup", ["-d", &self.device]);
    }
}

/// A configuration of one target.
fn config(luns: &str) -> String {
    format!("listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{luns}]\n")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of UTF-8")
}
