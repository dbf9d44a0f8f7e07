//! A login that follows a lost session is answered when no store works for that initiator any more.

use std::sync::Arc;

use lunette_store::filters::Delay;

use crate::common::{Initiator, Outcome, Port, TARGET, Target, blocks, memory, start_held_write};

/// A target on which the initiator A has a write in the store, and B none.
fn with_a_write_in_the_store() -> (Target, Arc<Delay>, Initiator, Initiator) {
    let delay = Arc::new(Delay::new(memory()));
    // The witness is on the core of the login.
    let target = Target::on_one_core(vec![delay.clone()]);
    let mut a = Initiator::attach(&target, Port::A);
    let b = Initiator::attach(&target, Port::B);
    start_held_write(&mut a, &delay);
    (target, delay, a, b)
}

fn waits(target: &Target, delay: &Delay, mut again: Initiator, mut witness: Initiator, attention: (u8, u8, u8)) {
    target.wait_until("the login", |now| now.sessions == 2 && now.connections == 2);
    // What was decided in the batch of the login has left before this is answered.
    witness.round_trip();
    assert!(again.hears_nothing(), "the store still works on the write");
    delay.release();
    again.finish_login();
    assert_eq!(again.test_unit_ready(0).sense(), attention);
    assert!(again.write(0, 0, blocks(8, 2)).good().is_empty());
    assert_eq!(again.read(0, 0, 8).good(), blocks(8, 2));
}

#[test]
fn reinstatement_of_a_session_that_lives() {
    let (target, delay, mut old, witness) = with_a_write_in_the_store();
    let mut again = Initiator::connect(target.address);
    again.send_login(Port::A, &[]);
    waits(&target, &delay, again, witness, Outcome::NEXUS_LOSS);
    assert!(old.receive().is_err(), "the old connection is closed");
}

#[test]
fn of_the_same_port_after_a_lost_connection() {
    let (target, delay, lost, witness) = with_a_write_in_the_store();
    drop(lost);
    target.wait_until("the loss", |now| now.sessions == 1 && now.tasks == 1);
    let mut again = Initiator::connect(target.address);
    again.send_login(Port::A, &[]);
    waits(&target, &delay, again, witness, Outcome::NEXUS_LOSS);
}

#[test]
fn of_another_port_after_a_lost_connection() {
    let (target, delay, lost, witness) = with_a_write_in_the_store();
    drop(lost);
    target.wait_until("the loss", |now| now.sessions == 1 && now.tasks == 1);
    let mut again = Initiator::connect(target.address);
    again.send_login(Port { isid: 77, ..Port::A }, &[]);
    waits(&target, &delay, again, witness, Outcome::POWER_ON);
}

#[test]
fn other_initiators_do_not_wait_for_it() {
    let (target, delay, lost, _witness) = with_a_write_in_the_store();
    drop(lost);
    target.wait_until("the loss", |now| now.sessions == 1 && now.tasks == 1);
    Initiator::log_in(&target, Port { initiator: b'c', isid: 1, target: TARGET }, &[]);
    assert_eq!(delay.held(), 1);
}

#[test]
fn a_login_that_goes_away_while_it_waits_leaves_nothing() {
    let (target, delay, lost, witness) = with_a_write_in_the_store();
    drop(lost);
    target.wait_until("the loss", |now| now.sessions == 1 && now.tasks == 1);
    let mut again = Initiator::connect(target.address);
    again.send_login(Port::A, &[]);
    target.wait_until("the login", |now| now.sessions == 2);
    drop(again);
    delay.release();
    target.wait_until("the end of the login", |now| now.sessions == 1 && now.connections == 1 && now.tasks == 0);
    drop(witness);
}
