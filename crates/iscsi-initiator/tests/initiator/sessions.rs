//! Logging in, asking, ending.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lunette_initiator::{
    ChapIdentity, Completion, Disk, Error, Initiator, Request, Session, SessionError, SessionEvent, discover, wait,
};
use lunette_pdu::{TaskManagementFunction, TaskManagementResponseCode};
use lunette_scsi::{Lun, requests};
use lunette_session::iscsi_initiator::LoginError;
use lunette_session::{Authentication, ChapAlgorithms, Credentials, Secret};
use lunette_store::filters::Delay;

use crate::fixture::{
    BLOCK_LEN, LIMIT, Relay, TARGET, Target, connect, disk, event_loop, memory, options, portal, until,
};

#[test]
fn targets_are_found() {
    let target = Target::new();
    let initiator = event_loop();
    let found = wait(discover(&initiator, &portal(target.address), options())).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, TARGET);
    assert_eq!(found[0].addresses, [format!("{},1", target.address)]);
}

#[test]
fn a_ping_comes_back() {
    let target = Target::new();
    let session = connect(target.address, options());
    assert!(wait(session.ping(b"are you there?".to_vec())).unwrap());
}

#[test]
fn a_target_of_another_name_is_refused() {
    let target = Target::new();
    let initiator = event_loop();
    let refused = wait(Session::connect(&initiator, &portal(target.address), "iqn.2026-11.org.example:no", options()));
    let error = refused.err().unwrap();
    assert!(matches!(&error, Error::Session { why: SessionError::Login(LoginError::Refused(_)), .. }), "{error}");
}

#[test]
fn a_port_where_nobody_listens_is_told_by_name() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let initiator = event_loop();
    let error = wait(Session::connect(&initiator, &portal(free), TARGET, options())).err().unwrap();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(error.to_string().contains(&free.to_string()), "{error}");
}

fn credentials(user: &str, secret: &str) -> Credentials {
    Credentials { user: user.into(), secret: Secret::new(secret.into()) }
}

fn guarded() -> Target {
    Target::with(memory(), |config| {
        config.targets[0].authentication = Authentication::Chap {
            initiators: vec![credentials("alice", "alice's password")],
            target: Some(credentials("disk", "the disk's own one")),
            algorithms: ChapAlgorithms::ALL,
        };
    })
}

#[test]
fn both_sides_prove_who_they_are() {
    let target = guarded();
    for (initiator, of_target, expected) in [
        (Some("alice's password"), None, "in"),
        (Some("alice's password"), Some("the disk's own one"), "in"),
        (Some("alice's password"), Some("somebody else's one"), "impostor"),
        (Some("not her password"), None, "refused"),
        (None, None, "refused"),
    ] {
        let mut options = options();
        options.chap = initiator.map(|secret| ChapIdentity {
            initiator: credentials("alice", secret),
            target: of_target.map(|secret| credentials("disk", secret)),
            algorithms: ChapAlgorithms::ALL,
        });
        let initiator = event_loop();
        let end = match wait(Session::connect(&initiator, &portal(target.address), TARGET, options)) {
            Ok(_) => "in",
            Err(Error::Session { why: SessionError::Login(LoginError::Refused(_)), .. }) => "refused",
            Err(Error::Session { why: SessionError::Login(LoginError::TargetAuthentication), .. }) => "impostor",
            Err(_) => "something else",
        };
        assert_eq!(end, expected);
    }
}

#[test]
fn many_requests_run_at_once_and_each_ends_once() {
    let target = Target::new();
    let disk = disk(target.address, options());
    let (tx, rx) = channel();
    for number in 0..1000_u64 {
        let mut request = Request::new(Lun::ZERO, requests::read(number, 1, false));
        request.data_in = Some(disk.session().buffer(BLOCK_LEN).unwrap());
        let tx = tx.clone();
        disk.session().submit(
            request,
            Completion::call(move |outcome| {
                let _ = tx.send((number, outcome.result.is_ok_and(|reply| reply.ok().is_ok())));
            }),
        );
    }
    drop(tx);
    let mut ended: Vec<(u64, bool)> = rx.iter().collect();
    ended.sort_unstable();
    assert_eq!(ended, (0..1000).map(|number| (number, true)).collect::<Vec<_>>());
}

