//! The surroundings of a script of cases: what it needs beside the system and the first two disks.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::process;

/// A script, and its surroundings.
pub(super) struct Cases {
    /// The folder of the server.
    pub(super) folder: PathBuf,
    /// The end of the server's configuration.
    pub(super) configuration: String,
    pub(super) script: String,
    /// The third disk of the machine.
    pub(super) disk: PathBuf,
}

/// Makes a disk that is a tar of these files and folders, under their last names.
pub(super) fn disk(folder: &Path, paths: &[PathBuf]) -> Result<PathBuf> {
    let disk = folder.join("disk.tar");
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(&disk);
    for path in paths {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("{} is no file", path.display())
        };
        tar.arg("-C").arg(folder).arg(name);
    }
    process::run(&mut tar)?;
    Ok(disk)
}
