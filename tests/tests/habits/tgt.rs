//! tgt's own tools at the adapter's socket, beside the same tools at tgtd.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lunette_tests::{Configured, Owned, Ran, Server, lunette, random_bytes, run_at_most, wait_until};
use tempfile::TempDir;

use crate::cinder::Driver;

const LIMIT: Duration = Duration::from_secs(20);

const MAIN: &str = "listen = [\"127.0.0.1:0\"]\nstate = \"@/state\"\n[api]\nlisten = [\"unix:@/api.sock\"]\n\
                    [adapters]\ntgt = \"@/tgt/socket.0\"\n";

/// A program that listens at tgtd's socket, and tgt's tools at it.
struct Tgt {
    /// The path of the socket without its number.
    socket: PathBuf,
}

impl Tgt {
    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("PATH", env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
        command.env("TGT_IPC_SOCKET", &self.socket);
        command
    }

    fn admin(&self, words: &[&str]) -> Ran {
        run_at_most(LIMIT, self.tool("tgtadm").args(["--lld", "iscsi"]).args(words))
    }

    /// The exit code and the outputs of a command line.
    fn said(&self, line: &str) -> (Option<i32>, String, String) {
        let ran = self.admin(&line.split_whitespace().collect::<Vec<_>>());
        (ran.code, ran.stdout, ran.stderr)
    }

    fn done(&self, line: &str) -> String {
        self.admin(&line.split_whitespace().collect::<Vec<_>>()).succeeded().to_owned()
    }

    fn show(&self) -> String {
        self.done("--op show --mode target")
    }
}

/// A server with the adapter.
struct Ours {
    place: Configured,
    server: Server,
    tgt: Tgt,
}

impl Ours {
    fn start() -> Self {
        let place = Configured::new();
        let server = place.start(MAIN, 0);
        let tgt = Tgt { socket: place.file("tgt/socket") };
        server.await_log("the adapter for tgtadm is open", 1);
        Self { place, server, tgt }
    }

    /// Starts again, with what is in the folder.
    fn restart(self) -> Self {
        let Self { place, server, tgt } = self;
        server.stop();
        let server = place.start(MAIN, 0);
        server.await_log("the adapter for tgtadm is open", 1);
        Self { place, server, tgt }
    }

    /// A new file in the folder.
    fn disk(&self, name: &str) -> String {
        disk(self.place.path(), name)
    }

    /// The outcome of INQUIRY through libiscsi, as an initiator.
    fn inquiry(&self, initiator: &str, target: &str) -> Ran {
        let url = format!("iscsi://{}/{target}/1", self.address());
        run_at_most(LIMIT, Command::new("iscsi-inq").args(["-i", initiator, &url]))
    }

    fn address(&self) -> String {
        let log = self.server.log();
        let (_, rest) = log.rsplit_once("listening on ").expect("the server listens");
        rest.split_whitespace().next().expect("an address").to_owned()
    }
}

/// tgtd itself.
struct Theirs {
    _daemon: Owned,
    folder: TempDir,
    tgt: Tgt,
}

impl Theirs {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tgt = Tgt { socket: folder.path().join("socket") };
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut daemon = tgt.tool("tgtd");
        daemon.args(["-f", "--iscsi", &format!("portal={address}")]).stdin(Stdio::null());
        let daemon = Owned::start(daemon.stdout(log.try_clone().unwrap()).stderr(log));
        let answers = wait_until(LIMIT, || (tgt.said("--op show --mode target").0 == Some(0)).then_some(()));
        assert!(answers.is_some(), "tgtd does not answer");
        Self { _daemon: daemon, folder, tgt }
    }
}

