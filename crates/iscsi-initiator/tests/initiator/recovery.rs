//! Recovery level 2: lost connections cost no command. Nothing else could save these loads: a session that is lost
//! stays lost.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lunette_initiator::{Disk, Options, Recoveries, SessionEvent, wait};
use lunette_pdu::{TaskManagementFunction, TaskManagementResponseCode};
use lunette_scsi::Lun;
use lunette_session::keys::{Choices, Offer};
use lunette_store::Store;
use lunette_store::filters::Delay;

use crate::connections::load_while;
use crate::fixture::{BLOCK_LEN, Relay, Target, blocks, disk, memory, options, until};

fn target(store: Arc<dyn Store>) -> Target {
    Target::with(store, |config| {
        let offer = &mut config.targets[0].offer;
        (offer.error_recovery_level, offer.time2retain_s) = (2, 20);
    })
}

fn recovering(connections: u32) -> Options {
    let mut options = options();
    options.offer = Offer {
        max_connections: connections,
        error_recovery_level: 2,
        time2retain_s: 20,
        max_outstanding_r2t: 1,
        ..options.offer
    };
    options.reconnect_for = Duration::ZERO;
    options
}

/// How many connections the session has, as its listener hears it.
fn counted(options: &mut Options) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&count);
    options.listener = Some(Arc::new(move |event: &SessionEvent| {
        let now = match event {
            SessionEvent::Connected { .. } => 1,
            SessionEvent::ConnectionAdded { connections }
            | SessionEvent::ConnectionMissing { connections, .. }
            | SessionEvent::ConnectionLost { connections, .. } => *connections,
            _ => return,
        };
        heard.store(now, Ordering::SeqCst);
    }));
    count
}

/// A disk over a relay, and how many connections its session has.
fn counted_disk(relay: &Relay, connections: u32) -> (Disk, Arc<AtomicUsize>) {
    let mut options = recovering(connections);
    let count = counted(&mut options);
    (disk(relay.address, options), count)
}

fn recoveries(disk: &Disk) -> Recoveries {
    wait(disk.session().recoveries()).unwrap()
}

