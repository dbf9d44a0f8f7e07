//! Targets of other projects, each with one file as its disk.

use std::env;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Owned, wait_until};
use crate::tool::run_at_most;

/// The user and secret of an initiator.
pub const USER: (&str, &str) = ("alice", "secret of alice");

/// The user and secret of a target.
pub const TARGET_USER: (&str, &str) = ("disk", "secret of disk1");

/// The longest time from the start of a program to its first answer.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A running foreign target. It is killed when this is dropped.
pub struct Foreign {
    _child: Owned,
    address: SocketAddr,
    target: &'static str,
    lun: u16,
    folder: TempDir,
}

impl Foreign {
    /// Starts tgt, which supports digests, with a second portal on 127.0.0.2. With `chap` it authenticates the user and
    /// itself.
    pub fn tgt(mebibytes: u64, chap: bool) -> Self {
        // tgt compares bytes: the name has to come as it is here.
        const TARGET: &str = "iqn.2000-01.com.synology:DiskStation.Target-1.ABCDEF";
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = free_address();
        let control = folder.path().join("control");
        let disk = disk_in(folder.path(), mebibytes);
        let mut daemon = program("tgtd");
        daemon
            .args(["-f", "-C", "1", "--iscsi"])
            .arg(format!("portal={address},portal=127.0.0.2:{}", address.port()))
            .env("TGT_IPC_SOCKET", &control);
        let child = start(daemon, folder.path());
        let foreign = Self { _child: child, address, target: TARGET, lun: 1, folder };
        let admin = |arguments: &[&str]| {
            let mut tgtadm = program("tgtadm");
            tgtadm.env("TGT_IPC_SOCKET", &control).args(["-C", "1", "--lld", "iscsi"]).args(arguments);
            run_at_most(START_LIMIT, &mut tgtadm)
        };
        let answers =
            wait_until(START_LIMIT, || (admin(&["--mode", "target", "--op", "show"]).code == Some(0)).then_some(()));
        assert!(answers.is_some(), "tgtd does not answer tgtadm");
        admin(&["--mode", "target", "--op", "new", "--tid", "1", "-T", TARGET]).succeeded();
        let lun = ["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", &disk];
        admin(&lun).succeeded();
        admin(&["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"]).succeeded();
        for key in ["HeaderDigest", "DataDigest"] {
            let offer = ["--mode", "target", "--op", "update", "--tid", "1", "-n", key, "-v", "None,CRC32C"];
            admin(&offer).succeeded();
        }
        if chap {
            for ((user, secret), direction) in [(USER, &[][..]), (TARGET_USER, &["--outgoing"][..])] {
                admin(&["--mode", "account", "--op", "new", "--user", user, "--password", secret]).succeeded();
                let bind = ["--mode", "account", "--op", "bind", "--tid", "1", "--user", user];
                admin(&[&bind[..], direction].concat()).succeeded();
            }
        }
        foreign
    }

    /// Starts istgt. With `chap` it authenticates the user and itself.
    pub fn istgt(mebibytes: u64, chap: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = free_address();
        let disk = disk_in(folder.path(), mebibytes);
        let place = folder.path().display();
        let method = if chap { "CHAP Mutual" } else { "None" };
        let configuration = format!(
            "[Global]\nNodeBase \"iqn.2026-11.org.example\"\nPidFile {place}/pid\nAuthFile {place}/secrets\n\
             MediaDirectory {place}\nTimeout 30\nNopInInterval 20\nDiscoveryAuthMethod None\nMaxSessions 16\n\
             MaxConnections 4\nMaxR2T 32\nMaxOutstandingR2T 16\nDefaultTime2Wait 2\nDefaultTime2Retain 60\n\
             FirstBurstLength 262144\nMaxBurstLength 1048576\nMaxRecvDataSegmentLength 262144\n\
             [UnitControl]\nAuthMethod CHAP Mutual\n[PortalGroup1]\nPortal DA1 {address}\n\
             [InitiatorGroup1]\nInitiatorName \"ALL\"\nNetmask 127.0.0.0/8\n\
             [LogicalUnit1]\nTargetName istgt\nMapping PortalGroup1 InitiatorGroup1\nAuthMethod {method}\n\
             AuthGroup AuthGroup1\nUseDigest Auto\nUnitType Disk\nQueueDepth 32\nLUN0 Storage {disk} Auto\n"
        );
        let ((user, secret), (target_user, target_secret)) = (USER, TARGET_USER);
        let secrets = format!("[AuthGroup1]\nAuth \"{user}\" \"{secret}\" \"{target_user}\" \"{target_secret}\"\n");
        for (name, text) in [("configuration", configuration), ("secrets", secrets)] {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("room for a file");
            // istgt refuses files of secrets that other users can read.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a file of our own");
        }
        let mut daemon = program("istgt");
        daemon.args(["-D", "-c"]).arg(folder.path().join("configuration"));
        let child = start(daemon, folder.path());
        let foreign = Self { _child: child, address, target: "iqn.2026-11.org.example:istgt", lun: 0, folder };
        let listens = wait_until(START_LIMIT, || TcpStream::connect(address).ok());
        assert!(listens.is_some(), "istgt does not listen");
        foreign
    }

    /// The two portals of tgt.
    pub fn portals(&self) -> [SocketAddr; 2] {
        [self.address, SocketAddr::from(([127, 0, 0, 2], self.address.port()))]
    }

    /// The URL of its portal, for discovery.
    pub fn portal_url(&self) -> String {
        format!("iscsi://{}", self.address)
    }

    /// The name of its target.
    pub fn target(&self) -> &str {
        self.target
    }

    /// The file that is its disk.
    pub fn disk_file(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// The URL of its disk.
    pub fn url(&self) -> String {
        format!("iscsi://{}/{}/{}", self.address, self.target, self.lun)
    }
}

/// An address whose port is free now.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on the loopback interface");
    listener.local_addr().expect("a bound socket has an address")
}

fn disk_in(folder: &Path, mebibytes: u64) -> String {
    let path = folder.join("disk");
    File::create(&path).and_then(|file| file.set_len(mebibytes << 20)).expect("room for a file");
    path.to_str().expect("temporary folders have plain names").to_owned()
}

/// A program for the administrator. Debian keeps these out of other users' PATH.
fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    command
}

/// Starts a daemon, with its log in `folder`.
fn start(mut command: Command, folder: &Path) -> Owned {
    let log = File::create(folder.join("log")).expect("room for a file");
    let errors = log.try_clone().expect("a file can be opened twice");
    Owned::start(command.stdin(Stdio::null()).stdout(log).stderr(errors))
}
