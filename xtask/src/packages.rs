//! The Debian packages whose programs the tests run.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::process;

/// Package, and a file that tells on other systems whether its content is there: a program in `PATH`.
const NEEDED: [(&str, Option<&str>); 8] = [
    ("fio", Some("fio")),
    ("libiscsi-bin", Some("iscsi-ls")),
    ("libnbd-bin", Some("nbdcopy")),
    ("qemu-utils", Some("qemu-img")),
    // A plug-in of qemu-img. Without it, `qemu-img` says so.
    ("qemu-block-extra", None),
    ("sg3-utils", Some("sg_vpd")),
    ("tshark", Some("tshark")),
    ("valgrind", Some("valgrind")),
];

/// Installs what is missing when this process may, else names it and fails.
pub(crate) fn provide() -> Result<()> {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(package, program)| !is_there(package, *program)).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || !in_path("apt-get") {
        bail!(
            "the tests need these Debian packages: {}\n       install them: sudo apt-get install {}",
            missing.join(", "),
            missing.join(" ")
        );
    }
    process::run(apt_get().arg("update"))?;
    process::run(apt_get().args(["install", "--yes", "--no-install-recommends"]).args(&missing))
}

fn is_there(package: &str, program: Option<&str>) -> bool {
    let query = Command::new("dpkg-query").args(["--show", "--showformat=${Status}", package]).output();
    match query {
        Ok(output) => output.stdout.ends_with(b" installed"),
        // Not Debian.
        Err(_) => program.is_none_or(in_path),
    }
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("--quiet").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
