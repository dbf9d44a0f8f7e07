//! The server, with its program in a folder of its own.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::counters::{self, Counters};
use crate::configured::Configured;
use crate::foreign::free_address;
use crate::process::wait_until;
use crate::server::{Server, Upgrade, lunette};
use crate::tool::run;

/// Logical units of the site: those of the project's own client, and one for each of the other clients.
pub(super) const LUNS: u16 = 10;

pub(super) const TARGET: &str = "iqn.2026-11.org.example:handover";

/// The longest time for a server to let go of what its sessions needed.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// The path of a program, where another build can take the place of the one that runs.
pub struct Program(PathBuf);

impl Program {
    /// The build of the command, at a path in this folder.
    pub fn in_folder(folder: &Path) -> Self {
        let program = Self(folder.join("lunette"));
        program.install(&Self::built());
        program
    }

    /// The build of the command that tests run.
    pub fn built() -> PathBuf {
        PathBuf::from(lunette().get_program())
    }

    /// The program, not started yet, without input.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.stdin(Stdio::null());
        command
    }

    /// Puts another program at the path, as a package manager does: under a new name first.
    pub fn install(&self, other: &Path) {
        let new = self.0.with_extension("new");
        // A file that this process wrote itself could not be started while another thread starts a program.
        run("cp", [Path::new("--reflink=auto"), other, &new]).succeeded();
        fs::rename(&new, &self.0).expect("both are in one folder");
    }

    /// Puts a script for the shell at the path.
    pub fn install_script(&self, text: &str) {
        let script = self.0.with_extension("script");
        fs::write(&script, format!("#!/bin/sh\n{text}\n")).expect("a file in the folder");
        fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("a file of our own");
        self.install(&script);
    }
}

/// The descriptors and the memory that a server has in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) descriptors: u64,
    /// Memory of the process alone.
    pub(super) memory_kib: u64,
    /// Memory of the disks, which is handed over.
    pub(super) shared_kib: u64,
}

/// The name of a thing that is in use, and its amount.
type Part = (&'static str, fn(&Size) -> u64);

impl Size {
    /// The things that are in use, with their names.
    pub(super) const PARTS: [Part; 3] = [
        ("descriptors", |size| size.descriptors),
        ("memory in KiB", |size| size.memory_kib),
        ("memory of disks in KiB", |size| size.shared_kib),
    ];
}

/// A server with disks in memory and in files.
pub(super) struct Site {
    server: Server,
    program: Program,
    portal: SocketAddr,
    metrics: SocketAddr,
    _place: Configured,
}

impl Site {
    pub(super) fn start() -> Self {
        let place = Configured::new();
        let (portal, metrics) = (free_address(), free_address());
        let disk = |number: u16| match number % 4 {
            0 | 1 => format!("{{ number = {number}, disk = \"mem:32M\" }}"),
            _ => format!("{{ number = {number}, disk = \"@/disk{number}\", create = \"32M\" }}"),
        };
        let disks: Vec<_> = (0..LUNS).map(disk).collect();
        place.write(&format!(
            "listen = [\"{portal}\"]\ncores = 2\nstate = \"@/state\"\n[api]\nlisten = [\"unix:@/api.sock\"]\n\
             [metrics]\nlisten = [\"{metrics}\"]\n[[target]]\nname = \"{TARGET}\"\n\
             session = {{ error_recovery_level = 2 }}\nlun = [{}]",
            disks.join(", ")
        ));
        let program = Program::in_folder(place.path());
        let mut command = program.command();
        command.args(["serve", "--config"]).arg(place.file("config"));
        let server = Server::spawn(command, usize::from(LUNS));
        Self { server, program, portal, metrics, _place: place }
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// The URL of a logical unit.
    pub(super) fn url(&self, lun: u16) -> String {
        format!("iscsi://{}/{TARGET}/{lun}", self.portal)
    }

    /// The number of the process.
    pub(super) fn id(&self) -> u32 {
        self.server.process().id()
    }

    pub(super) fn upgrade(&mut self) -> Result<Upgrade, String> {
        self.server.try_upgrade()
    }

    pub(super) fn counters(&self) -> Counters {
        counters::read(self.metrics).unwrap_or_else(|error| panic!("no metrics: {error}\n{}", self.server.log()))
    }

    pub(super) fn size(&self) -> Size {
        let process = self.server.process();
        Size {
            descriptors: process.descriptors() as u64,
            memory_kib: process.memory_kib(),
            shared_kib: shared_kib(process.id()),
        }
    }

    /// The size once all clients have gone: no more descriptors than before they came, or what it comes to.
    pub(super) fn settled(&self, before: Size) -> Size {
        let settled = || Some(self.size()).filter(|size| size.descriptors <= before.descriptors);
        wait_until(SETTLE_LIMIT, settled).unwrap_or_else(|| self.size())
    }

    /// Stops the server, and returns the log.
    pub(super) fn stop(self) -> String {
        self.server.stop()
    }
}

/// The memory in files without a name.
fn shared_kib(id: u32) -> u64 {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{id}/fd")) else { return 0 };
    let paths = descriptors.flatten().map(|entry| entry.path());
    let of_memory =
        paths.filter(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:")));
    of_memory.filter_map(|path| Some(fs::metadata(path).ok()?.blocks() / 2)).max().unwrap_or_default()
}

/// The parent of a process; `None` when it is gone.
pub(super) fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// The children of a process.
pub fn children(id: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|child| parent(*child) == Some(id)).collect()
}
