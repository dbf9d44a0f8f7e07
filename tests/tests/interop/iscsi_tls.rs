//! iSCSI within TLS: portals that speak nothing else, certificates as identities, and peers that are not ours.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_initiator::{Disk, Initiator, Url, wait};
use lunette_tests::{Configured, Ran, Server, lunette, run_at_most, stop, wait_until};

const LIMIT: Duration = Duration::from_mins(1);

/// Sessions whose memory is compared, and the memory that TLS may add to one of them.
const IDLE_SESSIONS: usize = 200;
const MAX_IDLE_KIB: usize = 24;

/// The name in the certificate of `db1`, and the one that the client has without an option.
const IQN: &str = "iqn.2026-11.org.example:db1";

/// Two portals, of which the second speaks TLS, and a target for `db1` beside one for all.
const TEXT: &str = r#"
listen = ["127.0.0.1:0"]
[[portal]]
address = "127.0.0.1:0"
group = 2
tls = "@/ca/gw1"
[[target]]
name = "iqn.2026-11.org.example:own"
lun = [{ number = 0, disk = "mem:16M" }]
[[target.host]]
name = "db1"
certificates = ["db1.example.org"]
[[target]]
name = "iqn.2026-11.org.example:all"
lun = [{ number = 0, disk = "mem:16M" }]
"#;

struct Place {
    configured: Configured,
    server: Server,
    /// The address that speaks TLS.
    secure: SocketAddr,
}

fn tls(arguments: &[&str]) -> Ran {
    run_at_most(LIMIT, lunette().arg("tls").args(arguments))
}

/// The last address that a server listens at.
fn secure_address(server: &Server) -> SocketAddr {
    server.await_log("listening on", 1);
    let log = server.log();
    let listening = log.lines().find(|line| line.contains("listening on")).expect("it says where it listens");
    listening.rsplit(", ").next().and_then(|address| address.trim().parse().ok()).expect("an address")
}

impl Place {
    fn new() -> Self {
        let configured = Configured::new();
        let ca = configured.file("ca").display().to_string();
        tls(&["ca", &ca]).succeeded();
        tls(&["issue", &ca, "gw1", "--host", "localhost,127.0.0.1"]).succeeded();
        tls(&["issue", &ca, "db1", "--name", IQN, "--dns", "db1.example.org"]).succeeded();
        tls(&["issue", &ca, "db2", "--dns", "db2.example.org"]).succeeded();
        let server = configured.start(TEXT, 2);
        Self { secure: secure_address(&server), configured, server }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.configured.file("ca").join(name)
    }

    fn url(&self, target: &str, client: &str, more: &str) -> String {
        let folder = self.folder(client);
        format!("iscsis://{}/iqn.2026-11.org.example:{target}/0?tls={}{more}", self.secure, folder.display())
    }

    fn info(&self, target: &str, client: &str, more: &str) -> Ran {
        run_at_most(LIMIT, lunette().args(["info", &self.url(target, client, more)]))
    }
}

#[test]
fn a_certificate_is_the_identity_that_a_host_asks_for() {
    let place = Place::new();
    let named = format!("&initiator={IQN}");
    place.info("own", "db1", &named).succeeded();
    // Another certificate, the name of another node, no certificate, and no TLS.
    assert!(place.info("own", "db2", "").failed().contains("may not use this target"));
    assert!(place.info("own", "db1", "&initiator=iqn.2026-11.org.example:x").failed().contains("may not use"));
    assert!(place.info("own", "", &named).failed().contains("may not use this target"));
    let plain = format!("iscsi://{}/iqn.2026-11.org.example:own/0?initiator={IQN}", place.server.address());
    assert!(run_at_most(LIMIT, lunette().args(["info", &plain])).failed().contains("may not use this target"));
    place.info("all", "db2", "").succeeded();
    let log = place.server.stop();
    assert!(log.contains(&format!("certificate=\"{IQN}\"")), "{log}");
}

