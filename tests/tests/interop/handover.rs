//! `lunette upgrade`: another process takes the place of a server, and sessions notice nothing.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::Parser as _;
use lunette_testkit::{Outcome, ScriptedInitiator, Sense};
use lunette_tests::handover::{self, Arguments, Program, children};
use lunette_tests::{Api, Configured, Ran, Server, attach, free_address, lunette, run, run_at_most, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);

const RESERVATION_CONFLICT: u8 = 0x18;
const MODE_PARAMETERS_CHANGED: Sense = (6, 0x2a, 0x01);
const NEW: Sense = Outcome::POWER_ON;

/// A configuration with one target, an API at a Unix socket, and a portal that stays the same.
fn config(portal: SocketAddr, luns: &str) -> String {
    format!(
        "listen = [\"{portal}\"]\n[api]\nlisten = [\"unix:@/api.sock\"]\n\
         [[target]]\nname = \"iqn.2026-11.org.example:a\"\nsession = {{ error_recovery_level = 2 }}\nlun = [{luns}]"
    )
}

/// Serves `luns` logical units of what is in `place`, by a program that can be replaced.
fn serve(place: &Configured, luns: usize) -> (Program, Server) {
    let program = Program::in_folder(place.path());
    let mut command = program.command();
    command.args(["serve", "--config"]).arg(place.file("config"));
    (program, Server::spawn(command, luns))
}

fn ctl(place: &Configured, arguments: &[&str]) -> Ran {
    let socket = format!("unix:{}", place.file("api.sock").display());
    run_at_most(LIMIT, lunette().args(["ctl", "--api", &socket]).args(arguments))
}

/// The sessions by their numbers and initiators.
fn sessions(place: &Configured) -> Vec<String> {
    let listed = ctl(place, &["ls", "sessions", "--json"]);
    let listed: Value = serde_json::from_str(listed.succeeded()).unwrap_or_else(|error| panic!("{error}: {listed}"));
    let session = |session: &Value| format!("{} of {}", session["tsih"], session["initiator"]);
    let mut sessions: Vec<_> = listed.as_array().unwrap().iter().map(session).collect();
    sessions.sort_unstable();
    sessions
}

/// Asserts that the session works as before and gets no unit attention.
fn undisturbed(initiator: &mut ScriptedInitiator) {
    initiator.test_unit_ready(0).good();
    initiator.is_undisturbed();
}

#[test]
fn clients_of_three_makes_notice_nothing_of_ten_handovers() {
    let report = handover::run(&Arguments::parse_from(["", "--rounds", "10", "--kill", "2"]));
    println!("{report}");
    assert!(report.errors().is_empty(), "{report}");
}

#[test]
fn ten_handovers_in_a_row_leave_nothing_behind() {
    let place = Configured::new();
    let luns = "{ number = 0, disk = \"mem:8M\" }, { number = 1, disk = \"@/disk\", create = \"8M\" }";
    place.write(&config(free_address(), luns));
    let (_, mut server) = serve(&place, 2);
    let of_level = |level| attach(&server, &[("ErrorRecoveryLevel", level)]);
    let mut initiators = ["0", "1", "2"].map(of_level);
    for (number, initiator) in (0..).zip(&mut initiators) {
        assert_eq!(initiator.test_unit_ready(1).sense(), NEW);
        for lun in [0, 1] {
            write(initiator, lun, number).good();
        }
    }
    let (before, logins) = (sessions(&place), server.log().matches("logged in").count());
    assert_eq!((before.len(), logins), (3, 3), "{before:?}");
    let mut first = None;
    for _ in 0..10 {
        let upgrade = server.upgrade();
        assert_eq!((upgrade.sessions, upgrade.lost), (3, 0), "{upgrade:?}");
        for (number, initiator) in (0..).zip(&mut initiators) {
            for lun in [0, 1] {
                assert_eq!(read(initiator, lun, number), [number + 1; 512]);
            }
            undisturbed(initiator);
        }
        let size = || (server.process().descriptors(), server.memory_kib());
        let (first_descriptors, first_kib) = *first.get_or_insert_with(size);
        // Questions to the API have connections that close by and by, so these come later.
        let is_flat = || (size().0 <= first_descriptors && size().1 <= first_kib + 1024).then_some(());
        wait_until(LIMIT, is_flat).unwrap_or_else(|| panic!("{:?}, first {first:?}", size()));
        assert_eq!(sessions(&place), before);
    }
    attach(&server, &[]);
    drop(initiators);
    let log = server.stop();
    assert_eq!(log.matches("logged in").count(), logins + 1, "{log}");
}

