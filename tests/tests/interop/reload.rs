//! SIGHUP: the configuration is read again, and sessions that it does not concern notice nothing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use lunette_initiator::{Disk, wait};
use lunette_pdu::{AsyncEvent, TargetPdu};
use lunette_testkit::{Outcome, ScriptedInitiator, Sense};
use lunette_tests::{Configured as Place, Owned, Server, attach, log_in, lunette, run, signal, stop, wait_until};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

const NEW: Sense = Outcome::POWER_ON;
const LUNS_CHANGED: Sense = (6, 0x3f, 0x0e);
const INQUIRY_CHANGED: Sense = (6, 0x3f, 0x03);
const CAPACITY_CHANGED: Sense = (6, 0x2a, 0x09);
const NOT_SUPPORTED: Sense = (5, 0x25, 0);

/// A configuration of one target.
fn config(luns: &str, rest: &str) -> String {
    format!("listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.org.example:a\"\nlun = [{luns}]\n{rest}")
}

/// The length of LUN 0 in bytes, by READ CAPACITY(10).
fn capacity(initiator: &mut ScriptedInitiator) -> u64 {
    let data = initiator.command(0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], Vec::new(), 8).good();
    let number = |at: usize| u64::from(u32::from_be_bytes(data[at..at + 4].try_into().unwrap()));
    (number(0) + 1) * number(4)
}

/// Asserts that the session works as before and gets no unit attention.
fn undisturbed(initiator: &mut ScriptedInitiator) {
    initiator.test_unit_ready(0).good();
    assert!(initiator.others.is_empty(), "{:?}", initiator.others);
}

