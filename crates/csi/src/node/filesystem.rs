//! File systems: found, made, mounted, grown.

use std::path::Path;

use tonic::Status;

use super::making::Making;
use super::system::Ran;
use super::{Inner, failed};
use crate::checks::Mounting;

/// The exit code of blkid for a device without anything that it knows, and for one that it cannot read (blkid(8)).
const BLANK: i32 = 2;

/// How to make each file system, without the device.
const MAKERS: [(&str, &str, &[&str]); 2] =
    [("ext4", "mkfs.ext4", &["-q", "-F", "-m", "0"]), ("xfs", "mkfs.xfs", &["-q"])];

/// The option of `mkfs.xfs` over what an interrupted one has left.
const OVER: &str = "-f";

impl Inner {
    /// Makes a file system on a device that is blank, and mounts it. A device with anything else is left as it is.
    /// Where this driver was interrupted when it made one, what blkid does not know was left by that.
    pub(super) fn mount_device(
        &self,
        device: &Path,
        at: &Path,
        wanted: &Mounting,
        read_only: bool,
        making: &Making,
    ) -> Result<(), Status> {
        let is_begun = self.is_begun(making)?;
        let found = self.file_system_of(device)?;
        match found.as_deref() {
            Some(found) if found == wanted.fs_type => {
                let mounted = self.mount_as(device, at, wanted, read_only);
                // An interrupted maker may have left the first block alone. It was not in use since.
                if mounted.is_err() && is_begun && !read_only {
                    self.make_file_system(device, &wanted.fs_type, true)?;
                    self.mount_as(device, at, wanted, read_only)?;
                } else {
                    mounted?;
                }
            }
            Some(found) => {
                return Err(Status::failed_precondition(format!(
                    "{} has {found}, and {} is asked for; nothing is changed: set fsType, or erase the volume",
                    device.display(),
                    wanted.fs_type
                )));
            }
            None if read_only => {
                return Err(Status::failed_precondition(format!(
                    "{} is blank, and may only be read; write to it first",
                    device.display()
                )));
            }
            None => {
                if !is_begun {
                    self.check_blank(device)?;
                }
                self.begin(making)?;
                self.make_file_system(device, &wanted.fs_type, false)?;
                self.mount_as(device, at, wanted, read_only)?;
            }
        }
        // Before anything can be written to it.
        self.end(making)?;
        // A clone may be longer than its origin.
        if read_only { Ok(()) } else { self.grow_file_system(device, at, &wanted.fs_type) }
    }

    fn mount_as(&self, device: &Path, at: &Path, wanted: &Mounting, read_only: bool) -> Result<(), Status> {
        self.system.make_folder(at).map_err(failed(at.display()))?;
        let mut options: Vec<&str> = wanted.flags.iter().map(String::as_str).collect();
        if read_only {
            options.push("ro");
        }
        if wanted.fs_type == "xfs" {
            // A clone has the UUID of its origin, and both may be on one node.
            options.push("nouuid");
        }
        let options = if options.is_empty() { "defaults".into() } else { options.join(",") };
        self.done("mount", &["-t", &wanted.fs_type, "-o", &options, text(device)?, text(at)?])
    }

    /// Has a mounted file system take all of its device.
    pub(super) fn grow_file_system(&self, device: &Path, at: &Path, fs_type: &str) -> Result<(), Status> {
        match fs_type {
            "ext4" => self.done("resize2fs", &[text(device)?]),
            "xfs" => self.done("xfs_growfs", &["-d", text(at)?]),
            other => Err(Status::failed_precondition(format!(
                "{} has {other}, which does not grow here; ext4 and xfs do",
                device.display()
            ))),
        }
    }

    /// Mounts a folder or a device at another place, too.
    pub(super) fn bind(&self, from: &Path, at: &Path, read_only: bool) -> Result<(), Status> {
        self.done("mount", &["--bind", text(from)?, text(at)?])?;
        if !read_only {
            return Ok(());
        }
        let read_only = self.done("mount", &["-o", "remount,bind,ro", text(at)?]);
        if read_only.is_err() {
            // What is not read-only must not stay.
            self.unmount(at)?;
        }
        read_only
    }

    /// Unmounts all that is mounted at a path.
    pub(super) fn unmount(&self, at: &Path) -> Result<(), Status> {
        while self.mount_at(at)?.is_some() {
            self.done("umount", &[text(at)?])?;
        }
        Ok(())
    }

    /// Runs a program that has to succeed.
    pub(super) fn done(&self, program: &str, arguments: &[&str]) -> Result<(), Status> {
        let ran = self.program(program, arguments)?;
        if ran.code == Some(0) { Ok(()) } else { Err(refused(program, arguments, &ran)) }
    }

    /// The file system of a device, `None` when blkid knows nothing on it. A partition table counts as one.
    fn file_system_of(&self, device: &Path) -> Result<Option<String>, Status> {
        let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", text(device)?];
        let ran = self.program("blkid", &arguments)?;
        let value = |key: &str| ran.stdout.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        match (ran.code, value("TYPE="), value("PTTYPE=")) {
            (Some(0), Some(kind), _) => Ok(Some(kind.into())),
            (Some(0), None, Some(table)) => Ok(Some(format!("a partition table ({table})"))),
            (Some(BLANK), _, _) => Ok(None),
            // Nothing is made on a device that has two file systems.
            _ => Err(refused("blkid", &arguments, &ran)),
        }
    }

    /// Refuses a device that is not blank. blkid ends alike when it finds nothing and when it cannot read.
    fn check_blank(&self, device: &Path) -> Result<(), Status> {
        match self.system.is_blank(device) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Status::failed_precondition(format!(
                "{} has data that are no known file system; nothing is made on it: erase the volume, or use it as a block device",
                device.display()
            ))),
            Err(error) => Err(Status::unavailable(format!(
                "{}: {error}; nothing is made on a device that cannot be read",
                device.display()
            ))),
        }
    }

    fn make_file_system(&self, device: &Path, fs_type: &str, is_over: bool) -> Result<(), Status> {
        let maker = MAKERS.iter().find(|(known, ..)| *known == fs_type);
        let (_, program, arguments) =
            maker.ok_or_else(|| Status::invalid_argument(format!("no file system {fs_type:?} is made here")))?;
        let over: &[&str] = if is_over && fs_type == "xfs" { &[OVER] } else { &[] };
        self.done(program, &[arguments, over, &[text(device)?]].concat())
    }

    fn program(&self, program: &str, arguments: &[&str]) -> Result<Ran, Status> {
        self.system.run(program, arguments).map_err(|error| {
            Status::internal(format!("{program}: {error}; the image or machine of the node needs this program"))
        })
    }
}

fn refused(program: &str, arguments: &[&str], ran: &Ran) -> Status {
    let ended = ran.code.map_or("was ended after its time".into(), |code| format!("exit code {code}"));
    let said = if ran.stderr.trim().is_empty() { ran.stdout.trim() } else { ran.stderr.trim() };
    Status::internal(format!("{program} {}: {ended}; {said}", arguments.join(" ")))
}

fn text(path: &Path) -> Result<&str, Status> {
    path.to_str().ok_or_else(|| Status::invalid_argument(format!("{} is not in UTF-8", path.display())))
}
