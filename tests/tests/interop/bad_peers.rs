//! Initiators that break the rules. Each gets a protocol error or loses its own connection; the server continues to
//! serve others.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use lunette_pdu::{BHS_LEN, DataOut, NopOut, R2t, Stage, TargetPdu, TargetTransferTag, TextRequest};
use lunette_testkit::{Format, ScriptedInitiator, requests};
use lunette_tests::{DEFAULT_TARGET, NAME, Server, attach, login_request, lunette, random_bytes};

/// The longest wait for an end that needs no timer.
const SOON: Duration = Duration::from_secs(10);

fn server() -> Server {
    Server::start(&["mem:64M"])
}

/// Asserts that another session can write and read, and that the server stops in an orderly way.
fn still_serves(server: Server) {
    let mut initiator = attach(&server, &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]);
    let data = random_bytes(7, 65_536);
    initiator.write(0, 4096, data.clone()).good();
    assert_eq!(initiator.read(0, 4096, 128).good(), data);
    drop(initiator);
    server.stop();
}

fn header(opcode: u8, flags: u8) -> [u8; BHS_LEN] {
    let mut header = [0; BHS_LEN];
    (header[0], header[1]) = (opcode, flags);
    header
}

#[test]
fn any_pdu_but_a_login_before_the_login_ends_the_connection() {
    let server = server();
    for opcode in (0..64).filter(|opcode| *opcode != 3) {
        let mut initiator = ScriptedInitiator::connect(server.address());
        initiator.send_bytes(&header(opcode, 0x80));
        initiator.wait_for_end_within(SOON);
    }
    // The same holds between the steps of a login.
    for opcode in [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x10] {
        let mut initiator = ScriptedInitiator::connect(server.address());
        let keys = [("InitiatorName", NAME), ("TargetName", DEFAULT_TARGET)];
        let (response, _) = initiator.login_step(Stage::SecurityNegotiation, None, &keys).unwrap();
        assert!(response.status.is_success() && !response.transit);
        initiator.send_bytes(&header(opcode, 0x80));
        initiator.wait_for_end_within(SOON);
    }
    still_serves(server);
}

#[test]
fn a_login_after_the_login_ends_the_connection() {
    let server = server();
    let mut initiator = attach(&server, &[]);
    initiator.send_bytes(&header(0x43, 0x87));
    initiator.wait_for_end_within(SOON);
    still_serves(server);
}

fn text_request(initiator: &mut ScriptedInitiator, continue_: bool, ttt: TargetTransferTag, text: &[u8]) {
    let request = TextRequest {
        final_: !continue_,
        continue_,
        ttt,
        cmd_sn: initiator.next_cmd_sn(),
        data_segment_len: text.len(),
        ..requests::text(77)
    };
    initiator.send(request.emit(), text);
}

#[test]
fn text_requests_that_continue_or_are_empty_are_answered() {
    let server = server();
    let mut initiator = attach(&server, &[]);
    let nothing = TargetTransferTag::RESERVED;

    text_request(&mut initiator, false, nothing, b"");
    let (pdu, data) = initiator.receive().unwrap();
    assert!(matches!(pdu, TargetPdu::TextResponse(_)) && data.is_empty(), "{pdu:?}");

    // The list continues, first with an empty segment.
    text_request(&mut initiator, true, nothing, b"");
    let (pdu, _) = initiator.receive().unwrap();
    let TargetPdu::TextResponse(first) = pdu else { panic!("{pdu:?}") };
    assert!(!first.final_ && !first.ttt.is_reserved(), "{first:?}");
    text_request(&mut initiator, true, first.ttt, b"SendTar");
    initiator.receive().unwrap();
    text_request(&mut initiator, false, first.ttt, b"gets=\0");
    let (pdu, data) = initiator.receive().unwrap();
    let answer = String::from_utf8_lossy(&data);
    assert!(matches!(pdu, TargetPdu::TextResponse(_)) && answer.contains(DEFAULT_TARGET), "{pdu:?}: {answer}");
    drop(initiator);
    still_serves(server);
}

#[test]
fn text_without_an_end_is_not_collected_for_ever() {
    let server = server();
    let before_kib = server.memory_kib();
    let mut initiator = attach(&server, &[]);
    let piece = vec![b'a'; 8192];
    let mut ttt = TargetTransferTag::RESERVED;
    let mut refused = false;
    for _ in 0..64 {
        text_request(&mut initiator, true, ttt, &piece);
        match initiator.receive() {
            Ok((TargetPdu::TextResponse(response), _)) => ttt = response.ttt,
            Ok((TargetPdu::Reject(_), _)) | Err(_) => {
                refused = true;
                break;
            }
            Ok((pdu, _)) => panic!("{pdu:?}"),
        }
    }
    assert!(refused, "half a mebibyte of one text is collected");
    assert!(server.memory_kib() < before_kib + 4096);
    drop(initiator);
    still_serves(server);
}

