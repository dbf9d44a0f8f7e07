//! SIGTERM: sessions are asked to log out, everything ends in an orderly way, and a second signal does not wait.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lunette_pdu::{AsyncEvent, Cid, LogoutReason, LogoutRequest, SerialNumber, TargetPdu};
use lunette_tests::{Initiator, Server};

const LIMIT: Duration = Duration::from_secs(10);

/// Waits for the request to log out, which shows that the signal has arrived.
fn wait_for_logout_request(initiator: &mut Initiator) {
    loop {
        let (pdu, _) = initiator.receive().expect("the request to log out comes first");
        if matches!(pdu, TargetPdu::AsyncMessage(message) if message.event == AsyncEvent::LOGOUT_REQUEST) {
            return;
        }
    }
}

#[test]
fn a_server_without_sessions_stops() {
    Server::start(&["mem:16M"]).stop();
}

#[test]
fn sessions_that_do_not_log_out_are_ended() {
    let server = Server::start(&["mem:16M"]);
    let sessions: Vec<Initiator> = (0..3).map(|_| Initiator::attach(&server, &[]).unwrap()).collect();
    let silent = Initiator::connect(server.address()).unwrap();
    server.stop();
    for session in sessions {
        let before = session.wait_for_end(LIMIT);
        let asked = |(pdu, _): &_| matches!(pdu, TargetPdu::AsyncMessage(message) if message.event == AsyncEvent::LOGOUT_REQUEST);
        assert!(before.iter().any(asked), "no request to log out, only {before:?}");
    }
    silent.wait_for_end(LIMIT);
}

#[test]
fn an_initiator_that_logs_out_gets_its_answer() {
    let server = Server::start(&["mem:16M"]);
    let mut initiator = Initiator::attach(&server, &[]).unwrap();
    server.terminate();
    wait_for_logout_request(&mut initiator);
    let logout = LogoutRequest {
        immediate: false,
        reason: LogoutReason::CLOSE_SESSION,
        itt: initiator.next_itt(),
        cid: Cid(0),
        cmd_sn: initiator.next_cmd_sn(),
        exp_stat_sn: SerialNumber(0),
    };
    initiator.send(logout.emit(), &[]).unwrap();
    let before_end = initiator.wait_for_end(LIMIT);
    assert!(matches!(before_end[..], [(TargetPdu::LogoutResponse(_), _)]), "{before_end:?}");
    let (status, log) = server.wait(LIMIT);
    assert!(status.success(), "{status}\n{log}");
}

#[test]
fn a_busy_server_stops_and_keeps_what_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let arguments = [disk.to_str().unwrap(), "--create", "64M"];
    let server = Server::start(&arguments);
    let (progress, rounds) = mpsc::channel();
    let acknowledged = thread::scope(|scope| {
        let mut initiator = Initiator::attach(&server, &[]).unwrap();
        let load = scope.spawn(move || {
            let mut acknowledged = 0_u32;
            while initiator.write(acknowledged * 8 % 65_536, vec![acknowledged as u8; 4096]).is_ok() {
                acknowledged += 1;
                // The receiver is gone once the server is told to stop.
                let _ = progress.send(());
            }
            acknowledged
        });
        for _ in 0..100 {
            rounds.recv_timeout(LIMIT).expect("writes go on");
        }
        drop(rounds);
        server.terminate();
        load.join().unwrap()
    });
    let (status, log) = server.wait(LIMIT);
    assert!(status.success(), "{status}\n{log}");

    let server = Server::start(&arguments);
    let mut initiator = Initiator::attach(&server, &[]).unwrap();
    for n in acknowledged.saturating_sub(64)..acknowledged {
        assert_eq!(initiator.read(n * 8 % 65_536, 8).unwrap(), vec![n as u8; 4096], "write {n} of {acknowledged}");
    }
    drop(initiator);
    server.stop();
}

#[test]
fn a_second_signal_does_not_wait() {
    let server = Server::start(&["mem:16M"]);
    let mut initiator = Initiator::attach(&server, &[]).unwrap();
    server.terminate();
    wait_for_logout_request(&mut initiator);
    server.terminate();
    // The initiator has three seconds to log out, and does not.
    server.wait(Duration::from_secs(2));
}
