//! The disks that the suite runs over.

use std::path::Path;

use anyhow::{Context, Result};

use crate::ceph::Cluster;
use crate::process;

/// A kind of disk, and the tests that it takes.
#[derive(Debug)]
pub(super) struct Disk {
    /// The name of its column in the table.
    pub(super) name: &'static str,
    /// The location of its blocks.
    medium: Medium,
    /// More keys of its `lun` table.
    keys: &'static str,
    /// The tests that it takes, as patterns for the tool's `-t`.
    pub(super) patterns: &'static [&'static str],
}

#[derive(Debug)]
enum Medium {
    Memory,
    File,
    Ceph,
}

/// All tests except `Sanitize.Reset`. The tool's family `LINUX` has no further tests; `SCSI` and `iSCSI` are parts of
/// it.
const EVERYTHING: &[&str] = &["ALL.[!S]*", "ALL.S[!a]*", ALL_SANITIZE_BUT_RESET];

/// The whole suite in shorter runs, for a disk whose every request crosses a socket to another process. `MultipathIO`
/// comes first, on a new disk: its `CompareAndWrite` fills 256 blocks and expects the block behind them, which earlier
/// tests write to, to be zero.
const EVERYTHING_IN_PARTS: &[&str] =
    &["ALL.M[!ao]*", "ALL.[!MRSVW]*", "ALL.M[ao]*", "ALL.[RW]*", "ALL.V*", "ALL.S[!a]*", ALL_SANITIZE_BUT_RESET];

/// All sanitize tests except `Sanitize.Reset`, which requires an operation that takes longer than five seconds.
const ALL_SANITIZE_BUT_RESET: &str = "ALL.Sanitize.*[!t]";

/// All tests except `GetLBAStatus.UnmapSingle`, whose second half is wrong where a physical block holds several logical
/// ones: it asks for the block after the one that begins the mapped area, and expects a descriptor that begins a
/// physical block later. SBC-4 5.7 has the first descriptor begin with the block that was asked for.
const LARGE_PHYSICAL_BLOCKS: &[&str] = &["ALL.[!GS]*", "ALL.S[!a]*", ALL_SANITIZE_BUT_RESET, "ALL.GetLBAStatus.[!U]*"];

/// Tests that only read, and `ReadOnly`. The other tests write to the disk and do not expect write protection.
const READING: &[&str] = &[
    "ALL.GetLBAStatus.[!U]*",
    "ALL.Inquiry",
    "ALL.M[ao]*",
    "ALL.Prefetch*",
    "ALL.Prin*",
    "ALL.ProutReserve.[!A]*",
    "ALL.Prout[!R]*",
    "ALL.ProutRegister",
    "ALL.Read*",
    "ALL.Re[ps]*",
    "ALL.TestUnitReady",
    "ALL.Verify*",
    "ALL.iSCSIcmdsn",
    "ALL.iSCSIResiduals.Read*",
];

/// The disks. The one that takes longest is the first.
pub(super) const DISKS: [Disk; 10] = [
    Disk { name: "slow", medium: Medium::Memory, keys: "sanitize_rate = \"8M\"", patterns: &["ALL.Sanitize.Reset"] },
    Disk { name: "memory 512", medium: Medium::Memory, keys: "", patterns: EVERYTHING },
    Disk { name: "memory 4096", medium: Medium::Memory, keys: "block_size = 4096", patterns: EVERYTHING },
    Disk { name: "quanta 512", medium: Medium::Memory, keys: "quantum = 512", patterns: EVERYTHING },
    Disk { name: "thin 512", medium: Medium::File, keys: "", patterns: LARGE_PHYSICAL_BLOCKS },
    Disk { name: "thin 4096", medium: Medium::File, keys: "block_size = 4096", patterns: EVERYTHING },
    Disk { name: "ceph 4096", medium: Medium::Ceph, keys: "block_size = 4096", patterns: EVERYTHING_IN_PARTS },
    Disk { name: "full 512", medium: Medium::File, keys: "provisioning = \"full\"", patterns: EVERYTHING },
    Disk { name: "removable", medium: Medium::Memory, keys: "removable = true", patterns: EVERYTHING },
    Disk { name: "read-only", medium: Medium::Memory, keys: "read_only = true", patterns: READING },
];

impl Disk {
    /// Whether it is an image in Ceph.
    pub(super) fn is_in_ceph(&self) -> bool {
        matches!(self.medium, Medium::Ceph)
    }

    /// The configuration of a server with this disk and two portals. Its files are in `folder`; an image is made in
    /// `cluster`.
    pub(super) fn configuration(&self, folder: &Path, cluster: Option<&Cluster>) -> Result<String> {
        let folder = folder.display();
        let medium = match self.medium {
            Medium::Memory => "disk = \"mem:64M\"".into(),
            Medium::File => format!("disk = \"{folder}/disk\", create = \"64M\""),
            Medium::Ceph => {
                let cluster = cluster.context("a disk in Ceph has a cluster")?;
                process::run(cluster.program("rbd").args(["create", "suite", "--size", "64M"]))?;
                format!("disk = \"rbd:rbd/suite?conf={}\"", cluster.configuration().display())
            }
        };
        let keys = self.keys;
        let text = format!(
            "listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n\
             state = \"{folder}/state\"\n\
             [[target]]\n\
             name = \"iqn.2026-11.org.example:suite\"\n\
             lun = [{{ number = 0, {medium}, {keys} }}]\n"
        );
        Ok(text.replace(", }", " }"))
    }
}
