//! The parties: chains of processes, the last of which serves a disk.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::compare::child::Child;
use crate::compare::contestant::Stage;
use crate::process::target_dir;

/// Bytes of every disk.
const DISK_LEN: u64 = 256 << 20;

/// The longest time from the start of a server until it answers.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The longest time that formatting or filling a disk may take.
const FILL_LIMIT: Duration = Duration::from_mins(1);

/// A disk, by what it goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    /// `lunette bench` on a plain disk of ours.
    Plain,
    /// `lunette bench` on a native volume.
    Encrypted,
    /// An encrypted disk with parity groups.
    Parity,
    /// fio on `lunette nbd` on a plain disk of ours.
    PlainNbd,
    /// fio on `lunette nbd` on a native volume.
    EncryptedNbd,
    /// fio on `qemu-nbd` with the LUKS driver, over `qemu-nbd`.
    QemuLuks,
    /// fio on `qemu-nbd` with the LUKS driver, over a plain disk of ours.
    QemuLuksIscsi,
    /// fio on nbdkit with the LUKS filter, over `qemu-nbd`.
    NbdkitLuks,
}

impl Party {
    pub(super) const ALL: [Self; 8] = [
        Self::Plain,
        Self::Encrypted,
        Self::Parity,
        Self::PlainNbd,
        Self::EncryptedNbd,
        Self::QemuLuks,
        Self::QemuLuksIscsi,
        Self::NbdkitLuks,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Encrypted => "encrypted",
            Self::Parity => "encrypted, parity 8+2",
            Self::PlainNbd => "plain, NBD",
            Self::EncryptedNbd => "encrypted, NBD",
            Self::QemuLuks => "QEMU's LUKS over NBD",
            Self::QemuLuksIscsi => "QEMU's LUKS over iSCSI",
            Self::NbdkitLuks => "nbdkit's LUKS over NBD",
        }
    }

    /// Whether the client is one for NBD.
    pub(super) fn is_nbd(self) -> bool {
        !matches!(self, Self::Plain | Self::Encrypted | Self::Parity)
    }
}

/// The words of a command line.
fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).into()
}

/// All parties, running.
pub(super) struct Parties {
    /// URLs and URIs, in the order of [`Party::ALL`].
    places: [String; Party::ALL.len()],
    // In the order in which they have to end: clients before servers, the folder last.
    _servers: Vec<Child>,
    _folder: TempDir,
}

impl Parties {
    pub(super) fn start(stage: &Stage) -> Result<Self> {
        // In memory, so that no disk of the machine is measured.
        let folder = tempfile::Builder::new().prefix("lunette-encryption-").tempdir_in("/dev/shm")?;
        let mut starting = Starting { stage, folder: folder.path(), servers: Vec::new() };
        let image = starting.image()?;
        let plain = starting.serve("plain", DISK_LEN, &[])?;
        starting.copy(&image, &plain)?;
        let encrypted = starting.encrypted("encrypted", DISK_LEN, &image, &[])?;
        let parity = starting.encrypted("parity", DISK_LEN / 8 * 10, &image, &["--parity", "8+2"])?;
        fs::remove_file(&image)?;
        let plain_nbd = starting.nbd("plain-nbd", &plain)?;
        let encrypted_nbd = starting.nbd("encrypted-nbd", &encrypted)?;
        let luks = starting.luks_image()?;
        let base = starting.qemu_nbd(
            "qemu-base",
            stage.cpus.target,
            &[],
            &format!("driver=raw,file.driver=file,file.filename={luks}"),
        )?;
        let over_nbd = format!("file.driver=nbd,file.server.type=unix,file.server.path={}", base.display());
        let qemu = starting.qemu_luks("qemu-luks", &over_nbd)?;
        let iscsi = starting.serve("luks-iscsi", DISK_LEN, &[])?;
        starting.copy(Path::new(&luks), &iscsi)?;
        let qemu_iscsi = starting.qemu_luks("qemu-luks-iscsi", &over_iscsi(&iscsi)?)?;
        let nbdkit = starting.nbdkit(&base)?;
        let servers = starting.servers.into_iter().rev().collect();
        let places = [plain, encrypted, parity, plain_nbd, encrypted_nbd, qemu, qemu_iscsi, nbdkit];
        Ok(Self { places, _servers: servers, _folder: folder })
    }

    /// Where a client finds the disk of a party.
    pub(super) fn place(&self, party: Party) -> &str {
        &self.places[party as usize]
    }
}

/// QEMU's options for a disk behind one of our URLs, `iscsi://HOST:PORT/TARGET/LUN`.
fn over_iscsi(url: &str) -> Result<String> {
    let rest = url.strip_prefix("iscsi://").context("an iSCSI URL")?;
    let [portal, target, lun] = rest.split('/').collect::<Vec<_>>()[..] else { bail!("{url} names no disk") };
    Ok(format!("file.driver=iscsi,file.transport=tcp,file.portal={portal},file.target={target},file.lun={lun}"))
}

/// A client of NBD finds the server behind a socket by this.
fn uri(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

struct Starting<'a> {
    stage: &'a Stage,
    folder: &'a Path,
    servers: Vec<Child>,
}

