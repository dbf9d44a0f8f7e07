//! A pool on a file system of its own, and the server that has it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use serde_json::Value;

use crate::configured::Configured;
use crate::mount::Mount;
use crate::server::{Server, lunette};

/// Bytes of the file system: XFS takes no smaller device.
const DEVICE_BYTES: u64 = 512 << 20;

/// The pool of the walk.
pub(super) const POOL: &str = "tank";

/// The target, with the volumes `a` and `b` as its first logical units.
const TARGET: &str = "iqn.2026-11.org.example:a";

pub(super) struct Ground {
    place: Configured,
    server: Option<Server>,
    // The server ends before its file system.
    mount: Mount,
}

impl Ground {
    pub(super) fn new() -> Self {
        let (place, mount) = (Configured::new(), Mount::new("mkfs.xfs", &["-q"], DEVICE_BYTES));
        fs::create_dir(place.file("conf.d")).expect("a folder");
        let mut ground = Self { place, server: None, mount };
        ground.write_target("{ number = 9, disk = \"mem:1M\" }");
        ground.start(1);
        ground
    }

    /// Lets the server serve these logical units from its next start on.
    pub(super) fn write_target(&self, luns: &str) {
        let target = format!("[[target]]\nname = {TARGET:?}\nallow = [\"*\"]\nlun = [{luns}]");
        fs::write(self.place.file(&format!("conf.d/target-{TARGET}.toml")), target).expect("a file in the folder");
    }

    pub(super) fn start(&mut self, luns: usize) {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\napi = {{ listen = [\"unix:@/api.sock\"] }}\n[[pool]]\nname = {POOL:?}\nplace = {:?}",
            self.mount.path().display().to_string()
        );
        self.server = Some(self.place.start(&text, luns));
    }

    pub(super) fn server(&self) -> &Server {
        self.server.as_ref().expect("it is served")
    }

    pub(super) fn kill(&mut self) {
        self.server.take().expect("it is served").kill();
    }

    pub(super) fn stop(&mut self) {
        self.server.take().expect("it is served").stop();
    }

    /// Begins `lunette volume`, or a shell command around it in which `$V` stands for it.
    pub(super) fn begin(&self, arguments: &[&str]) -> Child {
        let volume = format!(
            "{} volume --api unix:{}",
            lunette().get_program().to_string_lossy(),
            self.place.file("api.sock").display()
        );
        let mut command = std::process::Command::new("sh");
        command.env("V", volume).args(["-c", &arguments.join(" ")]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a shell")
    }

    /// Runs `lunette volume` to its end, which must be good.
    pub(super) fn volume(&self, arguments: &str) -> Value {
        let output = self.begin(&["$V --json", arguments]).wait_with_output().expect("it ends");
        let Output { status, stdout, stderr } = output;
        assert!(status.success(), "{arguments}: {}", String::from_utf8_lossy(&stderr));
        serde_json::from_slice(&stdout).unwrap_or_default()
    }

    /// The image of a volume or snapshot.
    pub(super) fn image(&self, volume: &str, snapshot: Option<&str>) -> PathBuf {
        let folder = self.mount.path().join(volume);
        snapshot.map_or_else(|| folder.join("disk.img"), |name| folder.join(format!("snapshots/{name}.img")))
    }

    /// The names that are in the pool beside its volumes.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let entries = fs::read_dir(self.mount.path().join(".lunette")).expect("the folder of the pool");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        names.filter(|name| name != "lock").collect()
    }
}
