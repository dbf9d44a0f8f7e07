//! Tests of lost connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lunette_initiator::{Error, RemoteStore, Request, SessionEvent, wait};
use lunette_pdu::LoginStatus;
use lunette_scsi::{Lun, requests};
use lunette_session::keys::Choices;
use lunette_store::filters::{Delay, PowerLoss};
use lunette_store::{Op, Store, StoreError, execute};

use crate::fixture::{BLOCK_LEN, Relay, STORE_LEN, Target, blocks, disk, memory, options, until};

#[test]
fn a_load_goes_on_over_lost_connections() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, options());
    let (done, cuts) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, cut) = (Arc::clone(&done), Arc::clone(&cuts));
    let worker = std::thread::spawn(move || {
        for round in 0..400_u64 {
            // A cut for every 60 rounds, somewhere in the last of them.
            until("the cut", || cut.load(Ordering::SeqCst) + 1 >= round / 60);
            let data = blocks(8, round as u8);
            wait(disk.write(round % 16 * 8, &data, false)).unwrap();
            assert!(wait(disk.read(round % 16 * 8, 8)).unwrap()[..] == data, "round {round}");
            counted.store(round + 1, Ordering::SeqCst);
        }
    });
    for cut in 1..=5 {
        until("the load goes on", || done.load(Ordering::SeqCst) >= cut * 60);
        relay.cut();
        // The next cut would find no connection.
        until("the next connection", || relay.accepted() == cut + 1);
        cuts.store(cut, Ordering::SeqCst);
    }
    worker.join().unwrap();
}

#[test]
fn commands_that_may_not_run_twice_end_in_doubt() {
    let store = Arc::new(Delay::new(memory()));
    let target = Target::over(Arc::clone(&store) as _);
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, options());
    store.hold();
    let twice = disk.clone();
    let compare = std::thread::spawn(move || wait(twice.compare_and_write(0, &[0; BLOCK_LEN], &[1; BLOCK_LEN])));
    let reader = disk.clone();
    let read = std::thread::spawn(move || wait(reader.read(100, 1)).map(drop));
    store.wait_until_held(2);
    relay.cut();
    let end = compare.join().unwrap();
    assert!(matches!(end, Err(Error::InDoubt { command: "COMPARE AND WRITE" })), "{end:?}");
    store.release();
    read.join().unwrap().expect("a read is sent again");
}

#[test]
fn a_target_that_stays_away_ends_in_an_error() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let mut options = options();
    options.reconnect_for = Duration::from_millis(400);
    options.listener = Some(Arc::new(move |event: &SessionEvent| {
        let name = match event {
            SessionEvent::Connected { .. } => "connected",
            SessionEvent::Lost { .. } => "lost",
            SessionEvent::UnitAttention { .. } => return,
            SessionEvent::ConnectionAdded { .. } => "added",
            SessionEvent::ConnectionMissing { .. } => "missing",
            SessionEvent::ConnectionLost { .. } => "connection lost",
            SessionEvent::Async { .. } => "async",
            SessionEvent::Over(_) => "over",
            other => panic!("{other:?}"),
        };
        heard.lock().unwrap().push(name);
    }));
    let disk = disk(relay.address, options);
    relay.lead(None);
    relay.cut();
    let error = wait(disk.read(0, 1)).err().unwrap();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(matches!(wait(disk.read(0, 1)), Err(Error::Lost { .. })), "and stays an error");
    assert_eq!(*events.lock().unwrap(), ["connected", "lost", "over"]);
}

#[test]
fn without_reconnection_the_first_loss_is_the_last() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let mut options = options();
    options.reconnect_for = Duration::ZERO;
    let disk = disk(relay.address, options);
    relay.cut();
    assert!(matches!(wait(disk.read(0, 1)), Err(Error::Lost { .. })));
    assert_eq!(relay.accepted(), 1);
}

#[test]
fn a_session_follows_its_target_to_a_new_process() {
    let first = Target::new();
    let relay = Relay::to(first.address);
    let disk = disk(relay.address, options());
    wait(disk.write(0, &blocks(1, 1), true)).unwrap();
    let second = Target::new();
    relay.lead(Some(second.address));
    relay.cut();
    // Another store: what a new process without the old one's medium would show.
    assert!(wait(disk.read(0, 1)).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn a_raw_command_sees_the_unit_attention_of_the_new_nexus() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, options());
    relay.cut();
    until("a new connection", || relay.accepted() == 2);
    let reply = wait(disk.session().execute(Request::new(Lun::ZERO, requests::test_unit_ready()))).result.unwrap();
    assert!(reply.ok().unwrap_err().to_string().contains("I_T NEXUS LOSS"), "{reply:?}");
}