/// Writes the block that is named like the number.
fn write(initiator: &mut ScriptedInitiator, lun: u16, number: u8) -> Outcome {
    let cdb = [0x2a, 0, 0, 0, 0, number, 0, 0, 1, 0];
    initiator.command(lun, &cdb, vec![number + 1; 512], 0)
}

fn read(initiator: &mut ScriptedInitiator, lun: u16, number: u8) -> Vec<u8> {
    initiator.command(lun, &[0x28, 0, 0, 0, 0, number, 0, 0, 1, 0], Vec::new(), 512).good()
}

#[test]
fn reservations_mode_pages_and_unit_attentions_go_on_without_a_state_file() {
    let place = Configured::new();
    let luns: Vec<_> = (0..3).map(|number| format!("{{ number = {number}, disk = \"mem:1M\" }}")).collect();
    place.write(&config(free_address(), &luns.join(", ")));
    let (_, mut server) = serve(&place, 3);
    let [mut holder, mut other] = [(), ()].map(|()| attach(&server, &[]));
    for initiator in [&mut holder, &mut other] {
        for lun in [1, 2] {
            assert_eq!(initiator.test_unit_ready(lun).sense(), NEW);
        }
    }
    let list = |key: u64, action_key: u64| [&key.to_be_bytes()[..], &action_key.to_be_bytes(), &[0; 8]].concat();
    holder.command(0, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], list(0, 7), 0).good();
    holder.command(0, &[0x5f, 1, 3, 0, 0, 0, 0, 0, 24, 0], list(7, 0), 0).good();
    holder.command(1, &[0x16, 0, 0, 0, 0, 0], Vec::new(), 0).good();
    let control = |initiator: &mut ScriptedInitiator| {
        initiator.command(2, &[0x1a, 0x08, 0x0a, 0, 255, 0], Vec::new(), 255).good()
    };
    let mut page = control(&mut holder);
    (page[0], page[4], page[6]) = (0, page[4] & 0x7f, page[6] | 0x04);
    holder.command(2, &[0x15, 0x10, 0, 0, page.len() as u8, 0], page, 0).good();

    for _ in 0..2 {
        server.upgrade();
        let reservation = other.command(0, &[0x5e, 1, 0, 0, 0, 0, 0, 0, 24, 0], Vec::new(), 24).good();
        assert_eq!((&reservation[8..16], reservation[21]), (&7u64.to_be_bytes()[..], 3), "exclusive access");
        for lun in [0, 1] {
            assert_eq!(write(&mut other, lun, 0).status, RESERVATION_CONFLICT, "LUN {lun}");
            write(&mut holder, lun, 0).good();
        }
    }
    // This one is the first that the other hears of the page, and the last.
    let told = other.test_unit_ready(2);
    assert_eq!(told.sense[0], 0x72, "the page asks for the descriptor format");
    assert_eq!((told.sense[1], told.sense[2], told.sense[3]), MODE_PARAMETERS_CHANGED);
    server.upgrade();
    other.test_unit_ready(2).good();
    assert_eq!(control(&mut other)[6] & 0x04, 0x04, "D_SENSE");
    // The holder can still give both back.
    holder.command(1, &[0x17, 0, 0, 0, 0, 0], Vec::new(), 0).good();
    holder.command(0, &[0x5f, 2, 3, 0, 0, 0, 0, 0, 24, 0], list(7, 0), 0).good();
    for lun in [0, 1] {
        write(&mut other, lun, 0).good();
    }
    drop((holder, other));
    server.stop();
}

/// The message of an upgrade that has to fail. Sessions notice nothing of it.
fn fail_to_upgrade(server: &mut Server, initiator: &mut ScriptedInitiator) -> String {
    let process = server.process().id();
    let reason = server.try_upgrade().expect_err("the program cannot go on");
    assert!(reason.contains("the server goes on as it was: "), "{reason}");
    assert_eq!(server.process().id(), process);
    undisturbed(initiator);
    assert_eq!(read(initiator, 0, 0), [1; 512]);
    wait_until(LIMIT, || children(process).is_empty().then_some(())).expect("nothing is left of the successor");
    reason
}

