//! CHAP as libiscsi does it: one-way and mutual, right and wrong.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lunette_pdu::{Cid, LoginStatus, TargetPdu, Tsih};
use lunette_testkit::ScriptedInitiator;
use lunette_tests::{DEFAULT_TARGET, Ran, Server, chap_login, lunette, random_bytes, run, run_at_most};
use tempfile::TempDir;

const SECRET: &str = "secret-of-user";
/// The longest wait for the end of a connection that is replaced.
const LIMIT: Duration = Duration::from_secs(10);

const TARGET_SECRET: &str = "secret-of-target";

/// Files with the secrets. A line end after a secret does not belong to it.
fn secrets() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("user"), format!("{SECRET}\n")).unwrap();
    fs::write(folder.path().join("target"), TARGET_SECRET).unwrap();
    folder
}

fn server(secrets: &Path, mutual: bool) -> Server {
    let chap = format!("user:{}", secrets.join("user").display());
    let mutual_chap = format!("target:{}", secrets.join("target").display());
    let one_way = ["mem:16M", "--chap", &chap];
    if mutual {
        Server::start(&[&one_way[..], &["--mutual-chap", &mutual_chap]].concat())
    } else {
        Server::start(&one_way)
    }
}

fn read_capacity(server: &Server, credentials: &str, parameters: &str) -> Ran {
    run("iscsi-readcapacity16", [server.url_with(credentials, parameters)])
}

/// Asserts that wrong credentials give their own error, and do the server no harm.
fn refused(server: &Server, credentials: &str, parameters: &str) {
    let ran = read_capacity(server, credentials, parameters);
    assert!(!ran.failed().contains("Total size"), "{ran}");
}

#[test]
fn the_right_password_opens_the_disk_and_others_do_not() {
    let secrets = secrets();
    let server = server(secrets.path(), false);
    read_capacity(&server, &format!("user%{SECRET}@"), "").succeeded();
    refused(&server, "user%wrong-password@", "");
    refused(&server, &format!("nobody%{SECRET}@"), "");
    refused(&server, "", "");
    // The line end of the file is not part of the secret.
    refused(&server, &format!("user%{SECRET}%0a@"), "");
    read_capacity(&server, &format!("user%{SECRET}@"), "").succeeded();

    let log = server.stop();
    assert!(!log.contains(SECRET), "a secret is in the log:\n{log}");
    assert!(!log.contains("wrong-password"), "a password is in the log:\n{log}");
}

#[test]
fn the_target_proves_itself_when_it_is_asked() {
    let secrets = secrets();
    let server = server(secrets.path(), true);
    let user = format!("user%{SECRET}@");
    let mutual = |name: &str, secret: &str| format!("?target_user={name}&target_password={secret}");
    read_capacity(&server, &user, &mutual("target", TARGET_SECRET)).succeeded();
    refused(&server, &user, &mutual("target", "another-secret"));
    refused(&server, &user, &mutual("impostor", TARGET_SECRET));
    // An initiator that does not ask for proof is served all the same.
    read_capacity(&server, &user, "").succeeded();
    let log = server.stop();
    assert!(!log.contains(TARGET_SECRET), "a secret is in the log:\n{log}");
}

#[test]
fn a_target_without_a_secret_of_its_own_cannot_prove_itself() {
    let secrets = secrets();
    let server = server(secrets.path(), false);
    refused(&server, &format!("user%{SECRET}@"), &format!("?target_user=target&target_password={TARGET_SECRET}"));
    server.stop();
}

#[test]
fn initiators_that_are_not_admitted_are_refused() {
    let server = Server::start(&["mem:16M", "--allow", "iqn.2026-11.org.example:host"]);
    let inquiry = |initiator: &str| run("iscsi-inq", ["-i", initiator, server.url(0)]);
    inquiry("iqn.2026-11.org.example:host").succeeded();
    inquiry("iqn.2026-11.org.example:other").failed();
    let list = |initiator: &str| run("iscsi-ls", ["-i", initiator, &server.portal_url()]);
    assert!(list("iqn.2026-11.org.example:host").succeeded().contains("Target:"));
    assert!(!list("iqn.2026-11.org.example:other").stdout.contains("Target:"), "a target is shown to a stranger");
    server.stop();
}

/// A connection that authenticates as `user`, with the shared secret, and otherwise takes the identity of `like`.
fn connection(
    server: &Server,
    user: &str,
    like: Option<&ScriptedInitiator>,
    tsih: Tsih,
    cid: u16,
) -> (ScriptedInitiator, LoginStatus) {
    let mut initiator = ScriptedInitiator::connect(server.address());
    (initiator.tsih, initiator.cid) = (tsih, Cid(cid));
    if let Some(like) = like {
        initiator.isid = like.isid;
    }
    let keys: &[(&str, &str)] = if tsih == Tsih::NEW { &[("MaxConnections", "2")] } else { &[] };
    let response = chap_login(&mut initiator, DEFAULT_TARGET, (user, &format!("secret-of-{user}")), keys).unwrap();
    (initiator, response.status)
}

