//! A server for what is below `contrib/`: with a pool, and an API at a Unix socket and over TLS.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lunette_tests::{Configured, Mount, Server, run};

/// A token of an administrator.
const TOKEN: &str = "0123456789abcdef0123456789";

/// The token of a client that may change its own volumes alone.
const OPERATE: &str = "0123456789abcdef9876543210";

/// The target that is there from the beginning, with a disk in memory as LUN 9.
pub(super) const TARGET: &str = "iqn.2026-11.org.example:a";

/// A target without disks.
pub(super) const EMPTY: &str = "iqn.2026-11.org.example:pve";

/// Bytes of the file system: XFS takes no smaller device.
const DEVICE_BYTES: u64 = 512 << 20;

pub(super) struct Running {
    pub(super) place: Configured,
    pub(super) server: Server,
    /// The URL of the API over TLS.
    pub(super) url: String,
    // The server ends before its file system.
    _pool: Mount,
}

impl Running {
    pub(super) fn start() -> Self {
        let (place, pool) = (Configured::new(), Mount::new("mkfs.xfs", &["-q"], DEVICE_BYTES));
        let [key, certificate] = ["key.pem", "certificate.pem"].map(|name| place.file(name).display().to_string());
        let kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=127.0.0.1"];
        let names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
        let files = ["-keyout", &key, "-out", &certificate];
        run("openssl", [&["req", "-x509"][..], &kind, &names, &files].concat()).succeeded();
        fs::write(place.file("tokens"), format!("{TOKEN} name=root\n{OPERATE} role=operate name=a\n")).unwrap();
        fs::write(place.file("token"), TOKEN).unwrap();
        fs::write(place.file("operate-token"), OPERATE).unwrap();
        let targets = [(TARGET, "lun = [{ number = 9, disk = \"mem:1M\" }]"), (EMPTY, "")];
        fs::create_dir(place.file("conf.d")).unwrap();
        for (name, luns) in targets {
            let target = format!("[[target]]\nname = {name:?}\nallow = [\"*\"]\n{luns}\n");
            fs::write(place.file(&format!("conf.d/target-{name}.toml")), target).unwrap();
        }
        let folder = pool.path().display().to_string();
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nstate = \"@/state\"\n\
             [api]\nlisten = [\"unix:@/api.sock\", \"127.0.0.1:0\"]\ntokens = \"@/tokens\"\n\
             tls = {{ certificates = \"@/certificate.pem\", key = \"@/key.pem\" }}\n\
             [[pool]]\nname = \"tank\"\nplace = {folder:?}\nquota = {{ operate = \"100M\" }}\n"
        );
        let server = place.start(&text, 1);
        server.await_log("the API at", 2);
        let log = server.log();
        let address =
            log.lines().filter(|line| line.contains("the API at")).find_map(|line| line.split("address=").nth(1));
        let url = format!("https://{}", address.unwrap().split_whitespace().next().unwrap());
        Self { place, server, url, _pool: pool }
    }

    /// The path of a file beside the configuration.
    pub(super) fn file(&self, name: &str) -> String {
        self.place.file(name).display().to_string()
    }
}

/// A program that runs in a folder below `contrib/`.
pub(super) fn program_in(folder: &str, program: &str) -> Command {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "contrib", folder].iter().collect();
    let mut command = Command::new(program);
    command.current_dir(root.canonicalize().unwrap());
    command
}