#[test]
fn a_successor_that_does_not_take_over_is_not_noticed() {
    let place = Configured::new();
    let text =
        config(free_address(), "{ number = 0, disk = \"mem:1M\" }, { number = 1, disk = \"@/d\", create = \"1M\" }");
    place.write(&text);
    let (program, mut server) = serve(&place, 2);
    let mut initiator = attach(&server, &[]);
    write(&mut initiator, 0, 0).good();
    let mut sizes = Vec::new();

    program.install_script("exit 1");
    let reason = fail_to_upgrade(&mut server, &mut initiator);
    assert!(reason.contains("the other process has ended"), "{reason}");

    let fake = Path::new(env!("CARGO_BIN_EXE_lunette-successor"));
    program.install(fake);
    for (how, why) in [
        ("ends when ready", "has ended"),
        ("ends with the state", "has ended"),
        ("refuses the state", "there is no room"),
        ("says nothing known", "was not ready in time"),
        ("is ready again", "was not ready in time"),
    ] {
        fs::write(place.file("successor"), how).unwrap();
        let reason = fail_to_upgrade(&mut server, &mut initiator);
        assert!(reason.contains(why), "{how}: {reason}");
        sizes.push(server.process().descriptors());
    }
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");

    // The one that has not started, and the one that has everything but the word, are killed.
    program.install_script("exec sleep infinity");
    let reason = fail_to_upgrade_by_force(&mut server, &mut initiator, || true);
    assert!(reason.contains("the other process has ended"), "{reason}");
    fs::write(place.file("successor"), "keeps the state").unwrap();
    program.install(fake);
    let has_state = place.file("has-state");
    let reason = fail_to_upgrade_by_force(&mut server, &mut initiator, || has_state.exists());
    assert!(reason.contains("has ended"), "{reason}");

    program.install(&Program::built());
    place.write(&text.replace("lun = [", "colour = 1\nlun = ["));
    let reason = fail_to_upgrade(&mut server, &mut initiator);
    assert!(reason.contains("unknown field `colour`"), "{reason}");
    place.write("colour = ");
    let reason = fail_to_upgrade(&mut server, &mut initiator);
    assert!(reason.contains("config"), "{reason}");

    // A target that is left out already does not keep others from going on.
    let broken = format!("{text}\n[[target]]\nname = \"iqn.2026-11.org.example:b\"\ncolour = 1");
    place.change(&server, &broken);
    assert_eq!(server.upgrade().sessions, 1);
    undisturbed(&mut initiator);
    assert_eq!(read(&mut initiator, 0, 0), [1; 512]);
    drop(initiator);
    server.stop();
}

