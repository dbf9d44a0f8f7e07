//! A disk over several paths.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use lunette_initiator::{Completion, Disk, Error, Outcome, PathState, Repeat, Request, Url, wait};
use lunette_scsi::requests;
use lunette_store::filters::Delay;

use crate::fixture::{Relay, TARGET, Target, blocks, event_loop, memory, until};

/// The disk of a target, over a path for each relay.
fn disk(relays: &[Relay]) -> Disk {
    let address = |relay: &Relay| relay.address.to_string();
    let (first, others) = relays.split_first().unwrap();
    let others: Vec<String> = others.iter().map(address).collect();
    let url = format!("iscsi://{}/{TARGET}/0?portals={}", address(first), others.join(","));
    let url = Url::parse(&url).unwrap();
    wait(Disk::of_url(&event_loop(), &url, url.options().unwrap())).unwrap()
}

fn relays(target: &Target) -> [Relay; 2] {
    [Relay::to(target.address), Relay::to(target.address)]
}

fn is_up(disk: &Disk, path: usize) -> bool {
    matches!(disk.paths()[path].state, PathState::Up(_))
}

#[test]
fn a_load_goes_on_while_paths_are_closed_in_turns() {
    let target = Target::new();
    let relays = relays(&target);
    let disk = disk(&relays);
    let (stop, rounds, loaded) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), disk.clone());
    let (stopped, done) = (Arc::clone(&stop), Arc::clone(&rounds));
    let load = thread::spawn(move || {
        for round in 0_u64.. {
            let data = blocks(8, round as u8);
            wait(loaded.write(round % 16 * 8, &data, false)).unwrap();
            assert!(wait(loaded.read(round % 16 * 8, 8)).unwrap()[..] == data, "round {round}");
            done.store(round, Ordering::SeqCst);
            if stopped.load(Ordering::SeqCst) && round > 200 {
                return;
            }
        }
    });
    for cut in 0..20 {
        let path = cut % 2;
        until("the path is there", || is_up(&disk, path));
        let before = rounds.load(Ordering::SeqCst);
        relays[path].cut();
        until("the path is down", || !is_up(&disk, path) || relays[path].accepted() > cut as u64 / 2 + 1);
        // A request that is lost with each of 17 paths ends in doubt.
        until("the load goes on", || rounds.load(Ordering::SeqCst) > before || load.is_finished());
    }
    stop.store(true, Ordering::SeqCst);
    load.join().unwrap();
}

#[test]
fn a_disk_opens_though_one_of_its_paths_closes_meanwhile() {
    let target = Target::new();
    let all = {
        let relays = relays(&target);
        drop(disk(&relays));
        relays[0].bytes_of_clients()
    };
    // A request is a header of 48 bytes.
    for sent in (1..all).step_by(48) {
        let relays = relays(&target);
        relays[0].cut_first_after(sent);
        let disk = disk(&relays);
        assert!(wait(disk.read(0, 1)).is_ok(), "cut after {sent} bytes");
    }
}

#[test]
fn a_path_that_falls_silent_is_left_and_one_that_comes_back_is_used() {
    let target = Target::new();
    let relays = relays(&target);
    let disk = disk(&relays);
    relays[0].stall();
    for lba in 0..4 {
        wait(disk.write(lba, &blocks(1, 7), false)).unwrap();
        wait(disk.read(lba, 1)).unwrap();
    }
    until("the path is down", || !is_up(&disk, 0));
    assert!(is_up(&disk, 1));
    relays[0].cut();
    relays[0].go_on();
    until("the path is there again", || is_up(&disk, 0));
    relays[1].cut();
    relays[1].lead(None);
    assert!(wait(disk.read(3, 1)).unwrap()[..] == blocks(1, 7));
}

#[test]
fn a_command_that_must_not_run_twice_ends_in_doubt_though_there_is_another_path() {
    let store = Arc::new(Delay::new(memory()));
    let target = Target::over(Arc::clone(&store) as _);
    let relays = relays(&target);
    let disk = disk(&relays);
    store.hold();
    let twice = disk.clone();
    let compare = thread::spawn(move || wait(twice.compare_and_write(0, &blocks(1, 0), &blocks(1, 1))));
    store.wait_until_held(1);
    for relay in &relays {
        relay.cut();
    }
    let end = compare.join().unwrap();
    assert!(matches!(end, Err(Error::InDoubt { command: "COMPARE AND WRITE" })), "{end:?}");
    store.release();
    wait(disk.read(0, 1)).unwrap();
}

