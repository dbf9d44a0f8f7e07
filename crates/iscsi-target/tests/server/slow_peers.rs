//! A peer that does not read keeps its share of the buffers, and no more.

use std::sync::Arc;
use std::thread;

use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_store::filters::Delay;

use crate::common::{Initiator, Port, TARGET, Target, blocks, cdb_10, device, memory};

const BUFFERS: usize = 32 << 20;

fn target() -> Target {
    Target::of(vec![device(TARGET, vec![memory()])], |config| (config.cores, config.buffer_bytes) = (1, BUFFERS))
}

#[test]
fn others_go_on_while_it_sleeps() {
    let target = target();
    let mut sleeper = Initiator::attach(&target, Port::A);
    let mut awake = Initiator::attach(&target, Port::B);
    for _ in 0..100 {
        sleeper.start_read(0, 0, 2048);
    }
    for _ in 0..50 {
        assert_eq!(awake.read(0, 0, 2048).good().len(), 1 << 20);
        let held = target.monitor.read().buffer_bytes;
        assert!(held <= BUFFERS / 4 + (2 << 20), "{held} bytes are held");
    }
}

#[test]
fn others_go_on_while_many_sleep() {
    let target = target();
    let mut awake = Initiator::attach(&target, Port::B);
    let ports = (1..=8).map(|isid| Port { isid, ..Port::A });
    let mut sleepers: Vec<_> = ports.map(|port| Initiator::attach(&target, port)).collect();
    let reads: Vec<Vec<_>> =
        sleepers.iter_mut().map(|sleeper| (0..24).map(|_| sleeper.start_read(0, 0, 2048)).collect()).collect();
    for _ in 0..50 {
        assert_eq!(awake.read(0, 0, 2048).good().len(), 1 << 20);
    }
    // All wake up: for what one of them holds, the others wait.
    thread::scope(|scope| {
        for (sleeper, reads) in sleepers.iter_mut().zip(reads) {
            scope.spawn(move || {
                for read in reads {
                    assert_eq!(sleeper.finish(read).good().len(), 1 << 20);
                }
            });
        }
    });
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
}

#[test]
fn others_go_on_while_many_send_no_data() {
    let target = target();
    let mut awake = Initiator::attach(&target, Port::B);
    let ports = (1..=8).map(|isid| Port { isid, ..Port::A });
    let mut silent: Vec<_> = ports.map(|port| Initiator::attach(&target, port)).collect();
    for initiator in &mut silent {
        initiator.answers_r2ts = false;
        for _ in 0..40 {
            initiator.start_write(0, 0, blocks(1024, 1), 0);
        }
    }
    for seed in 0..20 {
        awake.write(0, 0, blocks(1024, seed)).good();
        assert_eq!(awake.read(0, 0, 1024).good(), blocks(1024, seed));
    }
}

#[test]
fn it_cannot_hold_more_by_taking_less_than_the_command_reads() {
    let target = target();
    let mut sleeper = Initiator::attach(&target, Port::A);
    let mut awake = Initiator::attach(&target, Port::B);
    // It fills the socket first, so that the later answers stay with the target.
    let filler = sleeper.start_read(0, 0, 16384);
    for _ in 0..100 {
        sleeper.start(0, &cdb_10(0x28, 0, 2048), Vec::new(), 4, 0);
    }
    for _ in 0..50 {
        assert_eq!(awake.read(0, 0, 2048).good().len(), 1 << 20);
    }
    let held = target.monitor.read().buffer_bytes;
    assert!(held <= BUFFERS / 4 + (2 << 20), "{held} bytes are held");
    assert_eq!(sleeper.finish(filler).good().len(), 8 << 20);
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0 || now.tasks == 0);
}

#[test]
fn it_cannot_hold_more_by_aborting_what_a_store_works_on() {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::of(vec![device(TARGET, vec![delay.clone()])], |config| {
        (config.cores, config.buffer_bytes) = (1, BUFFERS);
    });
    let mut initiator = Initiator::attach(&target, Port::A);
    delay.hold();
    for _ in 0..16 {
        initiator.start_read(0, 0, 2048);
    }
    delay.wait_until_held(BUFFERS / 4 / (1 << 20));
    let abort = initiator.start_management(Function::ABORT_TASK_SET, 0, None);
    let more: Vec<_> = (0..4).map(|_| initiator.start_read(0, 0, 2048)).collect();
    initiator.round_trip();
    initiator.round_trip();
    assert_eq!(target.monitor.read().buffer_bytes, BUFFERS / 4);
    delay.release();
    assert_eq!(initiator.finish_management(abort), Answer::FUNCTION_COMPLETE);
    for read in more {
        assert_eq!(initiator.finish(read).good().len(), 1 << 20);
    }
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
}
