//! The Debian packages whose programs the tests run.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::process;

/// A package, and a program in `PATH` whose presence shows on other systems that its content is installed.
const NEEDED: [(&str, Option<&str>); 33] = [
    ("ansible-core", Some("ansible-playbook")),
    ("btrfs-progs", Some("mkfs.btrfs")),
    ("chromium", Some("chromium")),
    ("chromium-driver", Some("chromedriver")),
    ("curl", Some("curl")),
    ("fio", Some("fio")),
    ("fish", Some("fish")),
    ("iproute2", Some("ip")),
    ("istgt", Some("istgt")),
    // Modules of Perl, which reports their absence.
    ("libio-socket-ssl-perl", None),
    ("libiscsi-bin", Some("iscsi-ls")),
    ("libjson-perl", None),
    ("libnbd-bin", Some("nbdcopy")),
    ("libnss3-tools", Some("certutil")),
    ("linux-perf", Some("perf")),
    ("nbdkit", Some("nbdkit")),
    ("openssl", Some("openssl")),
    ("perl", Some("prove")),
    ("prometheus", Some("promtool")),
    ("python3-pykmip", Some("pykmip-server")),
    ("python3-rtslib-fb", Some("targetctl")),
    ("python3-venv", None),
    ("qemu-utils", Some("qemu-img")),
    // A plug-in of qemu-img, which reports its absence.
    ("qemu-block-extra", None),
    // Scripts outside PATH.
    ("resource-agents", None),
    ("sg3-utils", Some("sg_vpd")),
    ("stunnel4", Some("stunnel4")),
    ("systemd", Some("systemd-analyze")),
    ("tgt", Some("tgtd")),
    ("tshark", Some("tshark")),
    ("valgrind", Some("valgrind")),
    ("xfsprogs", Some("mkfs.xfs")),
    ("zsh", Some("zsh")),
];

/// The packages for `cargo xtask compare`, in the same form.
const COMPARED: [(&str, Option<&str>); 9] = [
    ("fio", Some("fio")),
    ("libiscsi-bin", Some("iscsi-perf")),
    ("libnbd-bin", Some("nbdcopy")),
    ("nbdkit", Some("nbdkit")),
    ("qemu-block-extra", None),
    ("qemu-utils", Some("qemu-img")),
    ("stunnel4", Some("stunnel4")),
    ("tgt", Some("tgtd")),
    ("util-linux", Some("taskset")),
];

/// The packages for `cargo xtask encryption`, in the same form.
const ENCRYPTED: [(&str, Option<&str>); 5] = [
    ("fio", Some("fio")),
    ("nbdkit", Some("nbdkit")),
    ("qemu-block-extra", None),
    ("qemu-utils", Some("qemu-nbd")),
    ("util-linux", Some("taskset")),
];

/// The packages for `cargo xtask profile`, in the same form.
const PROFILED: [(&str, Option<&str>); 2] = [("linux-perf", Some("perf")), ("util-linux", Some("taskset"))];

/// The packages for `cargo xtask api`, in the same form.
const API: [(&str, Option<&str>); 3] =
    [("bubblewrap", Some("bwrap")), ("openssl", Some("openssl")), ("python3-venv", None)];

/// The packages for `cargo xtask chart`, in the same form: a module of Python, which reports its absence.
const CHART: [(&str, Option<&str>); 1] = [("python3-yaml", None)];

/// The packages for tests with a Ceph cluster, in the same form.
const CEPH: [(&str, Option<&str>); 6] = [
    ("ceph-common", Some("rbd")),
    ("ceph-mgr", Some("ceph-mgr")),
    ("ceph-mgr-dashboard", None),
    ("ceph-mon", Some("ceph-mon")),
    ("ceph-osd", Some("ceph-osd")),
    ("librbd1", None),
];

/// The packages for tests of kernels for ARM, in the same form.
const EMULATED: [(&str, Option<&str>); 1] = [("qemu-user-static", Some("qemu-aarch64-static"))];

/// The packages for `cargo xtask package`, in the same form. dpkg-dev finds the libraries that the command needs.
const PACKAGING: [(&str, Option<&str>); 4] = [
    ("dpkg-dev", Some("dpkg-shlibdeps")),
    ("lintian", Some("lintian")),
    ("lowdown", Some("lowdown")),
    ("systemd", Some("systemd-analyze")),
];

