//! The log of a server on logins, as lines and as fields of the journal, and the secrets that it never tells.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use lunette_tests::{DEFAULT_TARGET, Server, lunette, run};

const SECRET: &str = "secret-of-user";
const WRONG: &str = "another-secret-of-user";
const INITIATOR: &str = "iqn.2026-11.test:logged";

/// The longest wait for an entry of the journal.
const LIMIT: Duration = Duration::from_secs(30);

/// Logs in with each of the secrets.
fn log_in(server: &Server, secrets: &[&str]) {
    for secret in secrets {
        run("iscsi-readcapacity16", ["-i", INITIATOR, &server.url_with(&format!("user%{secret}@"), "")]);
    }
}

#[test]
fn a_login_is_told_with_its_names_and_keys_and_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("user");
    fs::write(&secret, SECRET).unwrap();
    let chap = format!("user:{}", secret.display());
    let serve = ["serve", "--listen", "127.0.0.1:0", "mem:16M", "--chap", &chap];
    let server = Server::spawn(lunette().args(serve).env("RUST_LOG", "trace"), 1);
    log_in(&server, &[SECRET, WRONG]);
    server.await_log("login failed", 1);
    let log = server.stop();
    let line = |text: &str| log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}\n{log}"));
    let succeeded = line("logged in");
    for field in [INITIATOR, DEFAULT_TARGET, "chap_user=", "header_digest=", "max_burst_bytes=262144", "took_ms="] {
        assert!(succeeded.contains(field), "{field} is not in {succeeded}");
    }
    let failed = line("login failed");
    for field in [INITIATOR, DEFAULT_TARGET, "reason="] {
        assert!(failed.contains(field), "{field} is not in {failed}");
    }
    assert!(!log.contains(SECRET), "a secret is in the log:\n{log}");
}

/// Gives a server a journal of the test's own, below a mount of its own.
const WITH_JOURNAL: &str = "mount -t tmpfs journal /run && mkdir -p /run/systemd/journal && \
    mount --bind \"$0\" /run/systemd/journal && JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec \"$@\"";

/// The fields of an entry (systemd's JOURNAL_NATIVE_PROTOCOL).
fn fields(mut entry: &[u8]) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut fields = BTreeMap::new();
    while let Some(end) = entry.iter().position(|byte| *byte == b'\n') {
        let (line, rest) = (&entry[..end], &entry[end + 1..]);
        if let Some(at) = line.iter().position(|byte| *byte == b'=') {
            fields.insert(text(&line[..at]), text(&line[at + 1..]));
            entry = rest;
        } else {
            let (len, rest) = rest.split_at(8);
            let (value, rest) = rest.split_at(u64::from_le_bytes(len.try_into().unwrap()) as usize);
            fields.insert(text(line), text(value));
            entry = &rest[1..];
        }
    }
    fields
}

/// Needs root, for the mount.
#[test]
fn the_journal_gets_fields_to_filter_by() {
    let folder = tempfile::tempdir().unwrap();
    let journal = UnixDatagram::bind(folder.path().join("socket")).unwrap();
    journal.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", WITH_JOURNAL]).arg(folder.path()).arg(lunette().get_program());
    let server = Server::spawn(command.args(["serve", "--listen", "127.0.0.1:0", "mem:16M"]), 1);
    log_in(&server, &[SECRET]);
    let mut bytes = vec![0; 1 << 16];
    let login = loop {
        let len = journal.recv(&mut bytes).expect("an entry for the login");
        let entry = fields(&bytes[..len]);
        // The first one is empty: whether the journal is there.
        if entry.get("MESSAGE").is_some_and(|message| message == "logged in") {
            break entry;
        }
    };
    for (field, value) in [
        ("SYSLOG_IDENTIFIER", "lunette"),
        ("LUNETTE_INITIATOR", INITIATOR),
        ("LUNETTE_TARGET", DEFAULT_TARGET),
        ("LUNETTE_ERROR_RECOVERY_LEVEL", "0"),
    ] {
        assert_eq!(login.get(field).map(String::as_str), Some(value), "{field} of {login:?}");
    }
    let log = server.stop();
    assert!(!log.contains("logged in"), "the journal has it, and gets no line: {log}");
}
