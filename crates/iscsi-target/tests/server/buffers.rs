//! Buffers run out, and come back.

use std::collections::VecDeque;
use std::sync::Arc;

use lunette_pdu::TargetPdu;
use lunette_session::limits::COMMAND_WINDOW;
use lunette_store::filters::Delay;

use crate::common::{Initiator, Outcome, Port, TARGET, Target, blocks, device, memory};

const TASK_SET_FULL: u8 = 0x28;

fn with_buffers(bytes: usize) -> (Target, Arc<Delay>) {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::of(vec![device(TARGET, vec![delay.clone()])], |config| {
        (config.cores, config.buffer_bytes) = (1, bytes);
    });
    (target, delay)
}

#[test]
fn reads_beyond_the_share_wait_and_all_are_served() {
    let (target, _delay) = with_buffers(16 << 20);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.write(0, 0, blocks(2048, 1)).good();
    let reads: Vec<_> = (0..60).map(|_| initiator.start_read(0, 0, 2048)).collect();
    for read in reads {
        assert_eq!(initiator.finish(read).good(), blocks(2048, 1));
    }
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0 && now.tasks == 0);
}

#[test]
fn short_commands_do_not_go_before_a_long_one_for_ever() {
    let (target, _delay) = with_buffers(16 << 20);
    let mut initiator = Initiator::attach(&target, Port::A);
    for short in [8, 128, 1024] {
        let mut others: VecDeque<_> = (0..30).map(|_| initiator.start_read(0, 0, short)).collect();
        let long = initiator.start_read(0, 0, 16384);
        let mut ended = 0;
        while !initiator.has_answer(long) {
            assert!(ended < 1000, "{ended} reads of {short} blocks came before it");
            initiator.finish(others.pop_front().unwrap()).good();
            others.push_back(initiator.start_read(0, 0, short));
            ended += 1;
        }
        assert_eq!(initiator.finish(long).good().len(), 8 << 20);
        for read in others {
            initiator.finish(read).good();
        }
    }
}

#[test]
fn a_buffer_that_an_aborted_task_gives_back_is_used() {
    let (target, delay) = with_buffers(16 << 20);
    let mut a = Initiator::attach(&target, Port::A);
    let mut b = Initiator::attach(&target, Port::B);
    let mut c = Initiator::attach(&target, Port { initiator: b'c', ..Port::A });
    delay.hold();
    // Two orphans of 4 MiB and one of 4: with them nothing is left for a first buffer of 8 MiB.
    for initiator in [&mut a, &mut b] {
        initiator.start_read(0, 0, 16384);
    }
    target.wait_until("the first read", |now| now.buffer_bytes == 8 << 20);
    delay.wait_until_held(1);
    drop((a, b));
    let read = c.start_read(0, 0, 16384);
    target.wait_until("two lost sessions", |now| now.sessions == 1 && now.tasks == 2);
    c.round_trip();
    // The gate opens for what is held; what comes later passes at once, on the thread of the reactor.
    delay.release();
    assert_eq!(c.finish(read).good().len(), 8 << 20);
}

#[test]
fn writes_whose_data_lies_behind_a_command_that_finds_no_buffer_do_not_wait_for_ever() {
    let (target, _delay) = with_buffers(16 << 20);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.answers_r2ts = false;
    initiator.round_trip();
    let data = blocks(1024, 3);
    let writes: Vec<_> = (0..40).map(|at| initiator.start_write(0, at * 1024, data.clone(), 4096)).collect();
    // Only now the data that the target asked for: it is behind all the commands.
    initiator.answers_r2ts = true;
    let mut full = Vec::new();
    for (at, write) in writes.into_iter().enumerate() {
        match initiator.finish(write) {
            Outcome { status: TASK_SET_FULL, .. } => full.push(at),
            outcome => assert!(outcome.good().is_empty()),
        }
    }
    assert!(full.len() < 40, "some are served");
    for at in full {
        initiator.write(0, at as u32 * 1024, data.clone()).good();
    }
    assert_eq!(initiator.read(0, 39 * 1024, 1024).good(), data);
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
}

#[test]
fn a_pool_that_is_too_small_for_the_largest_command_is_made_larger() {
    let (target, _delay) = with_buffers(4096);
    let mut initiator = Initiator::attach(&target, Port::A);
    assert_eq!(initiator.read(0, 0, 16384).good().len(), 8 << 20);
}

/// Commands that the initiator may send now, as the answer to a ping tells while the store answers nothing.
fn open_window(initiator: &mut Initiator) -> u32 {
    initiator.send_ping(&[]);
    let Ok((TargetPdu::NopIn(echo), _)) = initiator.receive() else { panic!("no echo") };
    echo.max_cmd_sn.next().distance_from(echo.exp_cmd_sn).unsigned_abs()
}

#[test]
fn the_window_grows_with_its_use_as_long_as_the_share_carries_it() {
    // A share of 4 MiB: 128 reads of 64 KiB use it up, 128 of 4 KiB leave room for as many again.
    for (blocks, expected) in [(128, 0), (8, COMMAND_WINDOW)] {
        let (target, delay) = with_buffers(16 << 20);
        let mut initiator = Initiator::attach(&target, Port::A);
        delay.hold();
        let reads: Vec<_> = (0..COMMAND_WINDOW).map(|_| initiator.start_read(0, 0, blocks)).collect();
        target.wait_until("all reads", |now| now.tasks == COMMAND_WINDOW as usize);
        assert_eq!(open_window(&mut initiator), expected, "beside reads of {blocks} blocks");
        delay.release();
        for read in reads {
            initiator.finish(read).good();
        }
    }
}
