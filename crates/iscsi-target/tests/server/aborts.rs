//! The answer to a task management function comes when the store is done with what was aborted.

use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};

use crate::common::{Initiator, Port, Target, blocks, manage_held, memory, start_held_write};

#[test]
fn each_function_is_answered_when_the_store_is_done() {
    for function in [
        Function::ABORT_TASK,
        Function::ABORT_TASK_SET,
        Function::CLEAR_TASK_SET,
        Function::LOGICAL_UNIT_RESET,
        Function::TARGET_WARM_RESET,
    ] {
        println!("{function}");
        let (target, delay) = Target::over_delay();
        let mut initiator = Initiator::attach(&target, Port::A);
        let write = start_held_write(&mut initiator, &delay);
        manage_held(&mut initiator, function, write, &delay);
        assert!(!initiator.has_answer(write), "an aborted task has no response");
        // A reset leaves a unit attention.
        initiator.test_unit_ready(0);
        assert_eq!(initiator.read(0, 0, 8).good(), blocks(8, 1));
    }
}

#[test]
fn a_second_reset_waits_for_what_the_first_aborted() {
    let (target, delay) = Target::over_delay();
    let mut initiator = Initiator::attach(&target, Port::A);
    delay.hold();
    initiator.start(0, &[0x35; 1], Vec::new(), 0, 0);
    delay.wait_until_held(1);
    let first = initiator.start_management(Function::ABORT_TASK_SET, 0, None);
    let second = initiator.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    initiator.round_trip();
    initiator.round_trip();
    assert!(!initiator.has_answer(first) && !initiator.has_answer(second));
    delay.release();
    assert_eq!(initiator.finish_management(first), Answer::FUNCTION_COMPLETE);
    assert_eq!(initiator.finish_management(second), Answer::FUNCTION_COMPLETE);
}

#[test]
fn the_abort_of_a_task_that_a_reset_is_ending_waits_too() {
    let (target, delay) = Target::over_delay();
    let mut initiator = Initiator::attach(&target, Port::A);
    let write = start_held_write(&mut initiator, &delay);
    let reset = initiator.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    let abort = initiator.start_management(Function::ABORT_TASK, 0, Some(write));
    initiator.round_trip();
    initiator.round_trip();
    assert!(!initiator.has_answer(reset) && !initiator.has_answer(abort), "the store still works on the write");
    delay.release();
    assert_eq!(initiator.finish_management(reset), Answer::FUNCTION_COMPLETE);
    assert_eq!(initiator.finish_management(abort), Answer::TASK_DOES_NOT_EXIST);
}

#[test]
fn a_task_that_waits_for_data_is_gone_at_once() {
    let target = Target::over(vec![memory()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.answers_r2ts = false;
    let write = initiator.start_write(0, 0, blocks(8, 1), 0);
    let request = initiator.start_management(Function::ABORT_TASK, 0, Some(write));
    assert_eq!(initiator.finish_management(request), Answer::FUNCTION_COMPLETE);
    target.wait_until("the end of the task", |now| now.tasks == 0 && now.buffer_bytes == 0);
}