#[test]
fn discovery_tells_of_portals_of_the_own_kind_alone() {
    let place = Place::new();
    let ls = |url: &str| run_at_most(LIMIT, lunette().args(["ls", url])).succeeded().to_owned();
    let plain = place.server.address();
    let open = ls(&format!("iscsi://{plain}"));
    assert!(open.contains(&format!("{plain},1")) && !open.contains(":own"), "{open}");
    let found = ls(&format!("iscsis://{}?tls={}&initiator={IQN}", place.secure, place.folder("db1").display()));
    assert!(found.contains(":own") && found.contains(":all") && !found.contains(&plain.to_string()), "{found}");
    let theirs = run_at_most(LIMIT, Command::new("iscsi-ls").arg(format!("iscsi://{plain}")));
    assert!(theirs.succeeded().contains(&format!("{plain},1")), "{theirs}");
}

#[test]
fn a_client_trusts_the_right_server_alone() {
    let place = Place::new();
    let fingerprint = tls(&["fingerprint", place.folder("gw1").join("server-cert.pem").to_str().unwrap()]);
    let pinned = |pin: &str| {
        let url = format!("iscsis://{}/iqn.2026-11.org.example:all/0?tls_pin={pin}", place.secure);
        run_at_most(LIMIT, lunette().args(["info", &url]))
    };
    pinned(fingerprint.succeeded().trim()).succeeded();
    assert!(pinned(&format!("sha256:{:064}", 0)).failed().contains("TLS: invalid peer certificate"));
    assert!(place.info("all", "db1", "&tls_name=other.example").failed().contains("other.example"));
    let other = place.configured.file("other").display().to_string();
    tls(&["ca", &other]).succeeded();
    let url = format!("iscsis://{}/iqn.2026-11.org.example:all/0?tls={other}", place.secure);
    let ran = run_at_most(LIMIT, lunette().args(["info", &url]));
    assert!(ran.failed().contains("UnknownIssuer") && ran.failed().contains("tls=DIR"), "{ran}");
    let plain = place.url("all", "db1", "").replace(&place.secure.to_string(), &place.server.address().to_string());
    assert!(run_at_most(LIMIT, lunette().args(["info", &plain])).failed().contains("one that does not by iscsi://"));
}

#[test]
fn plain_text_gets_no_word_of_iscsi() {
    let place = Place::new();
    let url = format!("iscsi://{}/iqn.2026-11.org.example:all/0", place.secure);
    assert!(run_at_most(LIMIT, lunette().args(["info", &url])).failed().contains("iscsis://"));
    // A login request whose text names an initiator.
    let mut stream = TcpStream::connect(place.secure).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut login = [0; 48];
    (login[0], login[1]) = (0x43, 0x87);
    stream.write_all(&login).unwrap();
    let mut answer = Vec::new();
    // It may end with a reset.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() <= 7, "an alert at most: {answer:?}");
    place.server.await_log("connection refused", 1);
}

#[test]
fn openssl_agrees_on_the_newest_version_and_no_older_one() {
    let place = Place::new();
    let openssl = |more: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &place.secure.to_string(), "-alpn", "iscsi", "-CAfile"]);
        command.arg(place.folder("ca-cert.pem")).args(more).stdin(Stdio::null());
        run_at_most(LIMIT, &mut command)
    };
    let said = openssl(&[]).to_string();
    for part in
        ["TLSv1.3", "ALPN protocol: iscsi", "Verify return code: 0 (ok)", "Acceptable client certificate CA names"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(openssl(&["-tls1_2"]).failed().contains("alert"));
}

/// Sessions of as many disks, which have been used and say nothing any more.
fn idle_sessions(initiator: &Initiator, url: &str) -> Vec<Disk> {
    let url = Url::parse(url).unwrap();
    let options = url.options().unwrap();
    let open = || wait(Disk::of_url(initiator, &url, options.clone())).ok();
    // An address begins handshakes at a bounded rate.
    (0..IDLE_SESSIONS).map(|_| wait_until(LIMIT, open).expect("a session")).collect()
}

#[test]
fn an_idle_session_within_tls_takes_little_memory() {
    let place = Place::new();
    let plain = place.server.urls().iter().find(|url| url.contains(":all/")).expect("a target for all");
    let initiator = Initiator::start().unwrap();
    let (memory_kib, mut before_kib) = (|| place.server.memory_kib(), place.server.memory_kib());
    let [plain_kib, protected_kib] = [plain.clone(), place.url("all", "db2", "")].map(|url| {
        let sessions = idle_sessions(&initiator, &url);
        let added_kib = memory_kib().saturating_sub(before_kib);
        before_kib = memory_kib();
        (sessions, added_kib)
    });
    let each_kib = protected_kib.1.saturating_sub(plain_kib.1) as usize / IDLE_SESSIONS;
    println!("{each_kib} KiB more for each idle session within TLS");
    assert!(each_kib <= MAX_IDLE_KIB, "{each_kib} KiB");
    place.server.stop();
}

