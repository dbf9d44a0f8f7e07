//! Two portals, two target port groups: asymmetric access as two sessions see it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use lunette_testkit::{Outcome, ScriptedInitiator};
use lunette_tests::{Server, login_request, lunette, run};

const TARGET: &str = "iqn.2026-11.org.example:paths";
const REPORT: [u8; 12] = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];

/// Starts a server with a portal in each of two portal groups. The second is unavailable at first.
fn serve(folder: &Path, management: &str) -> Server {
    let file = folder.join("lunette.toml");
    let state = folder.join("state");
    let text = format!(
        r#"
        state = "{}"
        portal = [{{ address = "127.0.0.1:0", group = 1 }}, {{ address = "127.0.0.2:0", group = 2 }}]

        [[target]]
        name = "{TARGET}"
        lun = [{{ number = 0, disk = "mem:16M" }}]
        access = {{ management = "{management}" }}

        [[target.port_group]]
        id = 1
        preferred = true

        [[target.port_group]]
        id = 2
        state = "standby"
        "#,
        state.display()
    );
    fs::write(&file, text).unwrap();
    Server::spawn(lunette().arg("serve").arg("--config").arg(&file), 1)
}

/// The portal of a portal group, as discovery reports it.
fn portal(server: &Server, group: u16) -> SocketAddr {
    let list = run("iscsi-ls", [server.portal_url()]);
    let (end, start) = (format!(",{group}"), format!("Target:{TARGET} Portal:"));
    let mut lines = list.succeeded().lines().filter_map(|line| line.trim().strip_prefix(&start)?.strip_suffix(&end));
    lines.next_back().unwrap_or_else(|| panic!("no portal of group {group} in {list}")).parse().unwrap()
}

/// A session through the portal group, which has taken its first unit attention.
fn session(server: &Server, group: u16) -> ScriptedInitiator {
    let mut initiator = ScriptedInitiator::connect(portal(server, group));
    let (_, answer) = login_request(&mut initiator, &[("SessionType", "Normal"), ("TargetName", TARGET)]).unwrap();
    assert!(answer.contains(&format!("TargetPortalGroupTag={group}\0")), "{answer:?}");
    initiator.command(0, &[0; 6], Vec::new(), 0);
    initiator
}

/// Sense key, additional sense code and qualifier.
fn sense(outcome: &Outcome) -> [u8; 3] {
    assert_eq!(outcome.status, 2, "{outcome:02x?}");
    [outcome.sense[2], outcome.sense[12], outcome.sense[13]]
}

fn ready(initiator: &mut ScriptedInitiator) -> Outcome {
    initiator.command(0, &[0; 6], Vec::new(), 0)
}

/// The group number and state of each group that one port reports.
fn report(initiator: &mut ScriptedInitiator) -> Vec<(u8, u8)> {
    let data = initiator.command(0, &REPORT, Vec::new(), 256).good();
    data[4..].chunks(12).map(|group| (group[3], group[0] & 0x0f)).collect()
}

/// SET TARGET PORT GROUPS: group 1 to standby, group 2 to active/optimized.
fn fail_over(initiator: &mut ScriptedInitiator) -> Outcome {
    let list = vec![0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 2];
    initiator.command(0, &[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0], list, 0)
}

#[test]
fn a_disk_moves_from_one_path_to_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), "both");
    let (mut first, mut second) = (session(&server, 1), session(&server, 2));
    first.write(0, 0, vec![7; 512]).good();
    assert_eq!(report(&mut second), [(1, 0), (2, 2)]);
    assert_eq!(sense(&ready(&mut second)), [2, 0x04, 0x0b], "standby");
    fail_over(&mut second).good();
    assert_eq!(second.read(0, 0, 1).good(), [7; 512]);
    assert_eq!(sense(&ready(&mut first)), [6, 0x2a, 0x06], "the access state has changed");
    assert_eq!(sense(&ready(&mut first)), [2, 0x04, 0x0b]);
    assert_eq!(report(&mut first), [(1, 2), (2, 0)]);
    drop((first, second));
    server.stop();
}

#[test]
fn another_configuration_changes_access_states_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), "implicit");
    let (mut first, mut second) = (session(&server, 1), session(&server, 2));
    let file = folder.path().join("lunette.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("standby", "active/non-optimized")).unwrap();
    let log = server.hang_up(&["changes applied"]);
    assert!(log.contains(&format!("target {TARGET}: target port groups changed")), "{log}");
    for session in [&mut first, &mut second] {
        assert_eq!(sense(&ready(session)), [6, 0x2a, 0x06], "the access state has changed");
        assert_eq!(ready(session).status, 0);
        assert_eq!(report(session), [(1, 0), (2, 1)]);
    }
    drop((first, second));
    server.stop();
}

#[test]
fn access_states_that_initiators_alone_manage_survive_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), "explicit");
    fail_over(&mut session(&server, 2)).good();
    server.kill();
    let server = serve(folder.path(), "explicit");
    assert_eq!(report(&mut session(&server, 1)), [(1, 2), (2, 0)]);
    server.stop();
}

#[test]
fn only_initiators_that_may_set_access_states_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), "implicit");
    let mut first = session(&server, 1);
    assert_eq!(sense(&fail_over(&mut first)), [5, 0x24, 0x00], "INVALID FIELD IN CDB");
    drop(first);
    server.stop();
}
