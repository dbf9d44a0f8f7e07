//! Targets that lie or do nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use lunette_initiator::{BadAddress, ChapIdentity, Disk, Error, Session, SessionError, wait};
use lunette_pdu::LoginStatus;
use lunette_scsi::Lun;
use lunette_session::iscsi_initiator::LoginError;
use lunette_session::iscsi_target::Moved;
use lunette_session::{ChapAlgorithms, Credentials, Secret};
use lunette_testkit::{Connection, DISK_LEN, Script, ScriptedTarget, read_frame, serve};

use crate::fixture::{Relay, TARGET, Target, event_loop, memory, options, portal, until};

/// A listener that deals with each connection as `act` says.
fn peer(act: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    serve(listener, act);
    address
}

fn connect_error(address: SocketAddr, change: impl FnOnce(&mut lunette_initiator::Options)) -> Error {
    let mut options = options();
    change(&mut options);
    let initiator = event_loop();
    wait(Session::connect(&initiator, &portal(address), TARGET, options)).err().expect("no session")
}

#[test]
fn garbage_ends_the_login_with_the_rule_that_was_broken() {
    let address = peer(|mut stream| {
        let _ = stream.write_all(&[0xff; 4096]);
        let _ = stream.read(&mut [0; 4096]);
    });
    let error = connect_error(address, |_| {});
    assert!(matches!(error, Error::Session { why: SessionError::Protocol { .. }, .. }), "{error}");
}

#[test]
fn a_target_that_says_nothing_is_not_waited_for_for_ever() {
    let address = peer(|mut stream| while stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {});
    let error = connect_error(address, |options| options.timers.login = Duration::from_millis(200));
    assert!(matches!(error, Error::Session { why: SessionError::Login(LoginError::Timeout), .. }), "{error}");
}

#[test]
fn a_target_that_hangs_up_is_told_from_one_that_refuses() {
    let error = connect_error(peer(drop), |_| {});
    assert!(matches!(error, Error::Session { why: SessionError::Disconnected, .. }), "{error}");
}

/// A portal that sends its initiators to where `to` says.
pub(crate) fn redirect(status: LoginStatus, to: impl Fn(SocketAddr) -> String + Send + Sync + 'static) -> SocketAddr {
    let script = |here| Script {
        login: Box::new(move |answer| {
            (answer.response.status, answer.response.transit) = (status, false);
            answer.keys = vec![("TargetAddress".into(), format!("{},1", to(here)))];
        }),
        ..Script::default()
    };
    ScriptedTarget::start_with(script).address()
}

#[test]
fn a_login_that_cannot_begin_ends() {
    // It never hangs up.
    let address = peer(std::mem::forget);
    let same = |user: &str| Credentials { user: user.into(), secret: Secret::new(b"one for both of us".to_vec()) };
    let chap = ChapIdentity { initiator: same("us"), target: Some(same("them")), algorithms: ChapAlgorithms::ALL };
    let error = connect_error(address, |options| options.chap = Some(chap));
    assert!(matches!(error, Error::Session { why: SessionError::Login(LoginError::SameSecret), .. }), "{error}");
}

#[test]
fn a_redirection_is_followed() {
    let target = Target::new();
    let there = target.address;
    let address = redirect(LoginStatus::TARGET_MOVED_TEMPORARILY, move |_| there.to_string());
    let initiator = event_loop();
    let session = wait(Session::connect(&initiator, &portal(address), TARGET, options())).unwrap();
    assert!(wait(session.ping(vec![1])).unwrap());
}

#[test]
fn a_portal_that_redirects_to_itself_is_not_asked_again() {
    let address = redirect(LoginStatus::TARGET_MOVED_PERMANENTLY, |here| here.to_string());
    let error = connect_error(address, |_| {});
    assert!(matches!(error, Error::BadRedirect { why: BadAddress::Itself, .. }), "{error}");
}

#[test]
fn what_goes_wrong_behind_a_redirection_names_who_redirected() {
    let there = peer(drop);
    let here = redirect(LoginStatus::TARGET_MOVED_TEMPORARILY, move |_| there.to_string());
    let error = connect_error(here, |_| {});
    let Error::Redirected { from, error } = error else { panic!("{error}") };
    assert_eq!(from, here.to_string());
    assert!(matches!(*error, Error::Session { ref portal, .. } if *portal == there.to_string()), "{error}");
}

/// A target that sends its initiators on.
fn mover(to: &[SocketAddr], permanent: bool) -> Target {
    let addresses = to.iter().map(|address| format!("{address},1")).collect();
    Target::with(memory(), move |config| config.targets[0].moved = Some(Moved { addresses, permanent }))
}

#[test]
fn our_target_sends_its_initiators_on() {
    for permanent in [false, true] {
        let target = Target::new();
        let mover = mover(&[target.address], permanent);
        let session = wait(Session::connect(&event_loop(), &portal(mover.address), TARGET, options())).unwrap();
        assert!(wait(session.ping(vec![1])).unwrap());
    }
}

#[test]
fn home_changes_by_a_permanent_redirection_from_there_alone() {
    for (first, second, asked_again) in
        [(true, false, false), (true, true, false), (false, true, true), (false, false, true)]
    {
        let target = Target::new();
        let end = Relay::to(target.address);
        let middle = mover(&[end.address], second);
        let begin = mover(&[middle.address], first);
        let home = Relay::to(begin.address);
        let session = wait(Session::connect(&event_loop(), &portal(home.address), TARGET, options())).unwrap();
        end.cut();
        // A ping that finds no connection is refused.
        until("a new session", || wait(session.ping(vec![1])).unwrap_or(false));
        assert_eq!(end.accepted(), 2);
        assert_eq!(home.accepted() == 2, asked_again, "{first}, then {second}");
    }
}

#[test]
fn two_targets_that_send_to_each_other_are_given_up() {
    let free = Relay::to(Target::new().address);
    let back = mover(&[free.address], false);
    let forth = mover(&[back.address], true);
    free.lead(Some(forth.address));
    let error = connect_error(forth.address, |_| {});
    assert!(matches!(error, Error::TooManyRedirects { .. }), "{error}");
}

#[test]
fn a_disk_far_away_is_open_after_two_rounds_of_commands() {
    // It answers only when all commands of a round are there: one that comes after the answer to another never comes.
    const ROUNDS: [usize; 2] = [3, 6];
    let address = peer(|mut stream| {
        let here = stream.local_addr().unwrap();
        let mut connection = Connection::new(ScriptedTarget::new(here, Script::default()));
        let mut rounds = ROUNDS.into_iter();
        let (mut held, mut wanted) = (Vec::new(), 1);
        while let Ok(frame) = read_frame(&mut stream, connection.format()) {
            held.push(frame);
            if held.len() < wanted {
                continue;
            }
            for frame in held.drain(..) {
                for (header, data) in connection.answer(&frame) {
                    stream.write_all(&connection.format().encode(&header, &[], &data)).unwrap();
                }
                connection.answered();
            }
            wanted = if connection.is_logged_in() { rounds.next().unwrap_or(1) } else { 1 };
        }
    });
    let session = wait(Session::connect(&event_loop(), &portal(address), TARGET, options())).unwrap();
    let disk = wait(Disk::open(session, Lun::ZERO)).unwrap();
    assert_eq!(disk.facts().len_bytes(), DISK_LEN as u64);
    assert_eq!(disk.facts().serial_number.as_deref(), Some("serial-1"));
}