impl Starting<'_> {
    /// Our target with a disk in memory for this many bytes. Gives its URL.
    fn serve(&mut self, name: &str, len_bytes: u64, options: &[&str]) -> Result<String> {
        // The image of a LUKS volume is longer than the volume, and so are the EDUs of a native one.
        let disk = format!("mem:{}", len_bytes + (16 << 20));
        let arguments = [
            &words(["serve", &disk, "--listen", "127.0.0.1:0"])[..],
            &options.iter().map(OsString::from).collect::<Vec<_>>(),
        ]
        .concat();
        let mut server = self.stage.start(name, self.stage.cpus.target, &lunette(), arguments)?;
        let url = server.wait_until(START_LIMIT, Child::first_line)?;
        self.servers.push(server);
        Ok(url)
    }

    /// Bytes that fill a disk.
    fn image(&self) -> Result<PathBuf> {
        let image = self.path("image");
        fs::write(&image, vec![0x5a; usize::try_from(DISK_LEN)?])?;
        Ok(image)
    }

    /// A native volume on a unit for this many bytes, every quantum of which has been written.
    fn encrypted(&mut self, name: &str, len_bytes: u64, image: &Path, format: &[&str]) -> Result<String> {
        let url = self.serve(name, len_bytes, &["--quantum", "4096"])?;
        let (keys, passphrase) = (self.path(&format!("{name}.keys")), self.path("passphrase"));
        fs::write(&passphrase, "correct horse battery staple")?;
        let (keys, passphrase) = (text(&keys)?, text(&passphrase)?);
        self.ours(&["keys", "create", keys, "--passphrase-file", passphrase])?;
        let volume = format!("{url}?keys=file:{keys}&passphrase_file={passphrase}");
        self.ours(&[&["quanta", "format", &volume, "--yes"], format].concat())?;
        self.copy(image, &volume)?;
        Ok(volume)
    }

    /// A disk of ours as an NBD server. Gives its URI.
    fn nbd(&mut self, name: &str, url: &str) -> Result<String> {
        let socket = self.path(name);
        let arguments = words(["nbd", url, "--socket", text(&socket)?]);
        let mut server = self.stage.start(name, self.stage.cpus.initiator, &lunette(), arguments)?;
        server.wait_until(START_LIMIT, Child::first_line)?;
        self.servers.push(server);
        Ok(uri(&socket))
    }

    /// A LUKS volume in a file, every sector of which has been written.
    fn luks_image(&self) -> Result<String> {
        let image = self.path("luks");
        let image = text(&image)?.to_owned();
        let len = DISK_LEN.to_string();
        fs::write(self.path("luks-passphrase"), "correct horse battery staple")?;
        let secret = self.secret();
        run(
            "qemu-img",
            &["create", "-q", "--object", &secret, "-f", "luks", "-o", "key-secret=s,iter-time=10", &image, &len],
        )?;
        let options = format!("driver=luks,key-secret=s,file.driver=file,file.filename={image}");
        run("qemu-io", &["--object", &secret, "--image-opts", &options, "-c", &format!("write -P 90 0 {len}")])?;
        Ok(image)
    }

    fn secret(&self) -> String {
        format!("secret,id=s,file={}", self.path("luks-passphrase").display())
    }

    /// `qemu-nbd` with these image options. Gives its socket.
    fn qemu_nbd(&mut self, name: &str, cpu: usize, more: &[&str], options: &str) -> Result<PathBuf> {
        let socket = self.path(name);
        let arguments =
            [more, &["--image-opts", options, "--socket", text(&socket)?, "--persistent", "--shared", "8"]].concat();
        let arguments = arguments.into_iter().map(OsString::from).collect();
        self.server_on(name, cpu, Path::new("qemu-nbd"), arguments, &socket)?;
        Ok(socket)
    }

    /// The LUKS driver of QEMU over a disk. Gives its URI.
    fn qemu_luks(&mut self, name: &str, below: &str) -> Result<String> {
        let (secret, cpu) = (self.secret(), self.stage.cpus.initiator);
        let options = format!("driver=luks,key-secret=s,{below}");
        Ok(uri(&self.qemu_nbd(name, cpu, &["--object", &secret], &options)?))
    }

    /// The LUKS filter of nbdkit over an NBD server. Gives its URI.
    fn nbdkit(&mut self, base: &Path) -> Result<String> {
        let socket = self.path("nbdkit");
        let (below, passphrase) = (format!("socket={}", base.display()), self.path("luks-passphrase"));
        let passphrase = format!("passphrase=+{}", passphrase.display());
        let arguments = words([
            "--foreground",
            "--unix",
            text(&socket)?,
            "--filter=luks",
            "nbd",
            &below,
            "shared=true",
            &passphrase,
        ]);
        self.server_on("nbdkit", self.stage.cpus.initiator, Path::new("nbdkit"), arguments, &socket)?;
        Ok(uri(&socket))
    }

    /// Starts a server, and waits until it listens.
    fn server_on(
        &mut self,
        name: &str,
        cpu: usize,
        program: &Path,
        arguments: Vec<OsString>,
        socket: &Path,
    ) -> Result<()> {
        let mut server = self.stage.start(name, cpu, program, arguments)?;
        server.wait_until(START_LIMIT, |_| Ok(std::os::unix::net::UnixStream::connect(socket).ok()))?;
        self.servers.push(server);
        Ok(())
    }

    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        self.ours(&["cp", text(from)?, to])
    }

    /// Runs a command of ours to its end.
    fn ours(&self, arguments: &[&str]) -> Result<()> {
        let arguments = arguments.iter().map(OsString::from).collect();
        self.stage.start("prepare", self.stage.cpus.initiator, &lunette(), arguments)?.finish(FILL_LIMIT).map(drop)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn lunette() -> PathBuf {
    target_dir().join("release/lunette")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