/// Like [`fail_to_upgrade`], with a successor that is killed when it is `time`.
fn fail_to_upgrade_by_force(
    server: &mut Server,
    initiator: &mut ScriptedInitiator,
    time: impl Fn() -> bool + Send,
) -> String {
    let process = server.process().id();
    thread::scope(|scope| {
        scope.spawn(move || {
            let successor = || children(process).first().copied().filter(|_| time());
            let successor = wait_until(LIMIT, successor).expect("it starts");
            let pid = Pid::from_raw(successor.try_into().unwrap()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        });
        fail_to_upgrade(server, initiator)
    })
}

#[test]
fn settings_that_a_running_server_cannot_change_come_with_an_upgrade() {
    let place = Configured::new();
    let text = config(free_address(), "{ number = 0, disk = \"mem:8M\" }");
    place.write(&format!("cores = 1\n{text}"));
    let (_, mut server) = serve(&place, 1);
    let mut initiators = [(), (), ()].map(|()| attach(&server, &[]));
    write(&mut initiators[0], 0, 0).good();
    for (settings, told) in [("cores = 3", "cores=3"), ("cores = 2\nlimits = { buffers = \"32M\" }", "cores=2")] {
        let text = format!("{settings}\n{text}");
        place.refuse(&server, &text);
        server.upgrade();
        assert!(server.log().lines().any(|line| line.contains("the event loop runs") && line.contains(told)));
        for initiator in &mut initiators {
            undisturbed(initiator);
            assert_eq!(read(initiator, 0, 0), [1; 512]);
        }
    }
    drop(initiators);
    server.stop();
}

#[test]
fn a_portal_that_is_gone_is_closed() {
    let place = Configured::new();
    let [first, second, moved] = [(), (), ()].map(|()| free_address());
    let text = config(first, "{ number = 0, disk = \"mem:1M\" }");
    place.write(&text.replace(&format!("\"{first}\""), &format!("\"{first}\", \"{second}\"")));
    let (_, mut server) = serve(&place, 1);
    let mut initiator = attach(&server, &[]);
    TcpStream::connect(second).unwrap();
    place.write(&text);
    server.upgrade();
    assert!(TcpStream::connect(second).is_err(), "the portal still listens");
    TcpStream::connect(first).unwrap();
    // So are portals that the successor closes later.
    let moved_text = text.replace(&first.to_string(), &moved.to_string());
    place.change(&server, &moved_text);
    assert!(TcpStream::connect(first).is_err(), "the portal still listens");
    TcpStream::connect(moved).unwrap();
    place.change(&server, &text);
    attach(&server, &[]);
    undisturbed(&mut initiator);
    drop(initiator);
    server.stop();
}

const TOKEN: &str = "0123456789abcdef0123456789";

#[test]
fn the_api_the_metrics_and_the_state_file_go_with_the_server() {
    let place = Configured::new();
    let [portal, api, metrics] = [(), (), ()].map(|()| free_address());
    let (key, certificate) = (place.file("key.pem"), place.file("certificate.pem"));
    let files = ["-keyout", key.to_str().unwrap(), "-out", certificate.to_str().unwrap()];
    run("openssl", [&["req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=a"][..], &files].concat())
        .succeeded();
    fs::write(place.file("tokens"), format!("{TOKEN} name=ops\n")).unwrap();
    let text = config(portal, "{ number = 0, disk = \"@/disk\", create = \"8M\" }");
    let at_both = format!(
        "listen = [\"unix:@/api.sock\", \"{api}\"]\ntokens = \"@/tokens\"\n\
         tls = {{ certificates = \"@/certificate.pem\", key = \"@/key.pem\" }}\n[metrics]\nlisten = [\"{metrics}\"]"
    );
    let text = text.replace("listen = [\"unix:@/api.sock\"]", &at_both);
    let text = format!("state = \"@/state\"\n{text}");
    place.write(&text);
    let (_, mut server) = serve(&place, 1);
    let answers = || {
        let (local, remote) = (Api::unix(&place.file("api.sock")), Api::tls(&api.to_string(), TOKEN));
        assert!(ctl(&place, &["ls"]).succeeded().contains("example:a"));
        let scraped = run("curl", ["-s", "-f", &format!("http://{metrics}/metrics")]);
        assert!(scraped.succeeded().contains("lunette_lun_read_bytes_total"), "{scraped}");
        let of_api = [&local, &remote].map(|api| api.get("/v1/targets").status);
        let foreign = Api::tls(&api.to_string(), "another token of 22 bytes").get("/v1/targets").status;
        (of_api, foreign, remote.get("/").status, remote.get("/readyz").status)
    };
    let before = answers();
    assert_eq!((before.0, before.1), ([200, 200], 401));
    for number in 0..2 {
        server.upgrade();
        assert_eq!(answers(), before);
        let target = format!("targets/iqn.2026-11.org.example:{number}");
        ctl(&place, &["add", &target, "allow=[\"*\"]"]).succeeded();
    }
    // What the successor keeps is there after a kill.
    let mut initiator = attach(&server, &[]);
    let list = [&[0; 8], &7u64.to_be_bytes()[..], &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
    initiator.command(0, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], list, 0).good();
    server.kill();
    let server = place.start(&text, 1);
    let keys = attach(&server, &[]).command(0, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 16, 0], Vec::new(), 16).good();
    assert_eq!(keys[8..16], 7u64.to_be_bytes());
    assert_eq!(answers(), before);
    assert!(ctl(&place, &["ls"]).succeeded().contains("example:1"));
    server.stop();
}

#[test]
fn files_stay_locked_over_handovers() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, state) = (folder.path().join("disk"), folder.path().join("state"));
    let (disk, state) = (disk.to_str().unwrap(), state.to_str().unwrap());
    let listen = free_address().to_string();
    let mut server = Server::start_at(&listen, &[disk, "--create", "1M", "--state", state], 1);
    let second = |arguments: &[&str]| {
        let serve = ["serve", "--listen", "127.0.0.1:0"];
        run(lunette().get_program(), serve.iter().chain(arguments)).failed()
    };
    let are_locked = |server: &Server| {
        let (of_disk, of_state) = (second(&[disk]), second(&["mem:1M", "--state", state]));
        let holder = format!("in use by process {} (", server.process().id());
        assert!(of_disk.contains(&holder), "{of_disk}");
        assert!(of_state.contains("the state file is in use"), "{of_state}");
    };
    for _ in 0..3 {
        are_locked(&server);
        server.upgrade();
    }
    are_locked(&server);
    server.stop();
    Server::start(&[disk, "--state", state]).stop();
}

#[test]
fn a_process_that_is_no_server_does_not_answer() {
    let id = std::process::id().to_string();
    let ran = run_at_most(LIMIT, lunette().args(["upgrade", "--pid", &id]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.failed().contains(&format!("process {id} does not answer")), "{ran}");
}
