//! Exports of foreign NBD servers as disks: those of QEMU and nbdkit, and of `lunette nbd`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_testkit::ScriptedInitiator;
use lunette_tests::{Owned, Ran, Server, attach, lunette, random_file, run, run_at_most, wait_until};
use serde_json::Value;
use tempfile::TempDir;

pub(super) const MEBIBYTES: u64 = 16;
const BLOCK_LEN: usize = 512;
const START_LIMIT: Duration = Duration::from_secs(20);

/// The command of a server of a file on a Unix socket.
pub(super) type Serving = fn(&Path, &Path) -> Command;

/// A file that a foreign server exports on a Unix socket, again and again.
pub(super) struct Export {
    folder: TempDir,
    pub(super) command: Serving,
}

impl Export {
    pub(super) fn new(command: Serving) -> Self {
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("disk")).unwrap().set_len(MEBIBYTES << 20).unwrap();
        Self { folder, command }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    pub(super) fn url(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.folder.path().join("socket").display())
    }

    /// Starts the server, which replaces the socket of one that was killed.
    pub(super) fn start(&self) -> Owned {
        let socket = self.folder.path().join("socket");
        // It may be there from an earlier server.
        let _ = fs::remove_file(&socket);
        let mut command = (self.command)(&self.file(), &socket);
        let child = Owned::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
        assert!(wait_until(START_LIMIT, || UnixStream::connect(&socket).ok()).is_some(), "{command:?} does not listen");
        child
    }
}

fn qemu(file: &Path, socket: &Path) -> Command {
    let mut command = Command::new("qemu-nbd");
    command.args(["--persistent", "--shared=8", "--format=raw", "--discard=unmap", "--export-name=disk", "--socket"]);
    command.arg(socket).arg(file);
    command
}

fn read_only_qemu(file: &Path, socket: &Path) -> Command {
    let mut command = qemu(file, socket);
    command.arg("--read-only");
    command
}

fn nbdkit(file: &Path, socket: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("nbdkit");
    command.arg("--foreground").args(options).arg("--unix").arg(socket).arg("file").arg(file);
    command
}

/// A server with all that the client knows.
pub(super) fn able_nbdkit(file: &Path, socket: &Path) -> Command {
    nbdkit(file, socket, &[])
}

/// A server without structured replies, zeroes and FUA.
fn plain_nbdkit(file: &Path, socket: &Path) -> Command {
    nbdkit(file, socket, &["--no-sr", "--filter=nozero", "--filter=fua"])
}

/// A server of long blocks.
fn long_nbdkit(file: &Path, socket: &Path) -> Command {
    let mut command = nbdkit(file, socket, &["--filter=blocksize-policy"]);
    command.args(["blocksize-minimum=4096", "blocksize-maximum=128K", "blocksize-error-policy=error"]);
    command
}

/// A server of blocks that no SCSI disk has.
fn longer_nbdkit(file: &Path, socket: &Path) -> Command {
    let mut command = nbdkit(file, socket, &["--filter=blocksize-policy"]);
    command.args(["blocksize-minimum=8192", "blocksize-preferred=8192", "blocksize-maximum=128K"]);
    command
}

fn our_own(file: &Path, socket: &Path) -> Command {
    let mut command = lunette();
    command.arg("nbd").arg(file).args(["--name", "disk", "--socket"]).arg(socket);
    command
}

fn cp(arguments: &[&str]) -> Ran {
    run_at_most(Duration::from_secs(100), lunette().arg("cp").args(arguments))
}

fn info(url: &str) -> Value {
    serde_json::from_str(run(lunette().get_program(), ["info", "--json", url]).succeeded()).unwrap()
}

/// An image with data at its beginning and zeroes behind it.
fn image(folder: &TempDir) -> String {
    let path = folder.path().join("image");
    random_file(&path, 7, MEBIBYTES / 2);
    File::options().write(true).open(&path).unwrap().set_len(MEBIBYTES << 20).unwrap();
    path.to_str().unwrap().to_owned()
}

/// WRITE (10) of one block, with FUA.
fn write_through(lba: u32) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    [0x2a, 0x08, a, b, c, d, 0, 0, 1, 0]
}

const SYNCHRONIZE_CACHE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const READ_ONE_BLOCK: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];

#[test]
fn initiators_and_the_server_see_the_same_bytes() {
    let servers: [(Serving, u32); 5] =
        [(qemu, 512), (able_nbdkit, 512), (plain_nbdkit, 512), (long_nbdkit, 4096), (our_own, 512)];
    for (command, block_bytes) in servers {
        let export = Export::new(command);
        // What a copy of zeroes must overwrite.
        File::options().write(true).open(export.file()).unwrap().write_all_at(&[7; 4096], MEBIBYTES << 19).unwrap();
        let _server = export.start();
        let served = Server::start(&[&export.url()]);
        let (image, back) = (image(&export.folder), export.folder.path().join("back"));
        assert_eq!(info(served.url(0))["block_bytes"], block_bytes);
        cp(&[&image, served.url(0), "--verify"]).succeeded();
        run("cmp", [&*image, export.file().to_str().unwrap()]).succeeded();
        let bench = ["bench", served.url(0), "--rw", "verify", "--time", "1"];
        run_at_most(Duration::from_mins(1), lunette().args(bench)).succeeded();
        cp(&[served.url(0), back.to_str().unwrap()]).succeeded();
        served.stop();
        run("cmp", [&back, &export.file()]).succeeded();
    }
}