#[test]
fn task_management_is_answered() {
    let target = Target::new();
    let session = connect(target.address, options());
    let reset = wait(session.manage_tasks(TaskManagementFunction::LOGICAL_UNIT_RESET, Lun::ZERO)).unwrap();
    assert_eq!(reset, TaskManagementResponseCode::FUNCTION_COMPLETE);
}

/// A disk whose store ends nothing until it is told to.
fn held() -> (Target, Arc<Delay>) {
    let store = Arc::new(Delay::new(memory()));
    (Target::over(Arc::clone(&store) as _), store)
}

#[test]
fn a_request_that_is_let_go_of_is_aborted_and_its_memory_comes_home() {
    let (target, store) = held();
    let disk = disk(target.address, options());
    let pool = disk.session().initiator().pool().clone();
    store.hold();
    let mut request = Request::new(Lun::ZERO, requests::read(0, 1, false));
    request.data_in = Some(disk.session().buffer(BLOCK_LEN).unwrap());
    let pending = disk.session().execute(request);
    store.wait_until_held(1);
    assert!(pool.used_bytes() > 0);
    drop(pending);
    // The target answers the abort when its store has let go.
    store.release();
    until("the buffer is back", || pool.used_bytes() == 0);
    wait(disk.read(0, 1)).unwrap();
}

#[test]
fn a_request_that_takes_too_long_is_aborted() {
    let (target, store) = held();
    let relay = Relay::to(target.address);
    let mut options = options();
    options.request_timeout = Duration::from_millis(300);
    options.abort_timeout = LIMIT;
    let disk = disk(relay.address, options);
    store.hold();
    let reader = disk.clone();
    let read = std::thread::spawn(move || wait(reader.read(0, 1)));
    store.wait_until_held(1);
    // Nothing else is sent meanwhile: what comes is the abort. The store lets go only then.
    let sent = relay.bytes_of_clients();
    until("the abort", || relay.bytes_of_clients() > sent);
    store.release();
    let error = read.join().unwrap().err().unwrap();
    assert!(matches!(error, Error::TimedOut { command: "READ(10)", .. }), "{error}");
    wait(disk.read(0, 1)).unwrap();
}

#[test]
fn a_closed_session_ends_what_runs_and_takes_nothing_more() {
    let (target, store) = held();
    let disk = disk(target.address, options());
    store.hold();
    let pending = disk.session().execute(Request::new(Lun::ZERO, requests::synchronize_cache()));
    store.wait_until_held(1);
    let session = disk.session().clone();
    let closing = std::thread::spawn(move || wait(session.close()));
    let outcome = wait(pending);
    assert!(matches!(outcome.result, Err(Error::Closed)), "{outcome:?}");
    closing.join().unwrap().unwrap();
    assert!(matches!(wait(disk.read(0, 1)), Err(Error::Closed)));
}

#[test]
fn the_last_handle_logs_out() {
    let target = Target::new();
    let initiator = event_loop();
    let session = wait(Session::connect(&initiator, &portal(target.address), TARGET, options())).unwrap();
    let disk = wait(Disk::open(session.clone(), Lun::ZERO)).unwrap();
    drop(session);
    wait(disk.read(0, 1)).unwrap();
    drop(disk);
    // The same port again, by another session: the event loop is alive.
    wait(Session::connect(&initiator, &portal(target.address), TARGET, options())).unwrap();
}

