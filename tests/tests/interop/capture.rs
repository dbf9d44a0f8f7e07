//! Captures of sessions with digests, checked by Wireshark's dissector: no malformed PDU, no bad digest.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lunette_tests::{DEFAULT_TARGET, Server, attach, lunette, random_bytes, run, stop, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

/// A running capture of one port of the loopback interface.
struct Capture {
    child: Child,
    file: PathBuf,
    port: u16,
}

impl Capture {
    /// Starts it and waits until packets arrive in its file.
    fn start(file: PathBuf, server: &Server) -> Self {
        let port = server.address().port();
        let child = Command::new("dumpcap")
            .args(["-q", "-P", "-i", "lo", "-B", "64", "-f", &format!("tcp port {port}"), "-w"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let capture = Self { child, file, port };
        let started = wait_until(LIMIT, || {
            // A connection, so that there is something to capture.
            drop(TcpStream::connect(server.address()));
            (capture.len() > 100).then_some(())
        });
        assert!(started.is_some(), "nothing is captured; this test needs to be run by root");
        capture
    }

    fn len(&self) -> u64 {
        fs::metadata(&self.file).map_or(0, |file| file.len())
    }

    /// Ends the capture, once it has `count` packets that `filter` shows.
    fn end(mut self, filter: &str, count: usize) -> Packets {
        let packets = Packets { file: self.file.clone(), port: self.port };
        let complete = wait_until(LIMIT, || (packets.shown(filter).len() >= count).then_some(()));
        stop(&mut self.child);
        assert!(complete.is_some(), "{} of {count} packets of {filter} were captured", packets.shown(filter).len());
        packets
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// A capture that has ended.
struct Packets {
    file: PathBuf,
    port: u16,
}

impl Packets {
    fn tshark(&self, arguments: &[&str]) -> String {
        let decode = format!("tcp.port=={},iscsi", self.port);
        let file = self.file.to_str().unwrap();
        let long_segments = "iscsi.bogus_pdu_max_data_len:16777215";
        // Packets that pass on two cores are captured in either order.
        let any_order = "tcp.reassemble_out_of_order:TRUE";
        let common = ["-r", file, "-d", &decode, "-o", long_segments, "-o", any_order];
        // A capture that is still being written may end in half a packet, which makes the exit code a failure.
        run("tshark", [&common[..], arguments].concat()).stdout
    }

    /// One line for each packet that `filter` shows.
    fn shown(&self, filter: &str) -> Vec<String> {
        self.tshark(&["-Y", filter]).lines().map(str::to_owned).collect()
    }

    /// The values of `field` in the packets that `filter` shows.
    fn field(&self, filter: &str, field: &str) -> Vec<String> {
        self.tshark(&["-Y", filter, "-T", "fields", "-e", field]).lines().map(str::to_owned).collect()
    }

    /// All the dissector's output about the PDUs.
    fn details(&self) -> String {
        self.tshark(&["-Y", "iscsi", "-O", "iscsi,scsi"])
    }
}

const LOGOUT_RESPONSE: &str = "iscsi.opcode == 0x26";
const SCSI_RESPONSE: &str = "iscsi.opcode == 0x21";

/// The number of good and bad digests that the dissector has computed again.
fn digests(details: &str) -> (usize, usize) {
    let count = |words: &str| details.lines().filter(|line| line.contains("Digest") && line.contains(words)).count();
    (count("Good CRC32"), count("Bad CRC32"))
}

fn nothing_is_malformed(packets: &Packets) {
    // The dissector complains that the page in an INQUIRY with a short allocation length is cut.
    let bad = packets.shown("(_ws.malformed || _ws.expert.severity == error) && !(scsi_sbc.opcode == 0x12)");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(!packets.details().contains("[Malformed Packet: iSCSI"), "{}", packets.details());
    let lost = packets.shown("tcp.analysis.ack_lost_segment");
    assert!(lost.is_empty(), "the capture is incomplete: {}", lost.join("\n"));
}

#[test]
fn sessions_with_digests_are_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["mem:64M"]);
    let capture = Capture::start(folder.path().join("digests.pcap"), &server);
    let digest_keys = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    let mut initiator = attach(&server, &digest_keys);
    // Reads of odd lengths, writes in one and in many PDUs, sense data.
    for blocks in [1, 7, 64, 128] {
        let data = random_bytes(blocks, blocks as usize * 512);
        initiator.write(0, 100, data.clone()).good();
        assert_eq!(initiator.read(0, 100, blocks as u16).good(), data);
    }
    let inquiry = initiator.command(0, &[0x12, 0, 0, 0, 37, 0], Vec::new(), 37).good();
    assert_eq!(inquiry.len(), 37);
    let groups = initiator.command(0, &[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], Vec::new(), 256).good();
    assert_eq!(groups.len(), 20, "one target port group with one port, behind an extended header");
    let outcome = initiator.command(0, &[0xff; 6], Vec::new(), 0);
    assert!(outcome.status == 2 && !outcome.sense.is_empty(), "{outcome:?}");
    drop(initiator);
    let packets = capture.end(SCSI_RESPONSE, 1);
    nothing_is_malformed(&packets);
    let (good, bad) = digests(&packets.details());
    assert_eq!(bad, 0, "bad digests in {}", packets.details());
    assert!(good > 20, "only {good} digests were checked: {}", packets.details());
    server.stop();
}

#[test]
fn a_session_of_qemu_is_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["mem:4M"]);
    let capture = Capture::start(folder.path().join("qemu.pcap"), &server);
    for digest in ["none", "crc32c"] {
        session_of_qemu(&server, digest, folder.path());
    }
    let packets = capture.end(LOGOUT_RESPONSE, 4);
    nothing_is_malformed(&packets);
    let (good, bad) = digests(&packets.details());
    assert!(bad == 0 && good > 20, "{good} digests are good, {bad} are bad");
    server.stop();
}