#[test]
fn copies_go_to_an_export_and_come_from_one() {
    for command in [qemu, able_nbdkit, our_own] {
        let export = Export::new(command);
        let _server = export.start();
        let (image, back) = (image(&export.folder), export.folder.path().join("back"));
        cp(&[&image, &export.url(), "--verify"]).succeeded();
        run("cmp", [&*image, export.file().to_str().unwrap()]).succeeded();
        cp(&[&export.url(), back.to_str().unwrap()]).succeeded();
        run("cmp", [&image, back.to_str().unwrap()]).succeeded();
        cp(&[&export.url(), &export.url()]).failed();
    }
}

#[test]
fn a_server_over_tcp_is_used_too() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    File::create(&disk).unwrap().set_len(MEBIBYTES << 20).unwrap();
    let nbd = ["nbd", disk.to_str().unwrap(), "--name", "disk", "--listen", "127.0.0.1:0"];
    let server = Server::spawn(lunette().args(nbd), 1);
    let image = image(&folder);
    cp(&[&image, server.url(0), "--verify"]).succeeded();
    server.stop();
    run("cmp", [&*image, disk.to_str().unwrap()]).succeeded();
}

#[test]
fn a_read_only_export_is_a_read_only_disk() {
    let export = Export::new(read_only_qemu);
    File::options().write(true).open(export.file()).unwrap().write_all_at(&[9; BLOCK_LEN], 0).unwrap();
    let _server = export.start();
    let served = Server::start(&[&export.url()]);
    assert_eq!(info(served.url(0))["read_only"], true);
    let mut initiator = attach(&served, &[]);
    assert_eq!(initiator.command(0, &READ_ONE_BLOCK, Vec::new(), BLOCK_LEN as u32).good(), [9; BLOCK_LEN]);
    let refused = initiator.command(0, &write_through(0), vec![1; BLOCK_LEN], 0);
    assert_eq!((refused.status, refused.sense[2] & 0x0f), (2, 7), "DATA PROTECT");
    drop(initiator);
    served.stop();
}

/// Kills the server while writes are under way, starts it again, and waits for the writes.
fn kill_in_the_midst(
    export: &Export,
    server: Owned,
    initiator: &mut ScriptedInitiator,
    write: fn(u32) -> [u8; 10],
) -> Owned {
    const UNDER_WAY: u32 = 16;
    let mut start = |lba: u32| initiator.start(0, &write(lba), vec![lba as u8; BLOCK_LEN], 0, BLOCK_LEN);
    let mut tasks: Vec<_> = (0..UNDER_WAY / 2).map(&mut start).collect();
    drop(server);
    tasks.extend((UNDER_WAY / 2..UNDER_WAY).map(&mut start));
    let server = export.start();
    for task in tasks {
        initiator.finish(task).good();
    }
    let file = File::open(export.file()).unwrap();
    for lba in 0..UNDER_WAY {
        let mut found = [0; BLOCK_LEN];
        file.read_exact_at(&mut found, u64::from(lba) * BLOCK_LEN as u64).unwrap();
        assert_eq!(found, [lba as u8; BLOCK_LEN], "block {lba}");
    }
    server
}

#[test]
fn writes_that_a_killed_server_has_not_answered_reach_its_successor() {
    for command in [qemu, able_nbdkit, our_own] {
        let export = Export::new(command);
        let mut server = export.start();
        let served = Server::start(&[&export.url()]);
        let mut initiator = attach(&served, &[]);
        for _ in 0..3 {
            server = kill_in_the_midst(&export, server, &mut initiator, write_through);
            // No write was left to a cache, so nothing is lost.
            initiator.command(0, &SYNCHRONIZE_CACHE, Vec::new(), 0).good();
        }
        assert!(served.stop().contains("a connection to an NBD server was lost"));
        drop(server);
    }
}

#[test]
fn a_flush_says_that_a_killed_server_may_have_lost_writes() {
    let export = Export::new(qemu);
    let server = export.start();
    let served = Server::start(&[&export.url()]);
    let mut initiator = attach(&served, &[]);
    initiator.command(0, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], vec![1; BLOCK_LEN], 0).good();
    drop(server);
    let _server = export.start();
    for _ in 0..2 {
        let flushed = initiator.command(0, &SYNCHRONIZE_CACHE, Vec::new(), 0);
        assert_eq!((flushed.status, flushed.sense[2] & 0x0f), (2, 3), "MEDIUM ERROR");
    }
    initiator.command(0, &READ_ONE_BLOCK, Vec::new(), BLOCK_LEN as u32).good();
    drop(initiator);
    // Its last flush fails, too.
    served.terminate();
    let (status, log) = served.wait(START_LIMIT);
    assert!(!status.success() && log.contains("acknowledged writes may be lost"), "{log}");
}

#[test]
fn what_cannot_be_used_is_named() {
    let serve = |disk: &str| run_at_most(START_LIMIT, lunette().args(["serve", "--listen", "127.0.0.1:0", disk]));
    let export = Export::new(longer_nbdkit);
    let missing = serve(&export.url());
    assert_eq!(missing.code, Some(5), "{missing}");
    assert!(missing.stderr.contains("does the server listen there"), "{missing}");
    let _server = export.start();
    let long = serve(&export.url());
    assert!(long.code == Some(5) && long.stderr.contains("blocks of 8192 bytes"), "{long}");

    let export = Export::new(qemu);
    let _server = export.start();
    let other = serve(&export.url().replace("///disk", "///other"));
    assert!(other.code == Some(5) && other.stderr.contains("no export of that name"), "{other}");
    let created = run_at_most(START_LIMIT, lunette().args(["serve", "--create", "1M", &export.url()]));
    assert!(created.stderr.contains("leave out create"), "{created}");
    let tls = serve("nbds://127.0.0.1/disk");
    assert!(tls.code == Some(2) && tls.stderr.contains("TLS"), "{tls}");
}