#[test]
fn a_configuration_comes_through_a_pipe_once() {
    let text = config(r#"{ number = 0, disk = "mem:8M" }"#, "");
    let piped = |arguments: &[&str]| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        let mut command = lunette();
        command.args(arguments).arg("/dev/stdin").stdin(reader);
        command
    };
    let checked = piped(&["check"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "no mistakes\n", "{checked:?}");
    let server = Server::spawn(piped(&["serve", "--config"]), 1);
    let mut initiator = attach(&server, &[]);
    let log = server.hang_up(&["changes applied", "nothing has changed", "configuration refused"]);
    assert!(log.contains("configuration refused") && log.contains("name a regular file"), "{log}");
    undisturbed(&mut initiator);
}

#[test]
fn a_file_that_grew_is_seen_to_have_grown() {
    let text = config(r#"{ number = 0, disk = "@/disk", create = "8M" }"#, "");
    let (place, server) = Place::serve(&text, 1);
    let mut initiator = attach(&server, &[]);
    File::options().write(true).open(place.file("disk")).unwrap().set_len(16 * MIB).unwrap();
    assert_eq!(capacity(&mut initiator), 8 * MIB, "until it is told");
    let log = place.change(&server, &text);
    assert!(log.contains("LUN 0 has grown to 16777216 bytes"), "{log}");
    assert_eq!(initiator.news().1, CAPACITY_CHANGED);
    assert_eq!(initiator.test_unit_ready(0).sense(), CAPACITY_CHANGED);
    assert_eq!(capacity(&mut initiator), 16 * MIB);

    // A larger size in the configuration makes the file longer.
    place.change(&server, &text.replace("8M", "32M"));
    assert_eq!(initiator.test_unit_ready(0).sense(), CAPACITY_CHANGED);
    assert_eq!(capacity(&mut initiator), 32 * MIB);
    assert_eq!(fs::metadata(place.file("disk")).unwrap().len(), 32 * MIB);
    initiator.write(0, 65_000, vec![1; 4096]).good();
    server.stop();
}

#[test]
fn the_configuration_does_not_shrink_a_disk() {
    let text = config(r#"{ number = 0, disk = "@/disk", create = "8M" }"#, "");
    let (place, server) = Place::serve(&text, 1);
    let mut initiator = attach(&server, &[]);
    let log = place.change(&server, &text.replace("8M", "4M"));
    assert!(log.contains("disks do not shrink") && log.contains("nothing has changed"), "{log}");
    undisturbed(&mut initiator);
    server.stop();
}

#[test]
fn logical_units_come_and_go() {
    let zero = r#"{ number = 0, disk = "mem:8M" }"#;
    let (place, server) = Place::serve(&config(zero, ""), 1);
    let mut initiator = attach(&server, &[]);
    let both = format!("{zero}, {{ number = 5, disk = \"@/five\", create = \"8M\" }}");
    place.change(&server, &config(&both, ""));
    assert_eq!(initiator.news().1, LUNS_CHANGED);
    assert_eq!(initiator.test_unit_ready(0).sense(), LUNS_CHANGED);
    assert_eq!(initiator.test_unit_ready(5).sense(), NEW);
    initiator.test_unit_ready(5).good();
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    initiator.command(5, &write, vec![7; 512], 0).good();

    place.change(&server, &config(zero, ""));
    assert_eq!(initiator.news().1, LUNS_CHANGED);
    assert_eq!(initiator.test_unit_ready(5).sense(), NOT_SUPPORTED);

    // The same file under another number is the same disk, whether or not the server has closed it yet.
    place.change(&server, &config(&both.replace('5', "6"), ""));
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(initiator.test_unit_ready(6).sense(), NEW);
    assert_eq!(initiator.command(6, &read, Vec::new(), 512).good(), vec![7; 512]);
    server.stop();
}

#[test]
fn a_disk_with_other_properties_keeps_its_blocks() {
    let luns = r#"{ number = 0, disk = "mem:8M" }, { number = 1, disk = "@/one", create = "8M" }"#;
    let (place, server) = Place::serve(&config(luns, ""), 2);
    let mut initiator = attach(&server, &[]);
    initiator.write(0, 0, vec![3; 512]).good();
    let read_only = luns.replace("mem:8M\"", "mem:8M\", read_only = true");
    place.change(&server, &config(&read_only, ""));
    assert_eq!(initiator.news().1, INQUIRY_CHANGED);
    assert_eq!(initiator.test_unit_ready(0).sense(), NEW);
    assert_eq!(initiator.test_unit_ready(0).sense(), INQUIRY_CHANGED);
    assert_eq!(initiator.read(0, 0, 1).good(), vec![3; 512]);
    let write = initiator.start_write(0, 0, vec![4; 512], 0);
    assert_eq!(initiator.finish(write).sense(), (7, 0x27, 0));
    // So does the file: once opened for writing, it serves either.
    place.change(&server, &config(&luns.replace("@/one\"", "@/one\", read_only = true"), ""));
    place.change(&server, &config(luns, ""));
    server.stop();
}

#[test]
fn a_file_that_cannot_be_applied_changes_nothing_and_is_reported() {
    let text = config(r#"{ number = 0, disk = "@/disk", create = "8M" }"#, "alias = \"first\"");
    let text = format!("strict = true\n{text}");
    let (place, server) = Place::serve(&text, 1);
    let mut initiator = attach(&server, &[]);
    let busy = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _held = TcpListener::bind(busy).unwrap();
    let one_more = |entry: &str| text.replace("\"8M\" }", &format!("\"8M\" }}, {entry}"));
    for (wrong, why) in [
        ("colour = 1".to_owned(), "unknown field `colour`"),
        (text.replace("8M", "8Q"), "not a size"),
        (
            text.replace("\"8M\"", "\"8M\", block_size = 4096"),
            "the length of a block (block_size, quantum) cannot change",
        ),
        (format!("state = \"@/state\"\n{text}"), "state cannot change"),
        (one_more("{ number = 1, disk = \"@/missing\" }"), "no such file or device"),
        (one_more("{ number = 1, disk = \"@/disk\" }"), "are one disk"),
        (text.replace("127.0.0.1:0", &busy.to_string()), "the address is in use"),
        (format!("{text}\nchap = [{{ user = \"u\", secret_file = \"@/none\" }}]"), "@/none"),
        // No part of a change is applied when another part fails.
        (one_more("{ number = 1, disk = \"mem:1M\" }, { number = 2, disk = \"@/missing\" }"), "no such file or device"),
    ] {
        let log = place.refuse(&server, &wrong);
        let why = why.replace('@', place.path().to_str().unwrap());
        assert!(log.contains(&why), "{wrong}\n{log}");
        undisturbed(&mut initiator);
        assert_eq!(initiator.test_unit_ready(1).sense(), NOT_SUPPORTED);
    }
    let log = place.change(&server, &text);
    assert!(log.contains("nothing has changed"), "{log}");
    undisturbed(&mut initiator);
    attach(&server, &[]);
    server.stop();
}

#[test]
fn a_portal_moves_under_open_sessions() {
    let text = config(r#"{ number = 0, disk = "mem:8M" }"#, "");
    let (place, server) = Place::serve(&text, 1);
    let mut initiator = attach(&server, &[]);
    let moved = SocketAddr::from(([127, 0, 0, 2], server.address().port()));
    place.change(&server, &text.replace("127.0.0.1:0", &moved.to_string()));
    undisturbed(&mut initiator);
    assert!(TcpStream::connect(server.address()).is_err());
    let list = run("iscsi-ls", [&format!("iscsi://{moved}")]);
    assert!(list.succeeded().contains("iqn.2026-11.org.example:a"), "{list}");
    server.stop();
}

#[test]
fn targets_come_and_go() {
    let a = config(r#"{ number = 0, disk = "mem:8M" }"#, "");
    let b = "[[target]]\nname = \"iqn.2026-11.org.example:b\"\nlun = [{ number = 0, disk = \"@/b\", create = \"8M\" }]";
    let (place, server) = Place::serve(&a, 1);
    let mut initiator = attach(&server, &[]);
    let inquiry = || run("iscsi-inq", [format!("{}/iqn.2026-11.org.example:b/0", server.portal_url())]);
    inquiry().failed();
    place.change(&server, &format!("{a}\n{b}"));
    inquiry().succeeded();
    undisturbed(&mut initiator);
    place.change(&server, &a.replace("org.example:a", "org.example:c"));
    inquiry().failed();
    let before_end = initiator.wait_for_end_within(LIMIT);
    let asked =
        |(pdu, _): &_| matches!(pdu, TargetPdu::AsyncMessage(message) if message.event == AsyncEvent::LOGOUT_REQUEST);
    assert!(before_end.iter().any(asked), "{before_end:?}");
    server.stop();
}

#[test]
fn another_secret_is_asked_for_from_now_on() {
    let text = config(r#"{ number = 0, disk = "mem:8M" }"#, r#"chap = [{ user = "user", secret_file = "@/secret" }]"#);
    let (place, server) = Place::serve(&text, 1);
    let read_capacity = |secret: &str| run("iscsi-readcapacity16", [server.url_with(&format!("user%{secret}@"), "")]);
    read_capacity("first-secret").succeeded();
    read_capacity("second-secret").failed();
    // The configuration stays the same: only the file with the secret changes.
    fs::write(place.file("secret"), "second-secret").unwrap();
    let log = place.change(&server, &text);
    assert!(log.contains("secrets changed"), "{log}");
    read_capacity("first-secret").failed();
    read_capacity("second-secret").succeeded();
    let log = server.stop();
    assert!(!log.contains("first-secret") && !log.contains("second-secret"), "a secret is in the log:\n{log}");
}

#[test]
fn an_initiator_that_is_no_longer_admitted_is_logged_out() {
    let text = config(r#"{ number = 0, disk = "mem:8M" }"#, "");
    let (place, server) = Place::serve(&text, 1);
    let initiator = attach(&server, &[]);
    let friend = "iqn.2026-11.org.example:friend";
    place.change(&server, &format!("{text}\nallow = [\"{friend}\"]"));
    let before_end = initiator.wait_for_end_within(LIMIT);
    assert!(
        matches!(before_end[..], [(TargetPdu::AsyncMessage(message), _)] if message.event == AsyncEvent::LOGOUT_REQUEST),
        "{before_end:?}"
    );
    assert!(log_in(&server, &[]).is_err());
    run("iscsi-inq", ["-i", friend, server.url(0)]).succeeded();
    place.change(&server, &text);
    attach(&server, &[]);
    server.stop();
}

#[test]
fn a_hangup_during_the_start_does_not_end_the_server() {
    let place = Place::new();
    let path = place.file("config");
    // The start waits for the answer of this target.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = format!("iscsi://{}/iqn.a:b/0", silent.local_addr().unwrap());
    let disks = format!("{{ number = 0, disk = \"mem:8M\" }}, {{ number = 1, disk = \"{remote}\" }}");
    fs::write(&path, config(&disks, "")).unwrap();
    let mut command = lunette();
    let mut server = Owned::start(command.args(["serve", "--config"]).arg(&path).stdout(Stdio::piped()));
    let connection = silent.accept().unwrap();
    signal(&server, Signal::HUP);
    drop((silent, connection));
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("iscsi://"), "{line:?}");
    stop(&mut server);
}

#[test]
fn sighup_without_a_configuration_file_has_no_effect() {
    let server = Server::start(&["mem:8M"]);
    let mut initiator = attach(&server, &[]);
    server.hang_up(&["there is no configuration file to read again"]);
    undisturbed(&mut initiator);
    server.stop();
}

/// An address of UDP that is free.
fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn portals_of_ecl_come_and_go_and_their_sessions_stay() {
    let targets = config("{ number = 0, disk = \"mem:8M\" }", "");
    let text = |addresses: &[SocketAddr]| {
        let list: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
        format!("strict = true\necl = [{}]\n{targets}", list.join(", "))
    };
    let (first, second) = (free(), free());
    let (place, server) = Place::serve(&text(&[first]), 2);
    let of_first = server.url(1).to_owned();
    let of_second = of_first.replace(&first.to_string(), &second.to_string());
    let disk = wait(Disk::connect(&of_first)).unwrap();
    let log = place.change(&server, &text(&[second]));
    let told = [format!("portal {first} of ecl removed"), format!("portal {second} of ecl added")];
    assert!(told.iter().all(|told| log.contains(told)), "{log}");
    wait(Disk::connect(&of_second)).unwrap();
    wait(disk.read(0, 1)).unwrap();
    // It comes back while that session is still there.
    place.change(&server, &text(&[first, second]));
    wait(Disk::connect(&of_first)).unwrap();
    wait(disk.read(0, 1)).unwrap();
    // The last session of a portal that has gone takes the socket along.
    place.change(&server, &text(&[second]));
    drop(disk);
    wait_until(LIMIT, || UdpSocket::bind(first).ok()).expect("the address is free again");
    // What cannot be opened changes nothing.
    let held = UdpSocket::bind("127.0.0.1:0").unwrap();
    let third = free();
    let log = place.refuse(&server, &text(&[third, held.local_addr().unwrap()]));
    assert!(log.contains("the address is in use"), "{log}");
    UdpSocket::bind(third).expect("nothing is left of the change");
    wait(Disk::connect(&of_second)).unwrap();
    server.stop();
}