#[test]
fn damaged_bytes_cost_the_connection_and_nothing_else() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let mut options = options();
    (options.offer.header_digest, options.offer.data_digest) = (Choices(0b10), Choices(0b10));
    let disk = disk(relay.address, options);
    let data = blocks(64, 3);
    wait(disk.write(0, &data, false)).unwrap();
    relay.damage();
    assert!(wait(disk.read(0, 64)).unwrap()[..] == data);
    assert!(relay.has_damaged());
    assert_eq!(relay.accepted(), 2);
}

#[test]
fn a_target_that_moved_and_went_is_looked_for_where_it_was_first() {
    let (first, second) = (Target::new(), Target::new());
    let (elsewhere, back) = (Relay::to(first.address), Relay::to(second.address));
    let (there, moved) = (elsewhere.address, Arc::new(AtomicU64::new(0)));
    let (lead, count) = (back.address, Arc::clone(&moved));
    // Sends the first one elsewhere, and serves the others.
    let home = crate::scripted_targets::redirect(LoginStatus::TARGET_MOVED_TEMPORARILY, move |_| {
        let to = if count.fetch_add(1, Ordering::SeqCst) == 0 { there } else { lead };
        to.to_string()
    });
    let disk = disk(home, options());
    elsewhere.lead(None);
    elsewhere.cut();
    wait(disk.read(0, 1)).unwrap();
    assert_eq!(back.accepted(), 1);
}

#[test]
fn a_flush_does_not_answer_for_what_a_power_cut_may_have_taken() {
    let medium: Arc<dyn Store> = Arc::new(PowerLoss::new(STORE_LEN).unwrap());
    let (target, restarted) = (Target::over(Arc::clone(&medium)), Target::over(medium));
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, options());
    assert!(disk.facts().volatile_cache);
    let pool = disk.session().initiator().pool().clone();
    let write = |store: &RemoteStore, fua| {
        let from = pool.take(BLOCK_LEN).unwrap();
        execute(store, Op::Write { offset: 0, from, fua }).result.unwrap();
    };
    let flush = |store: &RemoteStore| execute(store, Op::Flush).result;
    // What is on the medium may go through any number of power-ons.
    let safe = RemoteStore::new(disk.clone());
    write(&safe, false);
    flush(&safe).unwrap();
    write(&safe, true);
    let unsafe_ = RemoteStore::new(disk.clone());
    // A lost connection alone costs nothing.
    write(&unsafe_, false);
    relay.cut();
    flush(&unsafe_).unwrap();
    write(&unsafe_, false);
    relay.lead(Some(restarted.address));
    relay.cut();
    flush(&safe).unwrap();
    for _ in 0..2 {
        let error = flush(&unsafe_).unwrap_err();
        assert!(
            matches!(&error, StoreError::FlushFailed(why) if why.to_string().contains("volatile cache")),
            "{error}"
        );
    }
    // Written after the power-on: nothing has happened to it.
    write(&safe, false);
    flush(&safe).unwrap();
}

#[test]
fn flushes_under_way_at_once_answer_for_the_same_writes() {
    let medium: Arc<dyn Store> = Arc::new(PowerLoss::new(STORE_LEN).unwrap());
    let held = Arc::new(Delay::new(Arc::clone(&medium)));
    let (target, restarted) = (Target::over(Arc::clone(&held) as _), Target::over(medium));
    let relay = Relay::to(target.address);
    let disk = disk(relay.address, options());
    let from = disk.session().initiator().pool().take(BLOCK_LEN).unwrap();
    let store = RemoteStore::new(disk);
    execute(&store, Op::Write { offset: 0, from, fua: false }).result.unwrap();
    held.hold();
    let flushes = [(); 2].map(|()| {
        let store = store.clone();
        std::thread::spawn(move || execute(&store, Op::Flush).result)
    });
    held.wait_until_held(2);
    relay.lead(Some(restarted.address));
    relay.cut();
    for flush in flushes {
        let error = flush.join().unwrap().unwrap_err();
        assert!(matches!(error, StoreError::FlushFailed(_)), "{error}");
    }
    held.release();
}