#[test]
fn hostile_discovery_text_is_only_text() {
    let server = server();
    for value in ["%s%s%n%x", "../../etc/passwd", &"x".repeat(5000), "iqn.2026-11.lunette:disk\u{7f}"] {
        let mut initiator = ScriptedInitiator::connect(server.address());
        let (response, _) = login_request(&mut initiator, &[("SessionType", "Discovery")]).unwrap();
        assert!(response.status.is_success());
        text_request(&mut initiator, false, TargetTransferTag::RESERVED, format!("SendTargets={value}\0").as_bytes());
        if let Ok((_, data)) = initiator.receive() {
            assert!(!String::from_utf8_lossy(&data).contains("TargetName"), "{value:?} is no target");
        }
    }
    still_serves(server);
}

#[test]
fn long_keys_and_values_of_a_login_are_refused() {
    let server = server();
    let long = "A".repeat(7000);
    let key = "K".repeat(64);
    for (key, value) in [
        ("TargetName", long.as_str()),
        ("InitiatorAlias", &long),
        ("CHAP_R", &long),
        (&key, "x"),
        ("MaxRecvDataSegmentLength", "99999999999999999999999999"),
        ("HeaderDigest", &"None,".repeat(1400)),
        ("X-%n%n%n%s", "%n%s"),
        ("", "x"),
    ] {
        let mut initiator = ScriptedInitiator::connect(server.address());
        // Either an answer or an end will do; what matters is what follows.
        if login_request(&mut initiator, &[("SessionType", "Normal"), ("TargetName", DEFAULT_TARGET), (key, value)])
            .is_ok()
        {
            continue;
        }
        initiator.wait_for_end_within(SOON);
    }
    still_serves(server);
}

#[test]
fn a_login_that_never_ends_is_ended() {
    let server = server();
    let mut initiator = ScriptedInitiator::connect(server.address());
    let keys = [("InitiatorName", NAME), ("TargetName", DEFAULT_TARGET)];
    let ended = (0..200).any(|_| {
        let answer = initiator.login_step(Stage::SecurityNegotiation, None, &keys);
        answer.map_or(true, |(response, _)| !response.status.is_success())
    });
    assert!(ended, "200 login requests lead nowhere and are still answered");
    still_serves(server);
}

#[test]
fn a_header_that_promises_too_much_ends_the_connection() {
    let server = server();
    let mut login = header(0x43, 0x87);
    login[5..8].copy_from_slice(&[0xff, 0xff, 0xff]);
    let mut initiator = ScriptedInitiator::connect(server.address());
    initiator.send_bytes(&login);
    initiator.wait_for_end_within(SOON);

    let mut initiator = attach(&server, &[]);
    let mut nop = header(0x40, 0x80);
    nop[5..8].copy_from_slice(&[0xff, 0xff, 0xff]);
    initiator.send_bytes(&nop);
    initiator.wait_for_end_within(SOON);
    still_serves(server);
}

/// Starts a write and returns the R2T for its data.
fn r2t_of_a_write(initiator: &mut ScriptedInitiator) -> R2t {
    initiator.start_write(0, 0, vec![0xbb; 65_536], 0);
    match initiator.receive().unwrap() {
        (TargetPdu::R2t(r2t), _) => r2t,
        (pdu, _) => panic!("{pdu:?} answers a write"),
    }
}

#[test]
fn data_outside_the_command_is_never_stored() {
    let server = server();
    let mut witness = attach(&server, &[]);
    witness.write(0, 0, vec![0xaa; 131_072]).good();
    for (offset, len) in
        [(65_536, 512), (65_024, 1024), (u32::MAX, 512), (u32::MAX - 511, 512), (0x8000_0000, 8192), (512, 512)]
    {
        let mut initiator = attach(&server, &[]);
        let r2t = r2t_of_a_write(&mut initiator);
        let pdu =
            DataOut { lun: r2t.lun, ttt: r2t.ttt, data_segment_len: len, ..requests::data_out(r2t.itt.0, offset) };
        initiator.send(pdu.emit(), &vec![0xcc; len]);
        // The task or the connection ends, in both cases without the data.
        match initiator.receive() {
            Ok((TargetPdu::ScsiResponse(response), _)) => assert_ne!(response.status, 0, "offset {offset}"),
            Ok((TargetPdu::Reject(_), _)) | Err(_) => {}
            Ok((pdu, _)) => panic!("{pdu:?} answers data at {offset}"),
        }
    }
    assert_eq!(witness.read(0, 0, 256).good(), vec![0xaa; 131_072]);
    drop(witness);
    still_serves(server);
}

