//! File systems on loop devices, for root alone.

use std::fs::File;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::tool::run;

/// A new file system in a file, which is unmounted on drop.
#[derive(Debug)]
pub struct Mount {
    folder: TempDir,
    device: String,
}

impl Mount {
    /// Makes a file system with a program, its arguments and a length.
    pub fn new(program: &str, arguments: &[&str], len_bytes: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        File::create(&image).and_then(|file| file.set_len(len_bytes)).expect("room for a sparse file");
        std::fs::create_dir(folder.path().join("mount")).expect("a folder");
        let device = run("losetup", ["--show", "-f", text(&image)]).succeeded().trim().to_owned();
        let mount = Self { folder, device };
        run(program, [arguments, &[&mount.device]].concat()).succeeded();
        run("mount", [&mount.device, text(&mount.path())]).succeeded();
        mount
    }

    /// The folder that the file system is mounted to.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", [text(&self.path())]);
        run("losetup", ["-d", &self.device]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of UTF-8")
}