const CONFIGURATION: &str = r#"
listen = ["127.0.0.1:0"]

[[target]]
name = "iqn.2026-11.lunette:disk"
session = { error_recovery_level = 2 }
lun = [{ number = 0, disk = "mem:16M" }]
"#;

/// The last request of a login, which goes to the full feature phase.
const LOGIN_REQUEST: &str = "iscsi.opcode == 0x03 && iscsi.login.T == 1 && iscsi.login.nsg == 3";

#[test]
fn a_session_of_four_connections_is_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = folder.path().join("config");
    fs::write(&configuration, CONFIGURATION).unwrap();
    let server = Server::spawn(lunette().args(["serve", "--config"]).arg(&configuration), 1);
    let capture = Capture::start(folder.path().join("four.pcap"), &server);
    let file = folder.path().join("disk");
    fs::write(&file, random_bytes(1, 4 << 20)).unwrap();
    let keys = "error_recovery_level=2&connections=4&header_digest=crc32c&data_digest=crc32c";
    let copied = lunette().arg("cp").arg(&file).arg(format!("{}?{keys}", server.url(0))).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let packets = capture.end(LOGOUT_RESPONSE, 1);
    nothing_is_malformed(&packets);
    let (good, bad) = digests(&packets.details());
    assert!(bad == 0 && good > 20, "{good} digests are good, {bad} are bad");
    let joined = packets.field(LOGIN_REQUEST, "iscsi.cid").len();
    assert_eq!(joined, 4, "connections that logged in");
    let mut wrote = packets.field("iscsi.scsicommand.W == 1", "tcp.stream");
    wrote.sort_unstable();
    wrote.dedup();
    assert_eq!(wrote.len(), 4, "connections that brought writes");
    server.stop();
}

fn session_of_qemu(server: &Server, digest: &str, folder: &Path) {
    let (portal, original, copy) = (server.address(), folder.join("original"), folder.join("copy"));
    fs::write(&original, random_bytes(1, 4 << 20)).unwrap();
    let image =
        format!("driver=iscsi,transport=tcp,portal={portal},target={DEFAULT_TARGET},lun=0,header-digest={digest}");
    let (original, copy) = (original.to_str().unwrap(), copy.to_str().unwrap());
    run("qemu-img", ["convert", "-n", "--target-image-opts", original, &image]).succeeded();
    run("qemu-img", ["convert", "--image-opts", "-O", "raw", &image, copy]).succeeded();
    run("cmp", [original, copy]).succeeded();
}