#[test]
fn connections_that_break_while_their_commands_run_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let server = Server::start(&[disk.to_str().unwrap(), "--create", "64M"]);
    for round in 0..100 {
        let mut initiator = attach(&server, &[]);
        for n in 0..32 {
            let (lba, immediate) = (n * 256, if n % 3 == 0 { 65_536 } else { 0 });
            match n % 4 {
                0 => drop(initiator.start(0, &read_10(lba), Vec::new(), 131_072, 0)),
                _ => drop(initiator.start_write(0, lba, vec![n as u8; 65_536], immediate)),
            }
        }
        if round % 2 == 0 {
            rustix::net::sockopt::set_socket_linger(initiator.stream(), Some(Duration::ZERO)).unwrap();
        }
    }
    still_serves(server);
}

fn read_10(lba: u32) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    [0x28, 0, a, b, c, d, 0, 1, 0, 0]
}

#[test]
fn a_peer_that_reads_nothing_does_not_fill_the_memory() {
    const ALLOWED_KIB: u64 = 96 << 10;
    let server = server();
    let deaf = attach(&server, &[]);
    let before_kib = server.memory_kib();
    deaf.stream().set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let ping = NopOut { data_segment_len: 8192, ..requests::nop_out(5) };
    let wire = Format::PLAIN.encode(&ping.emit(), &[], &[0x55; 8192]);
    // Sends until the server takes no more; a server that always does gets half a gibibyte.
    let sent = (0..65_536).take_while(|_| deaf.stream().write_all(&wire).is_ok()).count();
    assert!(sent < 65_536, "the server reads on although its answers are not taken");
    let grown_kib = server.memory_kib().saturating_sub(before_kib);
    assert!(grown_kib < ALLOWED_KIB, "{grown_kib} KiB are kept for a peer that reads nothing");

    // Reads return more data than they send.
    let mut deaf = attach(&server, &[]);
    deaf.stream().set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    for n in 0..128 {
        if deaf.try_start(0, &read_10(n), Vec::new(), 131_072, 0).is_err() {
            break;
        }
    }
    let grown_kib = server.memory_kib().saturating_sub(before_kib);
    assert!(grown_kib < ALLOWED_KIB, "{grown_kib} KiB are kept for peers that read nothing");
    still_serves(server);
}

#[test]
fn silent_and_half_open_connections_are_ended_in_time() {
    let server = server();
    let start = Instant::now();
    let silent = ScriptedInitiator::connect(server.address());
    let mut half_a_header = ScriptedInitiator::connect(server.address());
    half_a_header.send_bytes(&header(0x43, 0x87)[..20]);
    let mut half_a_login = ScriptedInitiator::connect(server.address());
    let keys = [("InitiatorName", NAME), ("TargetName", DEFAULT_TARGET)];
    half_a_login.login_step(Stage::SecurityNegotiation, None, &keys).unwrap();
    // A login has fifteen seconds; a session that has logged in is not affected.
    let mut witness = attach(&server, &[]);
    for connection in [silent, half_a_header, half_a_login] {
        connection.wait_for_end_within(Duration::from_secs(25));
    }
    assert!(start.elapsed() > Duration::from_secs(10), "an honest initiator may need its time");
    witness.write(0, 0, vec![1; 512]).good();
    drop(witness);
    still_serves(server);
}

#[test]
fn challenges_do_not_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "secret-of-user").unwrap();
    let server = Server::start(&["mem:16M", "--chap", &format!("user:{}", secret.display())]);
    let mut challenges = HashSet::new();
    for _ in 0..64 {
        let mut initiator = ScriptedInitiator::connect(server.address());
        let keys = [("InitiatorName", NAME), ("TargetName", DEFAULT_TARGET), ("AuthMethod", "CHAP")];
        initiator.login_step(Stage::SecurityNegotiation, None, &keys).unwrap();
        let (_, answer) = initiator.login_step(Stage::SecurityNegotiation, None, &[("CHAP_A", "7,5")]).unwrap();
        let challenge = answer.split('\0').find_map(|pair| pair.strip_prefix("CHAP_C=0x")).expect("a challenge");
        assert!(challenge.len() >= 32, "{challenge} has less than 16 bytes");
        // A client that has seen one challenge must not be able to guess part of the next.
        for part in challenge.as_bytes().chunks(16) {
            assert!(challenges.insert(part.to_vec()), "a part of {challenge} came before");
        }
    }
    server.stop();
}

