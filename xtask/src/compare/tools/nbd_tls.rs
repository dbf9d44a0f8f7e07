//! `lunette nbd --tls` beside `qemu-nbd` with the same certificates, in TLS over loopback.
//!
//! The server has one CPU and the client the other. Our disk is in memory; QEMU's is its null driver, which touches no
//! memory at all. So what is measured is the way between a disk and a socket.

use std::ffi::OsString;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::{Contest, Side, Turn};
use crate::compare::child::Child;
use crate::compare::contestant::{START_LIMIT, Stage, free_port, lunette};
use crate::compare::disks::DiskFile;
use crate::compare::measure::limit;
use crate::process;

/// Bytes of each disk: enough that the start of a client does not count.
const DISK_LEN: u64 = 1 << 30;

/// Bytes that a client asks for at a time, in all of its requests.
const ASKED_BYTES: u64 = 2 << 20;

/// Our speed should be at least this, beside that of QEMU.
const SOLID: f64 = 2.0;

/// The program that reads the whole disk, and drops it.
#[derive(Clone, Copy)]
enum Client {
    Lunette,
    /// A client in the TLS of GnuTLS.
    Nbdcopy,
}

const LOADS: [(&str, Client, u64); 4] = [
    ("NBD in TLS, 64 KiB reads by lunette cp", Client::Lunette, 64 << 10),
    ("NBD in TLS, 1 MiB reads by lunette cp", Client::Lunette, 1 << 20),
    ("NBD in TLS, 64 KiB reads by nbdcopy", Client::Nbdcopy, 64 << 10),
    ("NBD in TLS, 1 MiB reads by nbdcopy", Client::Nbdcopy, 1 << 20),
];

pub(super) fn measure(stage: &Stage, rounds: u32, seconds: u32) -> Result<Vec<Contest>> {
    let certificates = Certificates::make()?;
    let ours = Server::lunette(stage, &certificates)?;
    let theirs = Server::qemu(stage, &certificates)?;
    ours.fill(stage)?;
    let mut contests = LOADS.map(|(load, ..)| Contest {
        load,
        ours: Side::new("lunette nbd"),
        theirs: Side::new("qemu-nbd"),
        solid: SOLID,
    });
    for round in 1..=rounds {
        eprintln!("NBD in TLS, round {round} of {rounds}");
        for ((load, client, len_bytes), contest) in LOADS.iter().zip(&mut contests) {
            for (server, side) in [(&ours, &mut contest.ours), (&theirs, &mut contest.theirs)] {
                let turn = server.serve(stage, *client, *len_bytes, seconds);
                side.turns.push(turn.with_context(|| *load)?);
            }
        }
    }
    Ok(contests.into())
}

/// The files of a server and of a client, which both parties use.
struct Certificates(TempDir);

impl Certificates {
    fn make() -> Result<Self> {
        let made = Self(tempfile::tempdir()?);
        let ca = made.folder("");
        for words in [
            vec!["ca", &ca],
            vec!["issue", &ca, "server", "--host", "127.0.0.1"],
            vec!["issue", &ca, "client", "--dns", "client"],
        ] {
            process::run(Command::new(lunette()).arg("tls").args(words))?;
        }
        Ok(made)
    }

    fn folder(&self, name: &str) -> String {
        self.0.path().join("ca").join(name).display().to_string()
    }
}

/// A server, and where it is reached.
struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn lunette(stage: &Stage, certificates: &Certificates) -> Result<Self> {
        let folder = certificates.folder("server");
        let (disk, port) = (format!("mem:{DISK_LEN}"), free_port()?);
        let address = format!("127.0.0.1:{port}");
        Self::start(
            stage,
            "nbd-tls",
            &lunette(),
            &["nbd", &disk, "--listen", &address, "--tls", &folder],
            port,
            certificates,
        )
    }

    fn qemu(stage: &Stage, certificates: &Certificates) -> Result<Self> {
        let credentials =
            format!("tls-creds-x509,id=tls,endpoint=server,verify-peer=on,dir={}", certificates.folder("server"));
        let (disk, port) = (format!("driver=null-co,size={DISK_LEN}"), free_port()?);
        let listen = port.to_string();
        let words =
            ["--persistent", "--bind", "127.0.0.1", "--port", &listen, "--object", &credentials, "--tls-creds", "tls"];
        let words = [&words[..], &["--image-opts", &disk]].concat();
        Self::start(stage, "qemu-nbd-tls", Path::new("qemu-nbd"), &words, port, certificates)
    }

    fn start(
        stage: &Stage,
        name: &str,
        program: &Path,
        words: &[&str],
        port: u16,
        certificates: &Certificates,
    ) -> Result<Self> {
        let arguments = words.iter().map(OsString::from).collect();
        let mut child = stage.start(name, stage.cpus.target, program, arguments)?;
        child.wait_until(START_LIMIT, |_| Ok(TcpStream::connect(("127.0.0.1", port)).ok()))?;
        let uri = format!("nbds://127.0.0.1:{port}/?tls-certificates={}", certificates.folder("client"));
        Ok(Self { child, uri })
    }

    /// Writes bytes all over the disk: what was never written is not read from memory.
    fn fill(&self, stage: &Stage) -> Result<()> {
        let source = DiskFile::of_len("nbd-tls-source", DISK_LEN)?;
        let arguments = vec!["cp".into(), source.path().into(), self.uri.clone().into()];
        stage.start("nbd-tls-fill", stage.cpus.initiator, &lunette(), arguments)?.finish(limit(60)).map(drop)
    }

    /// Reads the disk until the time is over.
    #[expect(clippy::cast_precision_loss, reason = "requests of an hour at most")]
    fn serve(&self, stage: &Stage, client: Client, len_bytes: u64, seconds: u32) -> Result<Turn> {
        let (before, started) = (self.child.cpu()?, Instant::now());
        let mut requests = 0;
        while started.elapsed() < Duration::from_secs(seconds.into()) {
            client.start(stage, &self.uri, len_bytes)?.finish(limit(seconds))?;
            requests += DISK_LEN / len_bytes;
        }
        let speed = requests as f64 / started.elapsed().as_secs_f64();
        let cpu = self.child.cpu()?.saturating_sub(before);
        Ok(Turn { speed, cpu_us: cpu.as_secs_f64() * 1e6 / requests as f64 })
    }
}

impl Client {
    /// Starts to read the whole disk, in requests of this length.
    fn start(self, stage: &Stage, uri: &str, len_bytes: u64) -> Result<Child> {
        let (len, depth) = (len_bytes.to_string(), (ASKED_BYTES / len_bytes).to_string());
        let [size, requests] = [format!("--request-size={len}"), format!("--requests={depth}")];
        let own = lunette().display().to_string();
        let words = match self {
            // Its output, unlike that of other processes, must not be kept.
            Self::Lunette => {
                vec!["sh", "-c", r#"exec "$@" - >/dev/null"#, "sh", &own, "cp", "--bs", &len, "--depth", &depth, uri]
            }
            Self::Nbdcopy => vec!["nbdcopy", "--connections=1", "--no-extents", &size, &requests, uri, "null:"],
        };
        let arguments = words[1..].iter().map(OsString::from).collect();
        stage.start("nbd-tls-client", stage.cpus.initiator, Path::new(words[0]), arguments)
    }
}