/// Runs a load, and repeats an action while it runs, each time at another moment.
fn shaken(disk: &Disk, workers: u64, shakes: u64, mut shake: impl FnMut(u64)) {
    let done = Arc::new(AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    // After a failed assertion, the load ends by itself.
    let goes_on = |round| round < 10_000 && !is_over.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| load_while(disk, workers, goes_on, &done));
        for turn in 0..shakes {
            let before = done.load(Ordering::SeqCst);
            shake(turn);
            until("the load goes on", || done.load(Ordering::SeqCst) > before + 3);
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_load_goes_on_when_any_of_eight_connections_is_cut() {
    let target = target(memory());
    let relay = Relay::to(target.address);
    let (disk, connections) = counted_disk(&relay, 8);
    let cuts = 16;
    shaken(&disk, 8, cuts, |turn| {
        until("all connections", || connections.load(Ordering::SeqCst) == 8);
        assert!(relay.cut_any(turn as usize * 5));
    });
    until("all connections", || connections.load(Ordering::SeqCst) == 8);
    let counted = recoveries(&disk);
    assert!(counted.connections >= cuts - 1, "{counted:?}");
    assert!(counted.reassignments > 0, "{counted:?}");
}

#[test]
fn a_load_goes_on_when_the_only_connection_is_cut() {
    let target = target(memory());
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, recovering(1));
    shaken(&disk, 8, 16, |_| relay.cut());
    assert!(recoveries(&disk).connections > 5, "{:?}", recoveries(&disk));
}

#[test]
fn a_load_goes_on_when_all_connections_are_cut_at_once() {
    let target = target(memory());
    let relay = Relay::to(target.address);
    let (disk, connections) = counted_disk(&relay, 4);
    shaken(&disk, 8, 8, |_| {
        until("all connections", || connections.load(Ordering::SeqCst) == 4);
        relay.cut();
    });
    until("all connections", || connections.load(Ordering::SeqCst) == 4);
    assert!(recoveries(&disk).connections > 4, "{:?}", recoveries(&disk));
}

#[test]
fn commands_that_may_not_run_twice_run_once() {
    let store = Arc::new(Delay::new(memory()));
    let target = target(Arc::clone(&store) as _);
    let relay = Relay::to(target.address);
    let (disk, connections) = counted_disk(&relay, 2);
    store.hold();
    let twice = disk.clone();
    let compare = std::thread::spawn(move || wait(twice.compare_and_write(0, &[0; BLOCK_LEN], &[1; BLOCK_LEN])));
    store.wait_until_held(1);
    relay.cut();
    until("both connections", || connections.load(Ordering::SeqCst) == 2);
    store.release();
    compare.join().unwrap().expect("it did not run before, so it compares with zeros");
    assert!(wait(disk.read(0, 1)).unwrap().iter().all(|byte| *byte == 1));
}

#[test]
fn an_abort_reaches_a_task_of_a_lost_connection() {
    let store = Arc::new(Delay::new(memory()));
    let target = target(Arc::clone(&store) as _);
    let relay = Relay::to(target.address);
    let (disk, connections) = counted_disk(&relay, 1);
    store.hold();
    let reader = disk.clone();
    let read = std::thread::spawn(move || wait(reader.read(0, 1)).map(drop));
    store.wait_until_held(1);
    relay.cut();
    until("the connection", || connections.load(Ordering::SeqCst) == 1);
    let resetting = disk.clone();
    let reset = std::thread::spawn(move || {
        // There may be no connection yet.
        loop {
            let answer = wait(resetting.session().manage_tasks(TaskManagementFunction::LOGICAL_UNIT_RESET, Lun::ZERO));
            if let Ok(answer) = answer {
                return answer;
            }
            std::thread::yield_now();
        }
    });
    store.release();
    assert_eq!(reset.join().unwrap(), TaskManagementResponseCode::FUNCTION_COMPLETE);
    read.join().unwrap().expect("what a reset has ended is sent again");
}

#[test]
fn a_damaged_header_costs_only_its_connection() {
    let target = target(memory());
    let relay = Relay::to(target.address);
    let mut options = recovering(2);
    (options.offer.header_digest, options.offer.data_digest) = (Choices(0b10), Choices(0b10));
    let disk = disk(relay.address, options);
    let data = blocks(64, 3);
    for _ in 0..20 {
        wait(disk.write(0, &data, false)).unwrap();
        relay.damage();
        assert!(wait(disk.read(0, 64)).unwrap()[..] == data);
        assert!(relay.has_damaged());
    }
    assert!(!recoveries(&disk).is_empty());
}

#[test]
fn the_listener_hears_of_connections_and_not_of_sessions() {
    let target = target(memory());
    let relay = Relay::to(target.address);
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let mut options = recovering(2);
    options.listener = Some(Arc::new(move |event: &SessionEvent| {
        heard.lock().unwrap().push(match event {
            // Its target tells of the loss, too.
            SessionEvent::UnitAttention { .. } | SessionEvent::Async { .. } => return,
            SessionEvent::Connected { .. } => "connected",
            SessionEvent::ConnectionAdded { connections: 2 } => "two",
            SessionEvent::ConnectionLost { connections: 1, .. } => "one",
            _ => "something else",
        });
    }));
    let disk = disk(relay.address, options);
    relay.cut_one(0);
    until("the new connection", || events.lock().unwrap().len() == 4);
    assert_eq!(*events.lock().unwrap(), ["connected", "two", "one", "two"]);
    wait(disk.read(0, 1)).unwrap();
}

#[test]
fn a_connection_that_could_not_join_is_tried_again() {
    let target = target(memory());
    let relay = Relay::to(target.address);
    relay.lead_only(1);
    let (disk, connections) = counted_disk(&relay, 3);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    relay.lead_only(0);
    until("all connections", || connections.load(Ordering::SeqCst) == 3);
    wait(disk.read(0, 1)).unwrap();
}

#[test]
fn a_target_that_stays_away_for_too_long_loses_the_session() {
    let target = Target::with(memory(), |config| {
        let offer = &mut config.targets[0].offer;
        (offer.error_recovery_level, offer.time2retain_s) = (2, 1);
    });
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, recovering(2));
    relay.lead(None);
    relay.cut();
    let error = wait(disk.read(0, 1)).err().unwrap();
    assert!(error.to_string().contains("could not be recovered"), "{error}");
}
