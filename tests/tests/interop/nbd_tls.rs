//! NBD in TLS: the clients and servers of libnbd, nbdkit and QEMU with those of this project.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_tests::keys::{Place, keys};
use lunette_tests::{Owned, Ran, Server, attach, lunette, random_file, run, run_at_most, wait_until};

const MEBIBYTES: u64 = 16;
const LIMIT: Duration = Duration::from_secs(100);
const START_LIMIT: Duration = Duration::from_secs(20);

/// An authority, a server called `localhost` and 127.0.0.1, and the client `alice`.
struct Files {
    place: Place,
    server: String,
    alice: String,
}

impl Files {
    fn new() -> Self {
        let place = Place::new();
        let server = place.certificate("server", &["--server", "localhost,127.0.0.1"]);
        let alice = place.certificate("alice", &[]);
        Self { place, server, alice }
    }

    /// Starts our server of a disk in memory.
    fn serve(&self, more: &[&str]) -> Server {
        let mut command = lunette();
        command.args(["nbd", "mem:16M", "--name", "disk", "--listen", "127.0.0.1:0", "--tls", &self.server]).args(more);
        Server::spawn(command, 1)
    }

    fn image(&self) -> String {
        let image = self.place.text("image");
        random_file(Path::new(&image), 7, MEBIBYTES);
        image
    }
}

/// The URI for a client with the files in `folder`.
fn with(url: &str, folder: &str) -> String {
    format!("{url}{}tls-certificates={folder}", if url.contains('?') { '&' } else { '?' })
}

fn cp(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().arg("cp").args(arguments))
}

fn qemu_io(server: &Server, folder: &str, commands: &[&str]) -> Ran {
    let address = server.url(0).strip_prefix("nbds://127.0.0.1:").expect("a URI of TLS");
    let port = address.strip_suffix("/disk").expect("the name of the export");
    let credentials = format!("tls-creds-x509,id=tls0,endpoint=client,dir={folder}");
    let image = format!("driver=nbd,host=127.0.0.1,port={port},export=disk,tls-creds=tls0");
    let each = commands.iter().flat_map(|command| ["-c", command]);
    run("qemu-io", ["--object", &*credentials, "--image-opts"].into_iter().chain(each).chain([&*image]))
}

#[test]
fn clients_of_other_projects_reach_the_server_in_tls_alone() {
    let files = Files::new();
    let server = files.serve(&[]);
    let url = with(server.url(0), &files.alice);
    let info = run("nbdinfo", [&url]);
    assert!(info.succeeded().contains("with TLS"), "{info}");
    assert!(run("nbdinfo", ["--list", &url]).succeeded().contains("export=\"disk\""));
    let (image, back) = (files.image(), files.place.text("back"));
    run("nbdcopy", [&*image, &url]).succeeded();
    run("nbdcopy", [&*url, &back]).succeeded();
    run("cmp", [&image, &back]).succeeded();
    let done = qemu_io(
        &server,
        &files.alice,
        &[
            "write -P 0x5a 1M 2M",
            "read -P 0x5a 1M 2M",
            "discard 1M 64k",
            "write -z 1088k 64k",
            "flush",
            "read -P 0x5a 2M 1M",
        ],
    );
    assert!(!done.succeeded().contains("verification failed"), "{done}");
    run("nbdinfo", [&server.url(0).replace("nbds:", "nbd:")]).failed();
    server.stop();
}

#[test]
fn clients_without_a_certificate_that_counts_are_refused() {
    let files = Files::new();
    let bob = files.place.certificate("bob", &[]);
    keys(&["ca", "revoke", &files.place.text("store/ca"), "bob"]).succeeded();
    let without = files.place.text("without");
    std::fs::create_dir(&without).unwrap();
    std::fs::copy(format!("{bob}/ca-cert.pem"), format!("{without}/ca-cert.pem")).unwrap();
    let server = files.serve(&[]);
    for (folder, is_admitted) in [(&files.alice, true), (&bob, false), (&without, false)] {
        let url = with(server.url(0), folder);
        let (foreign, own) = (run("nbdinfo", ["--size", &*url]), cp(&[&url, &files.place.text("copy")]));
        assert_eq!(foreign.code == Some(0), is_admitted, "{foreign}");
        assert_eq!(own.code == Some(0), is_admitted, "{own}");
        assert_eq!(qemu_io(&server, folder, &["read 0 64k"]).code == Some(0), is_admitted);
    }
    server.stop();
    let server = files.serve(&["--tls-any-client"]);
    assert!(run("nbdinfo", ["--size", &with(server.url(0), &without)]).succeeded().contains("16777216"));
    server.stop();
}

#[test]
fn a_server_says_what_its_files_lack() {
    let files = Files::new();
    let nbd = |tls: &str| {
        run_at_most(START_LIMIT, lunette().args(["nbd", "mem:1M", "--listen", "127.0.0.1:0", "--tls", tls]))
    };
    let missing = nbd(&files.alice);
    assert!(missing.code == Some(3) && missing.stderr.contains("server-cert.pem"), "{missing}");
    std::fs::remove_file(format!("{}/ca-cert.pem", files.server)).unwrap();
    let server = files.serve(&[]);
    cp(&[&with(server.url(0), &files.alice), &files.place.text("copy")]).succeeded();
    assert!(server.stop().contains("clients need no certificate"));
}

