//! Hosts: rules for some initiators, and what they see.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use lunette_pdu::{AsyncEvent, LoginStatus, TargetPdu};
use lunette_testkit::{Outcome, ScriptedInitiator, Sense};
use lunette_tests::{Configured, NAME, attach, chap_login, log_in, login_request, run};

const TARGET: &str = "iqn.2026-11.org.example:a";
const LIMIT: Duration = Duration::from_secs(20);
const BLOCK: usize = 512;

const NEW: Sense = Outcome::POWER_ON;
const LUNS_CHANGED: Sense = (6, 0x3f, 0x0e);
const MODE_CHANGED: Sense = (6, 0x2a, 0x01);
const NOT_SUPPORTED: Sense = (5, 0x25, 0);
const WRITE_PROTECTED: Sense = (7, 0x27, 0);

/// A target with LUNs 0 and 1, of 1 and 2 MiB, at one more address beside that of the tests.
fn config(beside: Option<SocketAddr>, hosts: &str) -> String {
    let beside = beside.map_or(String::new(), |address| format!(", \"{address}\""));
    format!(
        "listen = [\"127.0.0.1:0\"{beside}]\n[[target]]\nname = \"{TARGET}\"\nalias = \"a disk\"\n\
         lun = [{{ number = 0, disk = \"mem:1M\" }}, {{ number = 1, disk = \"mem:2M\" }}]\n{hosts}"
    )
}

/// The blocks of a LUN, by READ CAPACITY(10).
fn blocks(initiator: &mut ScriptedInitiator, lun: u16) -> usize {
    let data = initiator.command(lun, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], Vec::new(), 8).good();
    u32::from_be_bytes(data[..4].try_into().unwrap()) as usize + 1
}

fn write(initiator: &mut ScriptedInitiator, lun: u16) -> Outcome {
    initiator.write(lun, 0, vec![7; BLOCK])
}

#[test]
fn hosts_see_their_disks_and_others_see_no_target() {
    let other_address = TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap();
    let hosts = format!(
        "[[target.host]]\nname = \"db\"\ninitiators = [\"{NAME}\"]\nlun = [{{ number = 1, as = 0 }}]\n\
         [[target.host]]\nname = \"guests\"\nnetworks = [\"::1\"]\nread_only = true"
    );
    let (_place, server) = Configured::serve(&config(Some(other_address), &hosts), 2);
    let mut db = attach(&server, &[]);
    assert_eq!(blocks(&mut db, 0) * BLOCK, 2 << 20);
    assert_eq!(db.test_unit_ready(1).sense(), NOT_SUPPORTED);
    write(&mut db, 0).good();

    // libiscsi's view: by the name of the host, from the network of guests, and by another name from here.
    let other = "iqn.2026-11.org.example:other";
    let inquiry = |name: &str, address: SocketAddr, lun: u16| {
        run("iscsi-inq", ["-i", name, &format!("iscsi://{address}/{TARGET}/{lun}")])
    };
    let targets = |name: &str, address: SocketAddr| run("iscsi-ls", ["-i", name, &format!("iscsi://{address}")]);
    inquiry(NAME, server.address(), 0).succeeded();
    inquiry(other, other_address, 1).succeeded();
    inquiry(other, server.address(), 0).failed();
    assert!(targets(other, other_address).succeeded().contains(TARGET));
    assert!(!targets(other, server.address()).succeeded().contains(TARGET));

    let mut guest = ScriptedInitiator::connect(other_address);
    let names = [("InitiatorName", "iqn.2026-11.org.example:guest"), ("TargetName", TARGET)];
    let (csg, nsg) = (lunette_pdu::Stage::LoginOperationalNegotiation, lunette_pdu::Stage::FullFeaturePhase);
    assert_eq!(guest.login_step(csg, Some(nsg), &names).unwrap().0.status, LoginStatus::SUCCESS);
    assert_eq!(guest.test_unit_ready(1).sense(), NEW);
    assert_eq!(write(&mut guest, 1).sense(), WRITE_PROTECTED);
    assert_eq!(guest.read(1, 0, 1).good(), [7; BLOCK]);
    server.stop();
}

#[test]
fn a_host_is_told_when_it_sees_something_else_and_leaves_when_it_is_removed() {
    let host =
        |rules: &str| config(None, &format!("[[target.host]]\nname = \"db\"\ninitiators = [\"{NAME}\"]\n{rules}"));
    let (place, server) = Configured::serve(&host("lun = [{ number = 0 }]"), 2);
    let mut initiator = attach(&server, &[]);
    let log = place.change(&server, &host("lun = [{ number = 0 }, { number = 1, as = 7 }]"));
    assert!(log.contains("host db changed"), "{log}");
    assert_eq!(initiator.news().1, LUNS_CHANGED);
    assert_eq!(initiator.test_unit_ready(0).sense(), LUNS_CHANGED);
    assert_eq!(initiator.test_unit_ready(7).sense(), NEW);
    write(&mut initiator, 7).good();

    place.change(&server, &host("lun = [{ number = 0 }, { number = 1, as = 7, read_only = true }]"));
    initiator.news();
    assert_eq!(initiator.test_unit_ready(7).sense(), MODE_CHANGED);
    assert_eq!(write(&mut initiator, 7).sense(), WRITE_PROTECTED);
    write(&mut initiator, 0).good();

    let log = place.change(&server, &config(None, "allow = []"));
    assert!(log.contains("host db removed"), "{log}");
    let before_end = initiator.wait_for_end_within(LIMIT);
    assert!(
        matches!(before_end[..], [(TargetPdu::AsyncMessage(message), _)] if message.event == AsyncEvent::LOGOUT_REQUEST),
        "{before_end:?}"
    );
    assert!(log_in(&server, &[]).is_err(), "no initiator is let in");
    server.stop();
}

#[test]
fn a_user_belongs_to_its_host() {
    let host = |name: &str, initiator: &str, user: &str| {
        format!(
            "[[target.host]]\nname = \"{name}\"\ninitiators = [\"{initiator}\"]\n\
             chap = [{{ user = \"{user}\", secret_file = \"@/{user}\" }}]\n"
        )
    };
    let both = [host("one", NAME, "alice"), host("two", "iqn.2026-11.org.example:two", "bob")].concat();
    let place = Configured::new();
    fs::write(place.file("alice"), "secret of alice").unwrap();
    fs::write(place.file("bob"), "the secret of bob").unwrap();
    let server = place.start(&config(None, &both), 2);
    let status = |user: &str, secret: &str| {
        let mut initiator = ScriptedInitiator::connect(&server);
        chap_login(&mut initiator, TARGET, (user, secret), &[]).unwrap().status
    };
    assert_eq!(status("alice", "secret of alice"), LoginStatus::SUCCESS);
    assert_eq!(status("bob", "the secret of bob"), LoginStatus::AUTHENTICATION_FAILURE);
    let mut without_proof = ScriptedInitiator::connect(&server);
    let (response, _) = login_request(&mut without_proof, &[("TargetName", TARGET)]).unwrap();
    assert_eq!(response.status, LoginStatus::AUTHENTICATION_FAILURE);
    fs::write(place.file("alice"), "another of alice").unwrap();
    let log = place.change(&server, &config(None, &both));
    assert!(log.contains("secrets changed"), "{log}");
    assert_eq!(status("alice", "secret of alice"), LoginStatus::AUTHENTICATION_FAILURE);
    assert_eq!(status("alice", "another of alice"), LoginStatus::SUCCESS);
    server.stop();
}