#[test]
fn noise_is_not_understood() {
    let server = server();
    let noisy = |seed: u64| {
        let mut initiator = ScriptedInitiator::connect(server.address());
        // The server may end the connection meanwhile.
        let _ = initiator.try_send_bytes(&random_bytes(seed, 48 + seed as usize * 37));
        initiator
    };
    let connections: Vec<ScriptedInitiator> = (0..200).map(noisy).collect();
    for connection in connections {
        // Noise may look like the first half of a login, which has fifteen seconds.
        connection.wait_for_end_within(Duration::from_secs(25));
    }
    for seed in 0..50 {
        let mut initiator = attach(&server, &[]);
        let _ = initiator.try_send_bytes(&random_bytes(seed, 4096));
    }
    still_serves(server);
}

#[test]
fn unfinished_logins_keep_little() {
    const LOGINS: usize = 200;
    const ALLOWED_KIB: u64 = 16 << 10;
    let server = server();
    let before_kib = server.memory_kib();
    let value = "v".repeat(8000);
    let mut unfinished = Vec::new();
    for _ in 0..LOGINS {
        let mut initiator = ScriptedInitiator::connect(server.address());
        let names = [("InitiatorName", NAME), ("TargetName", DEFAULT_TARGET)];
        initiator.login_step(Stage::SecurityNegotiation, None, &names).unwrap();
        for n in 0..60 {
            initiator.login_step(Stage::SecurityNegotiation, None, &[(&format!("X-{n}"), &value)]).unwrap();
        }
        unfinished.push(initiator);
    }
    let grown_kib = server.memory_kib().saturating_sub(before_kib);
    assert!(grown_kib < ALLOWED_KIB, "{grown_kib} KiB are kept for {LOGINS} logins");
    drop(unfinished);
    still_serves(server);
}

/// A server with `targets` targets beside the usual one.
fn server_of_many_targets(targets: usize) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    let first = format!("[[target]]\nname = \"{DEFAULT_TARGET}\"\nlun = [{{ number = 0, disk = \"mem:64M\" }}]\n");
    let others = (0..targets).map(|n| format!("[[target]]\nname = \"iqn.2026-11.org.example:disk-{n}\"\n"));
    fs::write(&config, format!("listen = [\"127.0.0.1:0\"]\n{first}{}", others.collect::<String>())).unwrap();
    Server::spawn(lunette().args(["serve", "--config"]).arg(config), 1)
}

fn discovery(server: &Server) -> ScriptedInitiator {
    let mut initiator = ScriptedInitiator::connect(server.address());
    let keys = [("SessionType", "Discovery"), ("MaxRecvDataSegmentLength", "262144")];
    let (response, _) = login_request(&mut initiator, &keys).unwrap();
    assert!(response.status.is_success());
    initiator
}

#[test]
fn repeated_requests_for_all_targets_do_not_fill_the_memory() {
    const SESSIONS: usize = 40;
    const ALLOWED_KIB: u64 = 16 << 10;
    let nothing = TargetTransferTag::RESERVED;
    let server = server_of_many_targets(300);
    let before_kib = server.memory_kib();
    let ask = || {
        let mut initiator = discovery(&server);
        text_request(&mut initiator, false, nothing, &b"SendTargets=All\0".repeat(256));
        initiator
    };
    let greedy: Vec<ScriptedInitiator> = (0..SESSIONS).map(|_| ask()).collect();
    // Each request has an answer, which its initiator does not read yet.
    for initiator in &greedy {
        assert_eq!(initiator.stream().peek(&mut [0]).unwrap(), 1);
    }
    let grown_kib = server.memory_kib().saturating_sub(before_kib);
    assert!(grown_kib < ALLOWED_KIB, "{grown_kib} KiB are kept for {SESSIONS} sessions");
    for mut initiator in greedy {
        let (pdu, _) = initiator.receive().unwrap();
        assert!(matches!(pdu, TargetPdu::Reject(_)), "{pdu:?}");
        text_request(&mut initiator, false, nothing, b"SendTargets=All\0");
        let (_, list) = initiator.receive().unwrap();
        assert_eq!(String::from_utf8_lossy(&list).matches("TargetName=").count(), 301);
    }
    still_serves(server);
}

#[test]
fn peers_do_not_fill_the_log() {
    const LEFT_OUT: &str = "lines were left out";
    let server = server();
    let mut tries = 0;
    while !server.log().contains(LEFT_OUT) {
        assert!(tries < 20_000, "each of {tries} bad connections has its line");
        let mut initiator = ScriptedInitiator::connect(server.address());
        initiator.send_bytes(&header(0x01, 0x80));
        initiator.wait_for_end_within(SOON);
        tries += 1;
    }
    // The user's signal is answered all the same.
    server.hang_up(&["there is no configuration file to read again"]);
    still_serves(server);
}