fn disk(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(64 << 20).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The text without what is different and true: the serial number that initiators see, and whether a disk is thin.
fn without_truths(text: &str) -> String {
    let own = ["            SCSI SN: ", "            Thin-provisioning: "];
    let kept = text.lines().filter(|line| !own.iter().any(|own| line.starts_with(own)));
    kept.collect::<Vec<_>>().join("\n")
}

/// A random command line. Both ends understand all of it in the same way; `docs/adapters/tgt.md` has what they do not.
fn command(bytes: &[u8]) -> String {
    let pick = |at: usize, choices: &[&str]| choices[usize::from(bytes[at]) % choices.len()].to_owned();
    let tid = pick(1, &["1", "2", "3"]);
    let lun = pick(2, &["0", "1", "2", "3"]);
    let disk_lun = pick(2, &["1", "2", "3"]);
    let name = pick(3, &["iqn.2026-11.org.example:a", "iqn.2026-11.org.example:b", "iqn.2026-11.org.example:c"]);
    let user = pick(4, &["alice", "bob", "carol"]);
    let rule = pick(5, &["-I ALL", "-I 192.0.2.0/24", "-I 127.0.0.1", "-I ::1", "-Q iqn.1993-08.org.debian:01:a"]);
    // One disk is served once here, and as often as one likes by tgtd.
    let file = if bytes[6].is_multiple_of(4) { "missing".to_owned() } else { format!("disk-{tid}-{lun}") };
    let setting = pick(
        7,
        &[
            "vendor_id=ACME",
            "product_id=DISK-7",
            "product_rev=12",
            "scsi_sn=s1",
            "scsi_id=i1",
            "removable=1",
            "removable=0",
            "readonly=1",
            "readonly=0",
            "online=1",
            "bogus=1",
            "vendor_id=A,product_id=B",
            "sense_format=0",
        ],
    );
    let parameter = pick(
        8,
        &[
            "MaxBurstLength -v 524288",
            "FirstBurstLength -v 65536",
            "InitialR2T -v Yes",
            "ImmediateData -v No",
            "MaxConnections -v 2",
            "MaxOutstandingR2T -v 4",
            "Bogus -v 1",
            "MaxBurstLength -v many",
            "state -v ready",
            "state -v odd",
        ],
    );
    match bytes[0] % 20 {
        0..=2 => format!("--op new --mode target --tid {tid} -T {name}"),
        3 => format!("--op delete --mode target --tid {tid}"),
        4..=6 => format!("--op new --mode logicalunit --tid {tid} --lun {lun} -b @/{file}"),
        7 => format!("--op new --mode logicalunit --tid {tid} --lun {lun} -b @/{file} --bstype aio --blocksize 4096"),
        8 => format!("--op delete --mode logicalunit --tid {tid} --lun {lun}"),
        9 | 10 => format!("--op update --mode logicalunit --tid {tid} --lun {disk_lun} --params {setting}"),
        11 | 12 => format!("--op bind --mode target --tid {tid} {rule}"),
        13 => format!("--op unbind --mode target --tid {tid} {rule}"),
        14 => format!("--op new --mode account --user {user} --password secret-of-{user}"),
        15 => format!("--op delete --mode account --user {user}"),
        16 => format!("--op bind --mode account --tid {tid} --user {user}"),
        17 => format!("--op unbind --mode account --tid {tid} --user {user}"),
        18 => format!("--op update --mode target --tid {tid} -n {parameter}"),
        _ => pick(
            9,
            &[
                "--op show --mode account",
                "--op show --mode conn --tid 1",
                "--op show --mode session --tid 1",
                "--op delete --mode conn --tid 1 --sid 5 --cid 0",
                "--op delete --mode portal --param portal=192.0.2.9:1",
            ],
        ),
    }
}

/// The random sequences of a run; more of them with `LUNETTE_TGT_SEQUENCES`.
const SEQUENCES: u64 = 8;

/// The commands of one sequence.
const COMMANDS: usize = 40;

#[test]
fn tgtadm_prints_what_it_prints_of_tgtd() {
    let (ours, theirs) = (Ours::start(), Theirs::start());
    let folders = [ours.place.path(), theirs.folder.path()];
    for (tid, lun) in (1..=3).flat_map(|tid| (0..=3).map(move |lun| (tid, lun))) {
        for folder in folders {
            disk(folder, &format!("disk-{tid}-{lun}"));
        }
    }
    let sequences = env::var("LUNETTE_TGT_SEQUENCES").map_or(SEQUENCES, |text| text.parse().unwrap());
    for seed in 1..=sequences {
        let mut story = Vec::new();
        for bytes in random_bytes(seed, COMMANDS * 16).chunks(16) {
            let line = command(bytes);
            println!("{line}");
            let [our, their] = [(&ours.tgt, folders[0]), (&theirs.tgt, folders[1])].map(|(tgt, folder)| {
                let folder = folder.to_str().unwrap();
                let said = tgt.said(&line.replace('@', folder));
                (said, without_truths(&tgt.show()).replace(folder, "@"))
            });
            story.push(format!("{line} -> {:?}", their.0));
            assert_eq!(our, their, "seed {seed}:\n{}\n{}", story.join("\n"), ours.server.log());
        }
        for tgt in [&ours.tgt, &theirs.tgt] {
            for tid in ["1", "2", "3"] {
                tgt.said(&format!("--op delete --mode target --tid {tid}"));
            }
            for user in ["alice", "bob", "carol"] {
                tgt.said(&format!("--op delete --mode account --user {user}"));
            }
            assert_eq!(tgt.show(), "");
        }
    }
    ours.server.stop();
}

const TARGET: &str = "iqn.2026-11.org.example:disk";

/// The text that tgt-admin and Cinder search for.
const LUN_1: &str = "        LUN: 1\n";

#[test]
fn initiators_are_let_in_by_address_or_by_name() {
    let ours = Ours::start();
    let said = |line: &str| ours.tgt.done(line);
    let is_let_in = |initiator: &str| ours.inquiry(initiator, TARGET).code == Some(0);
    said(&format!("--op new --mode target --tid 5 -T {TARGET}"));
    said(&format!("--op new --mode logicalunit --tid 5 --lun 1 -b {}", ours.disk("disk")));
    let seen = |steps: &[&str]| {
        for step in steps {
            said(&format!("--mode target --tid 5 {step}"));
        }
        [is_let_in("iqn.a"), is_let_in("iqn.b")]
    };
    assert_eq!(seen(&[]), [false, false]);
    assert_eq!(seen(&["--op bind -Q iqn.a"]), [true, false]);
    assert_eq!(seen(&["--op bind -I 192.0.2.0/24"]), [true, false]);
    assert_eq!(seen(&["--op bind -I 127.0.0.0/8"]), [true, true]);
    assert_eq!(seen(&["--op unbind -I 127.0.0.0/8", "--op bind -I ALL"]), [true, true]);
    assert_eq!(seen(&["--op unbind -I ALL", "--op unbind -Q iqn.a"]), [false, false]);
    assert!(ours.tgt.show().ends_with("ACL information:\n        192.0.2.0/24\n"));
    ours.server.stop();
}

#[test]
fn a_target_in_use_goes_when_its_connections_have_been_ended() {
    let ours = Ours::start();
    let said = |line: &str| ours.tgt.done(line);
    said(&format!("--op new --mode target --tid 2 -T {TARGET}"));
    said(&format!("--op new --mode logicalunit --tid 2 --lun 1 -b {}", ours.disk("disk")));
    said("--op bind --mode target --tid 2 -I ALL");
    let url = format!("iscsi://{}/{TARGET}/1", ours.address());
    let mut user = Command::new("iscsi-perf");
    user.args(["-i", "iqn.1993-08.org.debian:01:user", &url]).stdin(Stdio::null());
    let _user = Owned::start(user.stdout(Stdio::null()).stderr(Stdio::null()));
    let shown = || said("--op show --mode conn --tid 2");
    let session = wait_until(LIMIT, || Some(shown()).filter(|text| !text.is_empty())).expect("a session");
    let (id, rest) = session.strip_prefix("Session: ").unwrap().split_once('\n').unwrap();
    let expected =
        "    Connection: 0\n        Initiator: iqn.1993-08.org.debian:01:user\n        IP Address: 127.0.0.1\n";
    assert_eq!(rest, expected);
    let nexus = format!(
        "        I_T nexus: {id}\n            Initiator: iqn.1993-08.org.debian:01:user alias: none\n            \
         Connection: 0\n                IP Address: 127.0.0.1\n"
    );
    assert!(ours.tgt.show().contains(&nexus), "{}", ours.tgt.show());
    let refused = ours.tgt.said("--op delete --mode target --tid 2");
    assert_eq!(refused, (Some(22), String::new(), "tgtadm: this target is still active\n".into()));
    said("--op unbind --mode target --tid 2 -I ALL");
    // The initiator may have logged out by now.
    ours.tgt.said(&format!("--op delete --mode conn --tid 2 --sid {id} --cid 0"));
    said("--op delete --mode target --tid 2");
    assert_eq!(ours.tgt.show(), "");
    ours.server.stop();
}

#[test]
fn numbers_and_passwords_outlive_the_server() {
    let ours = Ours::start();
    let said = |line: &str| ours.tgt.done(line);
    said(&format!("--op new --mode target --tid 7 -T {TARGET}"));
    said(&format!("--op new --mode logicalunit --tid 7 --lun 1 -b {}", ours.disk("disk")));
    said("--op update --mode logicalunit --tid 7 --lun 1 --params scsi_sn=S1,scsi_id=ID1");
    said("--op bind --mode target --tid 7 -I ALL");
    said("--op new --mode account --user alice --password secret-of-alice");
    said("--op bind --mode account --tid 7 --user alice");
    said("--op new --mode account --user bob --password secret-of-bob");
    let before = ours.tgt.show();
    let ours = ours.restart();
    assert_eq!(ours.tgt.show(), before);
    ours.tgt.done("--op bind --mode account --tid 7 --user bob");
    let login = |user: &str| {
        let url = format!("iscsi://{user}@{}/{TARGET}/1", ours.address());
        run_at_most(LIMIT, Command::new("iscsi-inq").arg(url)).code == Some(0)
    };
    let logins = ["alice%secret-of-alice", "bob%secret-of-bob", "bob%secret-of-alice", "x%y"].map(login);
    assert_eq!(logins, [true, true, false, false]);
    let audit = fs::read_to_string(ours.place.file("state.audit")).unwrap();
    assert!(audit.contains("\"tgt\""), "{audit}");
    ours.server.stop();
}

/// The file that Cinder's class writes for a volume, as its template has it.
fn cinder_file(ours: &Ours, disk: &str) -> String {
    let folder = ours.place.file("volumes");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("volume-1");
    let text = format!(
        "<target {TARGET}>\n    backing-store {disk}\n    driver iscsi\n    incominguser alice secret-of-alice\n    \
         write-cache on\n</target>\n"
    );
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_class_of_cinder_exports_a_volume_as_it_does_with_tgtd() {
    const IQN: &str = "iqn.2010-10.org.openstack:volume-7f3a";
    let ours = Ours::start();
    let (disk, volumes) = (ours.disk("volume-7f3a"), ours.place.file("volumes"));
    let configuration = ours.place.file("targets.conf");
    fs::write(&configuration, format!("include {}/*\n", volumes.display())).unwrap();
    // tgt-admin reads one file, in which an administrator includes Cinder's folder.
    let mut python = ours.tgt.tool("unshare");
    let there = "mount --bind \"$0\" /etc/tgt/targets.conf && exec python3 \"$@\"";
    python.args(["--mount", "sh", "-c", there]).arg(configuration);
    let address = ours.address();
    let (_, port) = address.rsplit_once(':').unwrap();
    let arguments = [&*disk, port, volumes.to_str().unwrap()];
    let mut cinder = Driver::start(python, "tgtadm.py", &arguments, ours.place.file("cinder.log"));
    let exported = cinder.told();
    assert_eq!(exported["exported"]["location"], format!("127.0.0.1:{port},1 {IQN} 1"));
    assert_eq!(exported["connected"]["data"]["target_lun"], 1);
    let login = |user: &str| {
        let url = format!("iscsi://{user}@{address}/{IQN}/1");
        run_at_most(LIMIT, Command::new("iscsi-inq").arg(url)).code == Some(0)
    };
    assert_eq!(["cinder-user%cinder-password", "cinder-user%other-password"].map(login), [true, false]);
    cinder.go_on();
    assert_eq!(cinder.told()["failed"], "ISCSITargetCreateFailed");
    cinder.end();
    assert!(!ours.tgt.show().contains(IQN));
    ours.server.stop();
}

#[test]
fn tgt_admin_makes_shows_updates_and_removes_a_target() {
    let ours = Ours::start();
    let admin = |words: &[&str]| run_at_most(LIMIT, ours.tgt.tool("tgt-admin").args(words));
    let disk = ours.disk("disk");
    let file = cinder_file(&ours, &disk);
    for _ in 0..2 {
        admin(&["--conf", &file, "--update", TARGET]).succeeded();
        let shown = admin(&["--show"]).succeeded().to_owned();
        assert!(shown.contains(&format!("Target 1: {TARGET}\n")) && shown.contains(LUN_1), "{shown}");
        assert!(
            shown.contains("    Account information:\n        alice\n    ACL information:\n        ALL\n"),
            "{shown}"
        );
    }
    let dumped = admin(&["--dump"]).succeeded().to_owned();
    assert!(
        dumped.contains(&format!("<target {TARGET}>")) && dumped.contains(&format!("backing-store {disk}")),
        "{dumped}"
    );
    let url = format!("iscsi://alice%secret-of-alice@{}/{TARGET}/1", ours.address());
    let mut user = Command::new("iscsi-perf");
    let _user = Owned::start(user.arg(&url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    let has_session = || ours.tgt.done("--op show --mode conn --tid 1").contains("Session");
    assert!(wait_until(LIMIT, || has_session().then_some(())).is_some());
    // Without --force it leaves a target alone that has sessions.
    admin(&["--conf", &file, "--delete", TARGET]);
    assert!(ours.tgt.show().contains(LUN_1));
    admin(&["--conf", &file, "--force", "--delete", TARGET]).succeeded();
    assert_eq!(ours.tgt.show(), "");
    ours.server.stop();
}

#[test]
fn tgt_setup_lun_shares_a_disk_with_one_initiator() {
    let place = Configured::new();
    place.write(MAIN);
    // The script looks for a process of this name.
    let mut command = lunette();
    command.arg0("tgtd").args(["serve", "--config"]).arg(place.file("config"));
    let server = Server::spawn(command, 0);
    server.await_log("the adapter for tgtadm is open", 1);
    let ours = Ours { tgt: Tgt { socket: place.file("tgt/socket") }, place, server };
    let disk = ours.disk("disk");
    let setup =
        |disk: &str| run_at_most(LIMIT, ours.tgt.tool("tgt-setup-lun").args(["-n", TARGET, "-d", disk, "127.0.0.1"]));
    setup(&disk).succeeded();
    assert_eq!(ours.inquiry("iqn.a", TARGET).code, Some(0));
    let shown = ours.tgt.show();
    assert!(shown.contains(LUN_1) && shown.ends_with("ACL information:\n        127.0.0.1\n"), "{shown}");
    ours.server.stop();
}

#[test]
fn pacemaker_starts_monitors_and_stops_a_target_and_its_disk() {
    const RUNNING: Option<i32> = Some(0);
    const NOT_RUNNING: Option<i32> = Some(7);
    let ours = Ours::start();
    let disk = ours.disk("disk");
    let agent = |name: &str, action: &str, values: &[(&str, &str)]| {
        let mut command = ours.tgt.tool(&format!("/usr/lib/ocf/resource.d/heartbeat/{name}"));
        command.arg(action).env("OCF_ROOT", "/usr/lib/ocf").env("OCF_RESOURCE_INSTANCE", "disk");
        command.env("HA_RSCTMP", ours.place.path()).env("OCF_RESKEY_implementation", "tgt");
        command.envs(values.iter().map(|(key, value)| (format!("OCF_RESKEY_{key}"), value)));
        run_at_most(LIMIT, &mut command)
    };
    let target = |action: &str| {
        let user = [("incoming_username", "alice"), ("incoming_password", "secret-of-alice")];
        agent(
            "iSCSITarget",
            action,
            &[&[("iqn", TARGET), ("tid", "4"), ("allowed_initiators", "127.0.0.1")][..], &user].concat(),
        )
    };
    let unit = |action: &str| {
        let values =
            [("target_iqn", TARGET), ("lun", "1"), ("path", &disk), ("scsi_sn", "serial-1"), ("vendor_id", "ACME")];
        agent("iSCSILogicalUnit", action, &values)
    };
    assert_eq!(target("monitor").code, NOT_RUNNING);
    for _ in 0..2 {
        let started = target("start");
        assert_eq!(started.code, RUNNING, "{started}\n{}", ours.server.log());
        assert_eq!(target("monitor").code, RUNNING);
        assert_eq!(unit("monitor").code, NOT_RUNNING);
        let started = unit("start");
        assert_eq!(started.code, RUNNING, "{started}\n{}", ours.server.log());
        assert_eq!(unit("monitor").code, RUNNING);
        let url = format!("iscsi://alice%secret-of-alice@{}/{TARGET}/1", ours.address());
        let seen = run_at_most(LIMIT, Command::new("iscsi-inq").arg(&url));
        assert!(seen.succeeded().lines().any(|line| line.trim_end() == "Vendor:ACME"), "{seen}");
        let serial = run_at_most(LIMIT, Command::new("iscsi-inq").args(["-e", "1", "-c", "128", &url]));
        assert!(serial.succeeded().contains("serial-1"), "{serial}");
        for stopped in [unit("stop"), target("stop")] {
            assert_eq!(stopped.code, RUNNING, "{stopped}\n{}", ours.server.log());
        }
        assert_eq!((unit("monitor").code, target("monitor").code), (NOT_RUNNING, NOT_RUNNING));
    }
    assert_eq!((ours.tgt.show(), ours.tgt.done("--op show --mode account")), (String::new(), String::new()));
    ours.server.stop();
}

/// An engine of Longhorn at a socket, with a volume of this length, as `pkg/dataconn` of longhorn-engine serves one.
/// It serves one client after the other, and ends with the last one.
fn engine(socket: &Path, len: usize, clients: usize) -> JoinHandle<Vec<u8>> {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        let (mut volume, mut header) = (vec![0; len], [0; 26]);
        let mut streams = listener.incoming().take(clients).map(Result::unwrap);
        let Some(mut stream) = streams.next() else { return volume };
        loop {
            if stream.read_exact(&mut header).is_err() {
                let Some(next) = streams.next() else { return volume };
                stream = next;
                continue;
            }
            let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
            assert_eq!(header[..2], [0x01, 0x1b]);
            let offset = usize::try_from(u64::from_le_bytes(header[10..18].try_into().unwrap())).unwrap();
            let range = offset..offset + usize::try_from(field(18)).unwrap();
            let data = match field(6) {
                0 => volume[range].to_vec(),
                7 => {
                    volume[range].fill(0);
                    Vec::new()
                }
                1 => {
                    stream.read_exact(&mut volume[range]).unwrap();
                    Vec::new()
                }
                other => panic!("a request of type {other}"),
            };
            header[6..10].copy_from_slice(&2_u32.to_le_bytes());
            header[22..].copy_from_slice(&u32::try_from(data.len()).unwrap().to_le_bytes());
            stream.write_all(&header).and_then(|()| stream.write_all(&data)).unwrap();
        }
    })
}

#[test]
fn a_volume_of_longhorn_is_served_as_its_instance_manager_asks() {
    const LEN: usize = 8 << 20;
    let ours = Ours::start();
    let said = |line: &str| ours.tgt.done(line);
    let socket = ours.place.file("longhorn-vol.sock");
    // A change of the unit is another connection.
    let engine = engine(&socket, 2 * LEN, 3);
    assert!(said("--op show --mode system").contains("\n    rdwr"), "its check that the server lives");
    let new = format!("--op new --mode logicalunit --tid 1 --lun 1 -b {} --bstype longhorn", socket.display());
    said(&format!("--op new --mode target --tid 1 -T {TARGET}"));
    assert_eq!(ours.tgt.said(&format!("{new} --bsopts odd=1")).0, Some(22));
    said(&format!("{new} --bsopts size={LEN};request_timeout=15"));
    let update = "--op update --mode logicalunit --tid 1 --lun 1 --params";
    said(&format!("{update} thin_provisioning=1"));
    said(&format!("{update} mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"));
    said("--op bind --mode target --tid 1 -I ALL");
    let more = 2 * LEN;
    said(&format!("{update} bsopts=size={more}"));
    let shown = ours.tgt.show();
    let store = format!("Backing store type: longhorn\n            Backing store path: {}\n", socket.display());
    assert!(shown.contains(&store) && shown.contains("Size: 17 MB, Block size: 512\n"), "{shown}");
    assert!(shown.contains("Thin-provisioning: Yes"), "{shown}");
    let (image, back) = (ours.place.file("image"), ours.place.file("back"));
    let bytes = random_bytes(7, more);
    fs::write(&image, &bytes).unwrap();
    let url = format!("iscsi://{}/{TARGET}/1", ours.address());
    run_at_most(LIMIT, lunette().arg("cp").arg(&image).arg(&url)).succeeded();
    run_at_most(LIMIT, lunette().arg("cp").arg(&url).arg(&back)).succeeded();
    assert!(fs::read(&back).unwrap() == bytes, "the bytes that come back");
    said("--op unbind --mode target --tid 1 -I ALL");
    said("--op delete --mode logicalunit --tid 1 --lun 1");
    said("--op delete --mode target --tid 1");
    assert!(engine.join().unwrap() == bytes, "the bytes of the engine");
    ours.server.stop();
}