#[test]
fn a_session_belongs_to_the_user_that_began_it() {
    let folder = tempfile::tempdir().unwrap();
    let users = ["alice", "bob"].map(|user| {
        let path = folder.path().join(user);
        fs::write(&path, format!("secret-of-{user}")).unwrap();
        format!("{user}:{}", path.display())
    });
    for cores in ["1", "2"] {
        let server = Server::start(&[
            "mem:16M",
            "--chap",
            &users[0],
            "--chap",
            &users[1],
            "--max-connections",
            "2",
            "--cores",
            cores,
        ]);
        let (mut alice, status) = connection(&server, "alice", None, Tsih::NEW, 0);
        assert!(status.is_success(), "{status}");
        alice.command(0, &[0; 6], Vec::new(), 0);
        let data = random_bytes(9, 65_536);
        // The target waits for the data of this write.
        let write = alice.start_write(0, 0, data.clone(), 0);
        let (pdu, _) = alice.receive().unwrap();
        let TargetPdu::R2t(r2t) = pdu else { panic!("{pdu:?}") };

        for (tsih, cid, expected) in [
            (alice.tsih, 0, LoginStatus::SESSION_DOES_NOT_EXIST),
            (alice.tsih, 1, LoginStatus::SESSION_DOES_NOT_EXIST),
            (Tsih::NEW, 0, LoginStatus::AUTHORIZATION_FAILURE),
        ] {
            let (_, status) = connection(&server, "bob", Some(&alice), tsih, cid);
            assert_eq!(status, expected, "connection {cid} of session {tsih:?}");
        }

        alice.answer_r2t(&r2t);
        alice.finish(write).good();
        assert_eq!(alice.read(0, 0, 128).good(), data);
        let (second, status) = connection(&server, "alice", Some(&alice), alice.tsih, 1);
        assert!(status.is_success(), "{status}");
        let (mut again, status) = connection(&server, "alice", Some(&alice), Tsih::NEW, 0);
        assert!(status.is_success(), "{status}");
        again.command(0, &[0; 6], Vec::new(), 0);
        assert_eq!(again.read(0, 0, 128).good(), data);
        // Bob gets his own session.
        let (bob, status) = connection(&server, "bob", None, Tsih::NEW, 0);
        assert!(status.is_success(), "{status}");
        drop((alice, second, again, bob));
        server.stop();
    }
}

/// All versions of libiscsi offer MD5, some alone.
#[test]
fn an_initiator_gets_in_by_an_algorithm_that_its_target_allows() {
    let folder = secrets();
    let config = folder.path().join("config");
    let user = folder.path().join("user").display().to_string();
    let write = |algorithms: &str| {
        let chap = format!("chap = [{{ user = \"user\", secret_file = \"{user}\" }}]\n{algorithms}");
        let target = format!("[[target]]\nname = \"{DEFAULT_TARGET}\"\n{chap}\n");
        let lun = "lun = [{ number = 0, disk = \"mem:16M\" }]";
        fs::write(&config, format!("listen = [\"127.0.0.1:0\"]\n{target}{lun}\n")).unwrap();
    };
    write("chap_algorithms = [\"sha256\", \"md5\"]");
    let server = Server::spawn(lunette().args(["serve", "--config"]).arg(&config), 1);
    let credentials = format!("user%{SECRET}@");
    let info =
        |parameters: &str| run_at_most(LIMIT, lunette().args(["info", &server.url_with(&credentials, parameters)]));
    read_capacity(&server, &credentials, "").succeeded();
    info("").succeeded();
    info("?chap_algorithms=md5").succeeded();
    assert!(info("?chap_algorithms=sha1,sha3-256").failed().contains("authentication"));

    write("chap_algorithms = [\"sha3-256\"]");
    let told = server.hang_up(&["changes applied"]);
    assert!(told.contains("chap_algorithms changed"), "{told}");
    info("").succeeded();
    assert!(info("?chap_algorithms=md5,sha1").failed().contains("authentication"));

    let log = server.stop();
    for part in ["chap_algorithm=\"sha256\"", "chap_algorithm=\"md5\"", "chap_algorithm=\"sha3-256\""] {
        assert!(log.contains(part), "{part}:\n{log}");
    }
    for part in
        ["offers sha3-256, sha1 of", "chap_algorithms allows sha256, md5", "offers sha1, md5 of", "allows sha3-256;"]
    {
        assert!(log.contains(part), "{part}:\n{log}");
    }
    assert!(!log.contains(SECRET), "a secret is in the log:\n{log}");
}

#[test]
fn the_session_of_a_user_that_is_no_longer_admitted_may_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    let secret_file = |user: &str| folder.path().join(user).display().to_string();
    let write = |user: &str| {
        fs::write(folder.path().join(user), format!("secret-of-{user}")).unwrap();
        let chap = format!("chap = [{{ user = \"{user}\", secret_file = \"{}\" }}]", secret_file(user));
        let target = format!("[[target]]\nname = \"{DEFAULT_TARGET}\"\n{chap}\nmax_connections = 2\n");
        let lun = "lun = [{ number = 0, disk = \"mem:16M\" }]";
        fs::write(&config, format!("listen = [\"127.0.0.1:0\"]\n{target}{lun}\n")).unwrap();
    };
    write("alice");
    let server = Server::spawn(lunette().args(["serve", "--config"]).arg(&config), 1);
    let (mut alice, status) = connection(&server, "alice", None, Tsih::NEW, 0);
    assert!(status.is_success(), "{status}");

    write("bob");
    server.hang_up(&["changes applied"]);
    let (_, status) = connection(&server, "bob", Some(&alice), alice.tsih, 1);
    assert_eq!(status, LoginStatus::SESSION_DOES_NOT_EXIST);
    // Alice's session continues until its initiator port is taken.
    alice.command(0, &[0; 6], Vec::new(), 0);
    alice.write(0, 0, vec![0x61; 512]).good();
    let (mut bob, status) = connection(&server, "bob", Some(&alice), Tsih::NEW, 0);
    assert!(status.is_success(), "{status}");
    alice.wait_for_end_within(LIMIT);
    bob.command(0, &[0; 6], Vec::new(), 0);
    assert_eq!(bob.read(0, 0, 1).good(), vec![0x61; 512]);
    drop(bob);
    server.stop();
}