/// The packages for `cargo xtask linux`, in the same form.
const BOOTED: [(&str, Option<&str>); 4] = [
    ("debootstrap", Some("debootstrap")),
    ("e2fsprogs", Some("mkfs.ext4")),
    ("openssl", Some("openssl")),
    ("qemu-system-x86", Some("qemu-system-x86_64")),
];

/// The packages for `cargo xtask package --architecture arm64`, in the same form.
const CROSS_BUILT: [(&str, Option<&str>); 3] = [
    ("gcc-aarch64-linux-gnu", Some("aarch64-linux-gnu-gcc")),
    ("libc6-dev-arm64-cross", None),
    ("qemu-user-static", Some("qemu-aarch64-static")),
];

/// The packages for `cargo xtask package --trial`, in the same form.
const TRIED: [(&str, Option<&str>); 4] = [
    ("debootstrap", Some("debootstrap")),
    ("iproute2", Some("ip")),
    ("systemd-container", Some("systemd-nspawn")),
    ("util-linux", Some("nsenter")),
];

/// Installs missing packages that the tests need if this process may, and otherwise names them and fails.
pub(crate) fn provide() -> Result<()> {
    provide_all("the tests need", &NEEDED)
}

/// Installs the emulator of ARM's CPUs.
pub(crate) fn provide_for_emulation() -> Result<()> {
    provide_all("the tests for ARM need", &EMULATED)
}

/// Installs what runs schemathesis, and confines the server that it attacks.
pub(crate) fn provide_for_api() -> Result<()> {
    provide_all("tests of the API need", &API)
}

/// Installs what reads the schemas of Kubernetes.
pub(crate) fn provide_for_chart() -> Result<()> {
    provide_all("the check of the chart needs", &CHART)
}

/// Installs the daemons and tools of Ceph.
pub(crate) fn provide_for_ceph() -> Result<()> {
    provide_all("a Ceph cluster needs", &CEPH)
}

/// Installs the packages for a comparison. tgt requires root, and so does setting the congestion control.
pub(crate) fn provide_for_comparison() -> Result<()> {
    if !is_root() {
        bail!("only root can run tgt and set the congestion control");
    }
    provide_all("a comparison needs", &COMPARED)
}

/// Installs the packages for the measurements of encryption. Setting the congestion control requires root.
pub(crate) fn provide_for_encryption() -> Result<()> {
    if !is_root() {
        bail!("only root can set the congestion control");
    }
    provide_all("measurements of encryption need", &ENCRYPTED)
}

/// Installs the packages that make a Debian package.
pub(crate) fn provide_for_packaging() -> Result<()> {
    provide_all("a Debian package needs", &PACKAGING)
}

/// Installs what builds for ARM, and runs what was built.
pub(crate) fn provide_for_cross_building() -> Result<()> {
    provide_all("a package for arm64 needs", &CROSS_BUILT)
}

/// Installs the packages for the trial of a package. Systems in containers and networks between them require root.
pub(crate) fn provide_for_trial() -> Result<()> {
    if !is_root() {
        bail!("only root can start a system in a container");
    }
    provide_all("the trial of a package needs", &TRIED)
}

/// Installs what makes and boots a Debian system.
pub(crate) fn provide_for_linux() -> Result<()> {
    provide_all("a Debian system in a virtual machine needs", &BOOTED)
}

/// Installs the packages for a profile. Only root can see the kernel's addresses.
pub(crate) fn provide_for_profile() -> Result<()> {
    if !is_root() {
        bail!("only root can sample the kernel and set the congestion control");
    }
    provide_all("a profile needs", &PROFILED)
}

/// Names and versions of installed packages.
pub(crate) fn versions(packages: &[&str]) -> String {
    let query =
        Command::new("dpkg-query").args(["--show", "--showformat=${Package} ${Version}, "]).args(packages).output();
    let shown = query.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let shown = shown.trim_end_matches(", ");
    if shown.is_empty() { "of unknown versions".into() } else { shown.into() }
}

fn provide_all(who: &str, packages: &[(&str, Option<&str>)]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(package, program)| !is_there(package, *program))
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || !in_path("apt-get") {
        bail!(
            "{who} these Debian packages: {}\n       install them: sudo apt-get install {}",
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
        // The system is not Debian.
        Err(_) => program.is_none_or(in_path),
    }
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("--quiet").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

pub(crate) fn is_root() -> bool {
    let output = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
