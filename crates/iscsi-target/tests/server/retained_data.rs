//! Data that is kept to be sent again (ErrorRecoveryLevel 1) never keeps tasks from their buffers for long.
//!
//! The initiator of these tests acknowledges with its pings only.

use crate::common::{Initiator, Outcome, Port, TARGET, Target, blocks, device, memory};

const BUFFERS: usize = 32 << 20;
/// The share of one connection.
const SHARE: usize = BUFFERS / 4;
const READ_BLOCKS: u16 = 2048;
const READ_LEN: usize = 1 << 20;

fn target() -> Target {
    Target::of(vec![device(TARGET, vec![memory()])], |config| {
        (config.cores, config.buffer_bytes) = (1, BUFFERS);
        for target in &mut config.targets {
            target.offer.error_recovery_level = 1;
        }
    })
}

fn log_in(target: &Target, port: Port) -> Initiator {
    let mut initiator = Initiator::log_in(target, port, &[("ErrorRecoveryLevel", "1")]);
    assert_eq!(initiator.test_unit_ready(0).sense(), Outcome::POWER_ON);
    initiator
}

/// Reads until the target keeps all that the connection may hold.
fn fill(initiator: &mut Initiator) {
    for _ in 0..SHARE / READ_LEN {
        assert_eq!(initiator.read(0, 0, READ_BLOCKS).good().len(), READ_LEN);
    }
}

#[test]
fn it_goes_when_it_is_acknowledged() {
    let target = target();
    let mut initiator = log_in(&target, Port::A);
    fill(&mut initiator);
    assert_eq!(target.monitor.read().buffer_bytes, SHARE);
    initiator.round_trip();
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
}

#[test]
fn a_read_beyond_the_share_asks_for_an_acknowledgement() {
    let target = target();
    let mut initiator = log_in(&target, Port::A);
    for _ in 0..4 {
        fill(&mut initiator);
    }
    assert!(target.monitor.read().buffer_bytes <= SHARE);
}

#[test]
fn data_before_the_acknowledgement_in_the_stream_finds_a_place() {
    let target = target();
    let mut initiator = log_in(&target, Port::A);
    for seed in 0..4 {
        fill(&mut initiator);
        // Nothing behind the data of these is read before it has its buffer.
        let writes: Vec<_> = (0..8).map(|n| initiator.start_write(0, 8 * n, blocks(8, seed), 4096)).collect();
        for write in writes {
            initiator.finish(write).good();
        }
    }
}

#[test]
fn others_need_not_wait_for_what_it_keeps() {
    let target = target();
    let mut keepers: Vec<_> = (b'c'..=b'e').map(|initiator| log_in(&target, Port { initiator, ..Port::A })).collect();
    // As much as each may keep beside those before it.
    for (keeper, reads) in keepers.iter_mut().zip([8, 8, 3]) {
        for _ in 0..reads {
            keeper.read(0, 0, READ_BLOCKS).good();
        }
    }
    assert_eq!(target.monitor.read().buffer_bytes, 19 * READ_LEN);
    let mut other = log_in(&target, Port::B);
    let read = other.start_read(0, 0, 8 * READ_BLOCKS);
    // They are asked, and answer.
    for keeper in &mut keepers {
        keeper.take_one();
    }
    assert_eq!(other.finish(read).good().len(), 8 * READ_LEN);
}

#[test]
fn a_closed_connection_keeps_nothing() {
    let target = target();
    let mut initiator = log_in(&target, Port::A);
    fill(&mut initiator);
    initiator.send_logout();
    initiator.wait_for_end();
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
}