/// A server of another project that exports a file on a Unix socket.
struct Foreign {
    files: Files,
    command: fn(&Foreign) -> Command,
}

impl Foreign {
    fn new(command: fn(&Self) -> Command) -> Self {
        let foreign = Self { files: Files::new(), command };
        File::create(foreign.disk()).unwrap().set_len(MEBIBYTES << 20).unwrap();
        foreign
    }

    fn disk(&self) -> PathBuf {
        self.files.place.path("disk")
    }

    fn socket(&self) -> PathBuf {
        self.files.place.path("socket")
    }

    fn start(&self) -> Owned {
        // It may be there from an earlier server.
        let _ = std::fs::remove_file(self.socket());
        let mut command = (self.command)(self);
        let child = Owned::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
        let listens = wait_until(START_LIMIT, || UnixStream::connect(self.socket()).ok());
        assert!(listens.is_some(), "{command:?} does not listen");
        child
    }

    fn url(&self) -> String {
        with(&format!("nbds+unix:///disk?socket={}", self.socket().display()), &self.files.alice)
    }
}

fn nbdkit(foreign: &Foreign) -> Command {
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--tls=require", "--tls-verify-peer", "--tls-certificates", &foreign.files.server]);
    command.arg("--unix").arg(foreign.socket()).arg("file").arg(foreign.disk());
    command
}

fn qemu(foreign: &Foreign) -> Command {
    let mut command = Command::new("qemu-nbd");
    let credentials = format!("tls-creds-x509,id=tls0,endpoint=server,verify-peer=on,dir={}", foreign.files.server);
    command.args(["--object", &credentials, "--tls-creds", "tls0", "--persistent", "--shared=8", "--format=raw"]);
    command.args(["--export-name=disk", "--socket"]).arg(foreign.socket()).arg(foreign.disk());
    command
}

fn our_own(foreign: &Foreign) -> Command {
    let mut command = lunette();
    command.arg("nbd").arg(foreign.disk()).args(["--name", "disk", "--tls", &foreign.files.server, "--socket"]);
    command.arg(foreign.socket());
    command
}

/// WRITE (10) of one block, with FUA.
fn write_through(lba: u8) -> [u8; 10] {
    [0x2a, 0x08, 0, 0, 0, lba, 0, 0, 1, 0]
}

#[test]
fn copies_to_servers_of_other_projects_go_in_tls_alone() {
    for command in [nbdkit, qemu, our_own] {
        let foreign = Foreign::new(command);
        let _server = foreign.start();
        let (image, back) = (foreign.files.image(), foreign.files.place.text("back"));
        cp(&[&image, &foreign.url(), "--verify"]).succeeded();
        run("cmp", [&*image, foreign.disk().to_str().unwrap()]).succeeded();
        cp(&[&foreign.url(), &back]).succeeded();
        run("cmp", [&image, &back]).succeeded();
        let plain = cp(&[&format!("nbd+unix:///disk?socket={}", foreign.socket().display()), &back]);
        assert!(plain.code == Some(5) && plain.stderr.contains("insists on TLS"), "{plain}");
        let other = cp(&[&format!("{}&tls-hostname=other", foreign.url()), &back]);
        assert!(other.code == Some(5) && other.stderr.contains("not valid for name"), "{other}");
        cp(&[&format!("{}&tls-verify-peer=0&tls-hostname=other", foreign.url()), &back]).succeeded();
    }
}

#[test]
fn a_server_without_tls_is_not_used_by_a_uri_with_it() {
    let files = Files::new();
    let server = Server::spawn(lunette().args(["nbd", "mem:16M", "--listen", "127.0.0.1:0"]), 1);
    let refused = cp(&[&with(&server.url(0).replace("nbd:", "nbds:"), &files.alice), &files.place.text("copy")]);
    assert!(refused.code == Some(5) && refused.stderr.contains("refuses TLS (STARTTLS)"), "{refused}");
    server.stop();
}

#[test]
fn a_killed_server_is_found_again_in_tls() {
    for command in [nbdkit, qemu, our_own] {
        let foreign = Foreign::new(command);
        let server = foreign.start();
        let served = Server::start(&[&foreign.url()]);
        let mut initiator = attach(&served, &[]);
        initiator.command(0, &write_through(0), vec![1; 512], 0).good();
        drop(server);
        let server = foreign.start();
        initiator.command(0, &write_through(1), vec![2; 512], 0).good();
        drop(initiator);
        assert!(served.stop().contains("a connection to an NBD server was lost"));
        drop(server);
        let written = std::fs::read(foreign.disk()).unwrap();
        assert_eq!([written[0], written[512]], [1, 2]);
    }
}
