//! The disk of the system: Debian with its kernel and the initiator, made once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::process;

/// Everything beside the base system.
const INCLUDE: &str = "linux-image-cloud-amd64,initramfs-tools,udev,kmod,iproute2,open-iscsi,multipath-tools,sg3-utils,\
    fio,xfsprogs,e2fsprogs,util-linux,procps";

/// The length of the disk; the system fills half of it.
const LEN: &str = "2G";

/// The first program of the system: it runs the script that lies on the second disk.
const INIT: &str = "#!/bin/bash
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs run /run
mkdir -p /dev/pts /run/lock; mount -t devpts pts /dev/pts
cp /dev/vdb /run/guest.sh
exec bash /run/guest.sh
";

/// A system that can be booted.
pub(super) struct Image {
    pub(super) disk: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
}

/// Makes the system, unless it is there.
pub(super) fn provide(folder: &Path) -> Result<Image> {
    let (root, disk, done) = (folder.join("root"), folder.join("debian.ext4"), folder.join("done"));
    if fs::read_to_string(&done).ok().as_deref() != Some(INCLUDE) {
        if !packages::is_root() {
            bail!("only root can make the Debian system that is booted");
        }
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
        }
        let include = format!("--include={INCLUDE}");
        process::run(Command::new("debootstrap").args(["--variant=minbase", &include, "bookworm"]).arg(&root))?;
        let init = root.join("lunette-init");
        fs::write(&init, INIT)?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        let mut make = Command::new("mkfs.ext4");
        process::run(make.args(["-q", "-F", "-E", "root_owner=0:0", "-d"]).arg(&root).arg(&disk).arg(LEN))?;
        fs::write(&done, INCLUDE)?;
    }
    Ok(Image { disk, kernel: newest(&root, "vmlinuz-")?, initrd: newest(&root, "initrd.img-")? })
}

fn newest(root: &Path, start: &str) -> Result<PathBuf> {
    let boot = root.join("boot");
    let files = fs::read_dir(&boot).with_context(|| format!("cannot read {}", boot.display()))?;
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let newest = names.filter(|name| name.starts_with(start)).max();
    Ok(boot.join(newest.with_context(|| format!("{} has no {start}*", boot.display()))?))
}
