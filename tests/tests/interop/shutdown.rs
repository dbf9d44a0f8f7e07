//! SIGTERM: sessions are asked to log out, everything ends in an orderly way, and a second signal does not wait.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lunette_pdu::{AsyncEvent, LogoutReason, LogoutRequest, TargetPdu};
use lunette_testkit::{ScriptedInitiator, requests};
use lunette_tests::{Server, attach};

const LIMIT: Duration = Duration::from_secs(10);

/// Writes the `n`-th eight blocks, until the connection ends.
fn write(initiator: &mut ScriptedInitiator, n: u32) -> io::Result<()> {
    let itt = initiator.try_start_write(0, n * 8 % 65_536, vec![n as u8; 4096], 0)?;
    initiator.try_finish(itt)?.good();
    Ok(())
}

#[test]
fn a_server_without_sessions_stops() {
    Server::start(&["mem:16M"]).stop();
}

#[test]
fn sessions_that_do_not_log_out_are_ended() {
    let server = Server::start(&["mem:16M"]);
    let sessions: Vec<ScriptedInitiator> = (0..3).map(|_| attach(&server, &[])).collect();
    let silent = ScriptedInitiator::connect(server.address());
    server.stop();
    for session in sessions {
        let before = session.wait_for_end_within(LIMIT);
        let asked = |(pdu, _): &_| matches!(pdu, TargetPdu::AsyncMessage(message) if message.event == AsyncEvent::LOGOUT_REQUEST);
        assert!(before.iter().any(asked), "no request to log out, only {before:?}");
    }
    silent.wait_for_end_within(LIMIT);
}

#[test]
fn an_initiator_that_logs_out_gets_its_answer() {
    let server = Server::start(&["mem:16M"]);
    let mut initiator = attach(&server, &[]);
    server.terminate();
    initiator.wait_for_logout_request();
    let logout = requests::logout(initiator.next_itt().0, LogoutReason::CLOSE_SESSION);
    let logout = LogoutRequest { immediate: false, cmd_sn: initiator.next_cmd_sn(), ..logout };
    initiator.send(logout.emit(), &[]);
    let before_end = initiator.wait_for_end_within(LIMIT);
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
        let mut initiator = attach(&server, &[]);
        let load = scope.spawn(move || {
            let mut acknowledged = 0_u32;
            while write(&mut initiator, acknowledged).is_ok() {
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
    let mut initiator = attach(&server, &[]);
    for n in acknowledged.saturating_sub(64)..acknowledged {
        assert_eq!(initiator.read(0, n * 8 % 65_536, 8).good(), vec![n as u8; 4096], "write {n} of {acknowledged}");
    }
    drop(initiator);
    server.stop();
}

#[test]
fn a_second_signal_does_not_wait() {
    let server = Server::start(&["mem:16M"]);
    let mut initiator = attach(&server, &[]);
    server.terminate();
    initiator.wait_for_logout_request();
    server.terminate();
    // The initiator has three seconds to log out, and does not.
    server.wait(Duration::from_secs(2));
}
