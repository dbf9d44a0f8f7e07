//! A store that never answers keeps what it was given, and holds up no other disk.

use std::sync::Arc;
use std::time::Duration;

use lunette_pdu::{LogoutResponseCode, TaskManagementFunction as Function};
use lunette_store::filters::Delay;

use crate::common::{Initiator, Port, TARGET, Target, blocks, device, memory, start_held_write};

/// LUN 0 is over the silent store, LUN 1 over another one.
fn target(change: impl FnOnce(&mut lunette_target::ServerConfig)) -> (Target, Arc<Delay>) {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::of(vec![device(TARGET, vec![delay.clone(), memory()])], change);
    (target, delay)
}

#[test]
fn a_logout_does_not_wait_for_it() {
    let (target, delay) = target(|_| {});
    let mut initiator = Initiator::attach(&target, Port::A);
    start_held_write(&mut initiator, &delay);
    initiator.send_logout();
    assert_eq!(initiator.logout_response(), LogoutResponseCode::CLOSED);
    initiator.wait_for_end();
    target.wait_until("the end of the session", |now| now.sessions == 0 && now.connections == 0 && now.tasks == 1);
    delay.release();
    target.wait_until("the end of the task", |now| now.tasks == 0 && now.buffer_bytes == 0);
}

#[test]
fn a_login_that_has_to_wait_for_it_ends_with_its_time() {
    let (target, delay) = target(|config| config.timers.login = Duration::from_secs(1));
    let mut lost = Initiator::attach(&target, Port::A);
    start_held_write(&mut lost, &delay);
    drop(lost);
    target.wait_until("the loss", |now| now.connections == 0);
    let mut again = Initiator::connect(target.address);
    again.send_login(Port::A, &[]);
    again.wait_for_end();
    target.wait_until("the end of the login", |now| now.sessions == 0 && now.connections == 0);
    delay.release();
    target.wait_until("the end of the task", |now| now.tasks == 0);
    Initiator::attach_again(&target, Port::A);
}

#[test]
fn other_units_answer_beside_it() {
    let (target, delay) = target(|_| {});
    let mut a = Initiator::attach(&target, Port::A);
    let mut b = Initiator::attach(&target, Port::B);
    for initiator in [&mut a, &mut b] {
        assert_eq!(initiator.test_unit_ready(1).sense().0, 6);
    }
    delay.hold();
    let reads: Vec<_> = (0..20).map(|_| a.start_read(0, 0, 8)).collect();
    delay.wait_until_held(20);
    // Neither does a reset whose answer never comes.
    let reset = b.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    for initiator in [&mut a, &mut b] {
        initiator.write(1, 0, blocks(64, 7)).good();
        assert_eq!(initiator.read(1, 0, 64).good(), blocks(64, 7));
    }
    assert!(!b.has_answer(reset) && reads.iter().all(|read| !a.has_answer(*read)));
}

#[test]
fn what_it_keeps_of_many_sessions_leaves_buffers_for_others() {
    let (target, delay) = target(|config| (config.cores, config.buffer_bytes) = (1, 32 << 20));
    let mut other = Initiator::attach(&target, Port::B);
    assert_eq!(other.test_unit_ready(1).sense().0, 6);
    let ports = (1..=8).map(|isid| Port { isid, ..Port::A });
    let mut many: Vec<_> = ports.map(|port| Initiator::attach(&target, port)).collect();
    delay.hold();
    for initiator in &mut many {
        for _ in 0..40 {
            initiator.start_read(0, 0, 1024);
        }
        initiator.round_trip();
    }
    for seed in 0..20 {
        other.write(1, 0, blocks(1024, seed)).good();
        assert_eq!(other.read(1, 0, 1024).good(), blocks(1024, seed));
    }
}
