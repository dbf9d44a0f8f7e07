//! Sessions with several connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lunette_initiator::{Disk, Observation, Options, Session, SessionEvent, wait};
use lunette_pdu::{TaskManagementFunction, TaskManagementResponseCode};
use lunette_scsi::Lun;

use crate::fixture::{Relay, TARGET, Target, blocks, connect, disk, event_loop, memory, options, portal, until};

fn several(connections: u32) -> Options {
    let mut options = options();
    options.offer.max_connections = connections;
    options
}

/// Each worker writes and reads blocks of its own, in pieces of different lengths.
pub(crate) fn load(disk: &Disk, workers: u64, rounds: u64, done: &Arc<AtomicU64>) {
    load_while(disk, workers, |round| round < rounds, done);
}

/// A load of rounds for as long as `goes_on` says so of the next one.
pub(crate) fn load_while(disk: &Disk, workers: u64, goes_on: impl Fn(u64) -> bool + Sync, done: &Arc<AtomicU64>) {
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (disk, done, goes_on) = (disk.clone(), Arc::clone(done), &goes_on);
            scope.spawn(move || {
                for round in (0..).take_while(|round| goes_on(*round)) {
                    let (len, seed) = (1 + (round * 37 + worker) % 600, (round * 16 + worker) as u8);
                    let data = blocks(len as usize, seed);
                    wait(disk.write(worker * 1000, &data, false)).unwrap();
                    let back = wait(disk.read(worker * 1000, len as u32)).unwrap();
                    assert!(back[..] == data, "worker {worker}, round {round}");
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
}

#[test]
fn eight_connections_carry_a_load() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, several(8));
    assert_eq!(relay.accepted(), 8, "all are made before the session is given out");
    assert_eq!(disk.session().parameters().max_connections, 8);
    load(&disk, 16, 40, &Arc::default());
    assert_eq!(relay.accepted(), 8, "none was lost");
}

#[test]
fn a_load_goes_on_when_one_of_eight_connections_is_lost() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, several(8));
    let done = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| load(&disk, 8, 60, &done));
        for cut in 0..3 {
            until("the load", || done.load(Ordering::SeqCst) >= 60 * (cut + 1));
            until("all connections", || relay.accepted() == 8 * (cut + 1));
            relay.cut_one(8 * cut + cut + 1);
        }
    });
    until("a session as large as before", || relay.accepted() == 32);
}

#[test]
fn a_target_that_takes_fewer_connections_gets_fewer() {
    for (takes, gets) in [(1, 1), (3, 3), (200, 64)] {
        let target = Target::with(memory(), move |config| config.targets[0].offer.max_connections = takes);
        let relay = Relay::to(target.address);
        let disk = disk(relay.address, several(if takes > 8 { 1000 } else { 8 }));
        assert_eq!(relay.accepted(), gets);
        load(&disk, 8, 3, &Arc::default());
    }
}

#[test]
fn a_connection_that_cannot_be_made_is_left_out() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    relay.lead_only(3);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&heard);
    let mut options = several(5);
    options.listener = Some(Arc::new(move |event: &SessionEvent| match event {
        SessionEvent::ConnectionAdded { .. } => hear.lock().unwrap().push("added"),
        SessionEvent::ConnectionMissing { .. } => hear.lock().unwrap().push("missing"),
        _ => {}
    }));
    let disk = disk(relay.address, options);
    let mut heard = heard.lock().unwrap().clone();
    heard.sort_unstable();
    assert_eq!(heard, ["added", "added", "missing", "missing"]);
    load(&disk, 4, 10, &Arc::default());
}

#[test]
fn task_management_covers_all_connections() {
    let target = Target::new();
    let disk = disk(target.address, several(4));
    let done = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| load(&disk, 8, 40, &done));
        for _ in 0..10 {
            let reset = disk.session().manage_tasks(TaskManagementFunction::ABORT_TASK_SET, Lun::ZERO);
            assert_eq!(wait(reset).unwrap(), TaskManagementResponseCode::FUNCTION_COMPLETE);
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 320, "what was aborted is sent again");
}

#[test]
fn a_connection_that_ends_before_the_answer_to_the_logout_is_not_lost() {
    for level in [0, 2] {
        let target = Target::with(memory(), move |config| config.targets[0].offer.error_recovery_level = level);
        let relay = Relay::to(target.address);
        let losses = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&losses);
        let mut options = several(2);
        options.offer.error_recovery_level = level;
        options.listener = Some(Arc::new(move |event: &SessionEvent| {
            if let SessionEvent::ConnectionLost { .. } | SessionEvent::Lost { .. } = event {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }));
        let session = disk(relay.address, options).session().clone();
        relay.stall();
        let before = relay.bytes_of_clients();
        let closing = session.clone();
        let closing = std::thread::spawn(move || wait(closing.close()));
        until("the logout", || relay.bytes_of_clients() > before);
        relay.cut_one(1);
        // When this has its answer, the end of the connection has been dealt with; or the session is over already.
        let _ = wait(session.recoveries());
        relay.go_on();
        closing.join().unwrap().unwrap();
        assert_eq!(losses.load(Ordering::SeqCst), 0, "recovery level {level}");
    }
}

#[test]
fn the_last_handle_waits_for_the_answer_to_the_logout() {
    for connections in [1, 4] {
        let target = Target::new();
        let relay = Relay::to(target.address);
        let disk = disk(relay.address, several(connections));
        relay.stall();
        let before = relay.bytes_of_clients();
        let dropped = std::thread::spawn(move || drop(disk));
        until("the logout", || relay.bytes_of_clients() > before);
        assert!(!dropped.is_finished(), "the answer has not come");
        relay.go_on();
        dropped.join().unwrap();
    }
}

#[test]
fn a_session_of_many_connections_is_closed() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, several(8));
    let session = disk.session().clone();
    drop(disk);
    wait(session.close()).unwrap();
    until("the end of all connections", || relay.open() == 0);
}

#[test]
fn a_session_tells_of_its_connections_and_its_window() {
    let target = Target::with(memory(), |config| config.targets[0].offer.max_connections = 3);
    let disk = disk(target.address, several(3));
    let before = wait(disk.session().observe()).unwrap();
    assert_eq!(before.connections.len(), 3);
    assert!(before.command_window >= 128, "{before:?}");
    let mut data = vec![0; 1 << 20];
    wait(disk.read_into(0, &mut data)).unwrap();
    let after = wait(disk.session().observe()).unwrap();
    let received = |observation: &Observation| observation.connections.iter().map(|of| of.received_bytes).sum::<u64>();
    assert!(received(&after) - received(&before) > 1 << 20, "{before:?} {after:?}");
}

#[test]
fn a_session_asks_the_system_for_what_its_options_say() {
    let target = Target::new();
    let mut refused = options();
    refused.tcp.congestion_control = Some("none-such".into());
    let error = wait(Session::connect(&event_loop(), &portal(target.address), TARGET, refused)).err().unwrap();
    assert!(error.to_string().contains("none-such"), "{error}");
    let mut small = options();
    small.tcp.receive_buffer_bytes = Some(16 << 10);
    let session = connect(target.address, small);
    // The window leaves room for the system's own accounts in the buffer, which is twice what was asked for.
    let window = wait(session.observe()).unwrap().connections[0].receive_window_bytes;
    assert!(window <= 32 << 10, "{window}");
}