#[test]
fn without_any_path_requests_end_with_the_reasons_of_all() {
    let target = Target::new();
    let relays = relays(&target);
    let address = |relay: &Relay| relay.address.to_string();
    let url = format!("iscsi://{}/{TARGET}/0?portals={}", address(&relays[0]), address(&relays[1]));
    let url = Url::parse(&url).unwrap();
    let mut options = url.options().unwrap();
    options.reconnect_for = std::time::Duration::from_millis(300);
    let disk = wait(Disk::of_url(&event_loop(), &url, options)).unwrap();
    for relay in &relays {
        relay.lead(None);
        relay.cut();
    }
    let error = wait(disk.read(0, 1)).err().unwrap();
    assert!(matches!(&error, Error::NoPath { .. } | Error::InDoubt { .. }), "{error}");
    for relay in &relays {
        assert!(error.to_string().contains(&address(relay)), "{error}");
    }
    assert!(matches!(wait(disk.read(0, 1)), Err(Error::NoPath { .. })), "and stay so");
}

#[test]
fn requests_end_with_the_event_loop() {
    let target = Target::new();
    let relays = relays(&target);
    let disk = disk(&relays);
    for relay in &relays {
        relay.lead(None);
        relay.cut();
    }
    until("all paths are down", || !is_up(&disk, 0) && !is_up(&disk, 1));
    let (ended, end) = std::sync::mpsc::channel();
    let submit = |cdb| {
        let ended = ended.clone();
        let completion = Completion::call(move |outcome: Outcome| drop(ended.send(outcome.result)));
        disk.submit(Request::new(disk.lun(), cdb), completion);
    };
    submit(requests::synchronize_cache());
    submit(requests::test_unit_ready());
    drop(disk);
    assert!(matches!(end.recv().unwrap(), Err(Error::Closed)));
    assert!(matches!(end.recv().unwrap(), Err(Error::Closed)));
}

#[test]
fn a_new_nexus_that_hears_of_a_power_on_loses_no_cache_while_the_other_path_is_there() {
    let target = Target::new();
    let relays = relays(&target);
    let disk = disk(&relays);
    wait(disk.write(0, &blocks(1, 7), false)).unwrap();
    let before = disk.power_ons();
    for path in [0, 1] {
        relays[path].cut();
        until("the path is lost", || relays[path].accepted() > 1);
        until("the path is there again", || is_up(&disk, path));
    }
    wait(disk.flush()).unwrap();
    assert_eq!(disk.power_ons(), before);
}

#[test]
fn a_power_on_counts_though_a_path_that_is_silent_seems_to_be_there() {
    let (target, restarted) = (Target::new(), Target::new());
    let relays = relays(&target);
    let disk = disk(&relays);
    wait(disk.write(0, &blocks(1, 7), false)).unwrap();
    let before = disk.power_ons();
    // The target loses power without closing a connection, and the path that notices it first finds another life of it.
    relays[1].stall();
    relays[0].lead(Some(restarted.address));
    relays[0].cut();
    until("the path is there again", || relays[0].accepted() > 1 && is_up(&disk, 0));
    wait(disk.flush()).unwrap();
    assert_ne!(disk.power_ons(), before);
}

/// Sends PERSISTENT RESERVE OUT with a service action, our key and the key of the action.
fn reserve_out(disk: &Disk, action: u8, key: u64, action_key: u64) -> Result<(), Error> {
    let mut list = disk.session().buffer(24).unwrap();
    list.fill(0);
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&action_key.to_be_bytes());
    let cdb = [0x5f, action, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
    let request = Request::new(disk.lun(), cdb).with_data_out(list.share()).with_repeat(Repeat::IfNotRun);
    wait(disk.execute(request)).check_whole()
}

/// The keys that nexuses are registered with.
fn keys(disk: &Disk) -> Vec<u64> {
    let request = Request::new(disk.lun(), [0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let request = request.with_data_in(disk.session().buffer(256).unwrap()).with_repeat(Repeat::Always);
    let data = wait(disk.execute(request)).into_data().unwrap().unwrap();
    data[8..].chunks(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
}

const REGISTER: u8 = 0;
const CLEAR: u8 = 3;

#[test]
fn each_path_is_registered_and_a_path_that_is_made_later_too() {
    let target = Target::new();
    let relays = relays(&target);
    let disk = disk(&relays);
    relays[1].lead(None);
    relays[1].cut();
    until("the path is down", || !is_up(&disk, 1));
    reserve_out(&disk, REGISTER, 0, 7).unwrap();
    assert_eq!(keys(&disk), [7]);
    relays[1].lead(Some(target.address));
    until("the path is there again", || is_up(&disk, 1));
    assert_eq!(keys(&disk), [7, 7]);
    reserve_out(&disk, REGISTER, 7, 0).unwrap();
    assert!(keys(&disk).is_empty(), "both have given it up");
}

#[test]
fn a_path_does_not_register_again_what_another_initiator_has_taken_away() {
    let target = Target::new();
    let relays = relays(&target);
    let (disk, other) = (disk(&relays), crate::fixture::disk(target.address, crate::fixture::options()));
    reserve_out(&disk, REGISTER, 0, 7).unwrap();
    reserve_out(&other, REGISTER, 0, 8).unwrap();
    reserve_out(&other, CLEAR, 8, 0).unwrap();
    relays[0].cut();
    until("the path is there again", || relays[0].accepted() > 1 && is_up(&disk, 0));
    assert!(keys(&disk).is_empty());
}