#[test]
fn a_session_that_nobody_waits_for_ends() {
    let (logged_in, login) = channel();
    let (closed, close) = channel();
    let mut options = options();
    // The event loop drops the listener with the session.
    let end = OnDrop(closed);
    options.listener = Some(Arc::new(move |event: &SessionEvent| {
        let _ = &end;
        if matches!(event, SessionEvent::Connected { .. }) {
            let _ = logged_in.send(());
        }
    }));
    let target = Target::new();
    let initiator = event_loop();
    let portal = portal(target.address);
    let mut connecting = Box::pin(Session::connect(&initiator, &portal, TARGET, options));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(connecting.as_mut().poll(&mut cx).is_pending());
    drop(connecting);
    login.recv_timeout(LIMIT).unwrap();
    close.recv_timeout(LIMIT).expect("the session is closed");
}

struct OnDrop(std::sync::mpsc::Sender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn closing_twice_ends_twice() {
    let target = Target::new();
    let session = connect(target.address, options());
    let mut cx = Context::from_waker(Waker::noop());
    let (mut first, second) = (Box::pin(session.clone().close()), session.close());
    // It begins here, and may have ended before the second one begins.
    let begun = first.as_mut().poll(&mut cx);
    wait(second).unwrap();
    if let Poll::Ready(ended) = begun { ended } else { wait(first) }.unwrap();
}

#[test]
fn requests_end_with_the_event_loop() {
    let (target, store) = held();
    let disk = disk(target.address, options());
    let pool = disk.session().initiator().pool().clone();
    store.hold();
    let (tx, rx) = channel();
    let data_in = disk.session().buffer(BLOCK_LEN).unwrap();
    let request = Request::new(Lun::ZERO, requests::read(0, 1, false)).with_data_in(data_in);
    disk.session().submit(request, Completion::call(move |outcome| drop(tx.send(outcome))));
    store.wait_until_held(1);
    drop(disk);
    let outcome = rx.recv_timeout(LIMIT).expect("it ends");
    assert!(matches!(outcome.result, Err(Error::Closed)) && outcome.data_in.is_some(), "{outcome:?}");
    drop(outcome);
    assert_eq!(pool.used_bytes(), 0);
}

#[test]
fn a_panic_of_a_completion_leaves_nobody_waiting() {
    let (target, store) = held();
    let disk = disk(target.address, options());
    store.hold();
    let pending = disk.session().execute(Request::new(Lun::ZERO, requests::synchronize_cache()));
    store.wait_until_held(1);
    let panics = Completion::call(|_| panic!("a bug of the caller"));
    disk.session().submit(Request::from_cdb(Lun::ZERO, &[0; 4096]), panics);
    assert!(matches!(wait(pending).result, Err(Error::Closed)));
    assert!(matches!(wait(disk.read(0, 1)), Err(Error::Closed)), "and what comes later neither");
    assert!(matches!(wait(disk.session().ping(Vec::new())), Err(Error::Closed)));
}

#[test]
fn a_question_without_an_answer_ends() {
    let (target, store) = held();
    let mut options = options();
    options.request_timeout = Duration::from_millis(200);
    let disk = disk(target.address, options);
    store.hold();
    let pending = disk.session().execute(Request::new(Lun::ZERO, requests::synchronize_cache()).with_timeout(LIMIT));
    store.wait_until_held(1);
    // A target ends a reset when its store has let go.
    let reset = wait(disk.session().manage_tasks(TaskManagementFunction::LOGICAL_UNIT_RESET, Lun::ZERO));
    assert!(matches!(reset, Err(Error::TimedOut { .. })), "{reset:?}");
    drop(pending);
    store.release();
}

#[test]
fn handles_and_futures_go_to_other_threads() {
    fn send<T: Send>(_: &T) {}
    fn shared<T: Send + Sync>() {}
    shared::<Initiator>();
    shared::<Session>();
    shared::<Disk>();
    shared::<lunette_initiator::RemoteStore>();
    let target = Target::new();
    let disk = disk(target.address, options());
    send(&disk.read(0, 1));
    send(&disk.flush());
    send(&disk.session().clone().close());
}
