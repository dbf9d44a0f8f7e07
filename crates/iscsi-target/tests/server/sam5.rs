//! The task management functions of RFC 7144, and command priority.

use std::sync::Arc;

use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_store::filters::Delay;

use crate::common::{Initiator, Port, TARGET, Target, blocks, device, manage_held, memory, start_held_write};

const LEVEL: (&str, &str) = ("iSCSIProtocolLevel", "2");

fn attach(target: &Target, port: Port) -> Initiator {
    let mut initiator = Initiator::log_in(target, port, &[LEVEL, ("MaxConnections", "2")]);
    assert_eq!(initiator.test_unit_ready(0).sense(), (6, 0x29, 0));
    initiator
}

fn ask(initiator: &mut Initiator, function: Function, lun: u16) -> Answer {
    let itt = initiator.start_management(function, lun, None);
    initiator.finish_management(itt)
}

#[test]
fn a_task_set_is_that_of_the_nexus_on_all_its_connections() {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::over(vec![delay.clone(), memory()]);
    let mut a = attach(&target, Port::A);
    let mut other = attach(&target, Port::B);
    let mut b = a.join(&target, Port::A, 1);
    b.cmd_sn = a.cmd_sn;
    assert_eq!(ask(&mut a, Function::QUERY_TASK_SET, 0), Answer::FUNCTION_COMPLETE);
    let write = start_held_write(&mut b, &delay);
    a.cmd_sn = b.cmd_sn;
    assert_eq!(ask(&mut a, Function::QUERY_TASK_SET, 0), Answer::FUNCTION_SUCCEEDED);
    assert_eq!(ask(&mut a, Function::QUERY_TASK_SET, 1), Answer::FUNCTION_COMPLETE, "another unit");
    assert_eq!(ask(&mut a, Function::QUERY_TASK_SET, 9), Answer::LUN_DOES_NOT_EXIST);
    assert_eq!(ask(&mut other, Function::QUERY_TASK_SET, 0), Answer::FUNCTION_COMPLETE, "another nexus");
    delay.release();
    b.finish(write).good();
    assert_eq!(ask(&mut a, Function::QUERY_TASK_SET, 0), Answer::FUNCTION_COMPLETE);
}

/// An initiator that hears that its task is gone may repeat its work.
#[test]
fn a_task_that_another_session_has_ended_is_there_until_its_store_is_done() {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::of(vec![device(TARGET, vec![delay.clone()])], |config| config.cores = 1);
    let mut a = attach(&target, Port::A);
    let mut b = attach(&target, Port::B);
    let write = start_held_write(&mut a, &delay);
    b.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    b.round_trip();
    manage_held(&mut a, Function::QUERY_TASK, write, &delay);
}

#[test]
fn news_that_wait_can_be_asked_for() {
    let target = Target::over(vec![memory()]);
    let mut a = attach(&target, Port::A);
    let mut b = attach(&target, Port::B);
    assert_eq!(ask(&mut a, Function::QUERY_ASYNCHRONOUS_EVENT, 0), Answer::FUNCTION_COMPLETE);
    assert_eq!(ask(&mut b, Function::LOGICAL_UNIT_RESET, 0), Answer::FUNCTION_COMPLETE);
    assert_eq!(ask(&mut a, Function::QUERY_ASYNCHRONOUS_EVENT, 0), Answer::FUNCTION_SUCCEEDED);
    assert_eq!(a.test_unit_ready(0).sense(), (6, 0x29, 3));
    assert_eq!(ask(&mut a, Function::QUERY_ASYNCHRONOUS_EVENT, 0), Answer::FUNCTION_COMPLETE);
}

#[test]
fn a_nexus_reset_ends_the_tasks_of_its_nexus_and_waits_for_their_stores() {
    let (target, delay) = Target::over_delay();
    let mut a = attach(&target, Port::A);
    let mut b = attach(&target, Port::B);
    delay.hold();
    let ours = a.start_write(0, 0, blocks(8, 1), 4096);
    let theirs = b.start_write(0, 8, blocks(8, 2), 4096);
    delay.wait_until_held(2);
    let reset = a.start_management(Function::I_T_NEXUS_RESET, 0, None);
    a.round_trip();
    assert!(!a.has_answer(reset), "a store still works for the task");
    delay.release();
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    assert!(!a.has_answer(ours));
    a.wait_for_end();
    b.finish(theirs).good();
    assert!(b.test_unit_ready(0).good().is_empty());
    target.wait_until("the end of the session", |now| now.sessions == 1);
    let mut again = Initiator::log_in(&target, Port::A, &[LEVEL]);
    assert_eq!(again.test_unit_ready(0).sense(), (6, 0x29, 7), "a nexus that was lost");
}