#[test]
fn a_folder_of_certificates_can_be_a_credential_of_systemd() {
    let place = Place::new();
    let credentials = tempfile::tempdir().unwrap();
    for file in ["server-cert.pem", "server-key.pem", "ca-cert.pem", "ca-crl.pem"] {
        fs::copy(place.folder("gw1").join(file), credentials.path().join(format!("tls_{file}"))).unwrap();
    }
    let config = credentials.path().join("config");
    fs::write(&config, TEXT.replace("@/ca/gw1", "credential:tls")).unwrap();
    let mut command = lunette();
    command.env("CREDENTIALS_DIRECTORY", credentials.path()).args(["serve", "--config"]).arg(&config);
    let server = Server::spawn(command, 2);
    let secure = secure_address(&server);
    let folder = place.folder("db1");
    let url = format!("iscsis://{secure}/iqn.2026-11.org.example:own/0?tls={}&initiator={IQN}", folder.display());
    run_at_most(LIMIT, lunette().args(["info", &url])).succeeded();
    server.stop();
    place.server.stop();
}

#[test]
fn stunnel_carries_libiscsi() {
    let place = Place::new();
    // An address of this test alone, for a port that was free may be another's by now.
    let free = "127.86.0.1:3260";
    let folder = place.folder("db1");
    let text = format!(
        "foreground = yes\npid =\n[iscsi]\nclient = yes\naccept = {free}\nconnect = {}\nCAfile = {ca}/ca-cert.pem\n\
         verifyChain = yes\ncheckIP = 127.0.0.1\ncert = {ca}/client-cert.pem\nkey = {ca}/client-key.pem\n",
        place.secure,
        ca = folder.display()
    );
    fs::write(place.configured.file("stunnel.conf"), text).unwrap();
    let mut stunnel =
        Command::new("stunnel4").arg(place.configured.file("stunnel.conf")).stderr(Stdio::null()).spawn().unwrap();
    wait_until(LIMIT, || TcpStream::connect(free).ok()).expect("stunnel listens");
    let url = format!("iscsi://{free}/iqn.2026-11.org.example:own/0");
    let ran = run_at_most(LIMIT, Command::new("iscsi-inq").args(["-i", IQN]).arg(&url));
    stop(&mut stunnel);
    assert!(ran.succeeded().contains("LUNETTE"), "{ran}");
}

#[test]
fn many_connections_and_digests_move_data_within_tls() {
    let place = Place::new();
    for more in ["", "&connections=8&error_recovery_level=2", "&header_digest=crc32c&data_digest=crc32c"] {
        let url = place.url("all", "db2", more);
        let bench = ["bench", &url, "--rw", "verify", "--time", "1", "--bs", "64K"];
        run_at_most(LIMIT, lunette().args(bench)).succeeded();
    }
}

#[test]
fn a_renewed_certificate_serves_the_next_connection_and_a_revoked_client_is_out() {
    let place = Place::new();
    let ca = place.configured.file("ca").display().to_string();
    let served = || {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &place.secure.to_string(), "-alpn", "iscsi"]).stdin(Stdio::null());
        let said = run_at_most(LIMIT, &mut command).to_string();
        let begin = said.find("-----BEGIN").expect("a certificate");
        said[begin..said.find("-----END").unwrap()].to_owned()
    };
    let first = served();
    let named = format!("&initiator={IQN}");
    place.info("own", "db1", &named).succeeded();
    tls(&["renew", &ca, "gw1"]).succeeded();
    tls(&["revoke", &ca, "db1"]).succeeded();
    let log = place.configured.change(&place.server, TEXT);
    assert!(log.contains("the certificates were read again"), "{log}");
    assert_ne!(served(), first);
    place.info("all", "db2", "").succeeded();
    let ran = place.info("own", "db1", &named);
    // certificate_revoked (RFC 8446 section 6), unless the end of the connection has overtaken it.
    assert!(ran.failed().contains("alert 44") || ran.failed().contains("lost"), "{ran}");
    place.server.await_log("invalid peer certificate: Revoked", 1);
}
