//! ORDERED and HEAD OF QUEUE tasks among the others of a logical unit.

use std::sync::Arc;

use lunette_pdu::{TaskAttribute, TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_store::filters::Delay;

use crate::common::{Initiator, Port, Target, blocks, memory};

const TASK_SET_FULL: u8 = 0x28;

fn slow() -> (Arc<Delay>, Target) {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::on_one_core(vec![delay.clone(), memory()]);
    (delay, target)
}

#[test]
fn an_ordered_task_is_between_the_older_and_the_younger() {
    let (delay, target) = slow();
    let mut a = Initiator::attach(&target, Port::A);
    delay.hold();
    let older = a.start_read(0, 0, 1);
    delay.wait_until_held(1);
    a.attribute = TaskAttribute::ORDERED;
    let ordered = a.start_write(0, 0, blocks(1, 7), 0);
    a.attribute = TaskAttribute::SIMPLE;
    let younger = a.start_read(0, 0, 1);
    a.round_trip();
    assert_eq!(delay.held(), 1, "neither has begun");
    // Its first unit attention.
    a.test_unit_ready(1);
    assert_eq!(a.read(1, 0, 1).good(), vec![0; 512], "another logical unit is another task set");
    assert!(delay.release_one());
    assert_eq!(a.finish(older).good(), vec![0; 512]);
    // It asks for its data now.
    a.take_one();
    delay.wait_until_held(1);
    a.round_trip();
    assert_eq!(delay.held(), 1, "the ordered one alone");
    delay.release();
    assert_eq!(a.finish(ordered).status, 0);
    assert_eq!(a.finish(younger).good(), blocks(1, 7));
}

#[test]
fn inquiry_report_luns_and_request_sense_wait_for_no_task() {
    let (delay, target) = slow();
    let mut a = Initiator::attach(&target, Port::A);
    delay.hold();
    let older = a.start_read(0, 0, 1);
    for attribute in [TaskAttribute::SIMPLE, TaskAttribute::ORDERED, TaskAttribute::HEAD_OF_QUEUE] {
        a.attribute = TaskAttribute::ORDERED;
        let ordered = a.start_write(0, 0, blocks(1, 7), 0);
        a.attribute = attribute;
        for cdb in [[0x12, 0, 0, 0, 36, 0], [0x03, 0, 0, 0, 18, 0]] {
            a.command(0, &cdb, Vec::new(), u32::from(cdb[4])).good();
        }
        a.command(0, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], Vec::new(), 16).good();
        assert!(!a.has_answer(ordered));
    }
    delay.release();
    a.finish(older).good();
}

#[test]
fn a_head_of_queue_task_passes_those_that_are_held() {
    let (delay, target) = slow();
    let mut a = Initiator::attach(&target, Port::A);
    delay.hold();
    let older = a.start_read(0, 0, 1);
    delay.wait_until_held(1);
    a.attribute = TaskAttribute::ORDERED;
    let ordered = a.start_read(0, 1, 1);
    a.attribute = TaskAttribute::HEAD_OF_QUEUE;
    let head = a.start_read(0, 2, 1);
    delay.wait_until_held(2);
    a.round_trip();
    assert_eq!(delay.held(), 2, "the older one and the head of the queue");
    delay.release();
    for task in [older, ordered, head] {
        assert_eq!(a.finish(task).status, 0);
    }
}

#[test]
fn an_aborted_ordered_task_holds_nothing_up() {
    let (delay, target) = slow();
    let mut a = Initiator::attach(&target, Port::A);
    delay.hold();
    let older = a.start_read(0, 0, 1);
    a.attribute = TaskAttribute::ORDERED;
    let ordered = a.start_read(0, 1, 1);
    a.attribute = TaskAttribute::SIMPLE;
    let younger = a.start_read(0, 2, 1);
    delay.wait_until_held(1);
    let abort = a.start_management(Function::ABORT_TASK, 0, Some(ordered));
    assert_eq!(a.finish_management(abort), Answer::FUNCTION_COMPLETE);
    delay.wait_until_held(2);
    delay.release();
    assert_eq!(a.finish(older).status, 0);
    assert_eq!(a.finish(younger).status, 0);
    assert!(!a.has_answer(ordered));
}

#[test]
fn data_of_a_held_task_does_not_stand_in_the_way_of_what_it_waits_for() {
    let target = Target::over(vec![memory()]);
    let mut a = Initiator::attach(&target, Port::A);
    a.answers_r2ts = false;
    let older = a.start_write(0, 0, blocks(8, 1), 0);
    while a.r2ts.is_empty() {
        a.take_one();
    }
    a.attribute = TaskAttribute::ORDERED;
    let ordered = a.start_write(0, 0, blocks(8, 2), 4096);
    let r2t = a.r2ts.remove(0);
    a.answer_r2t(&r2t);
    assert_eq!(a.finish(ordered).status, TASK_SET_FULL);
    assert_eq!(a.finish(older).status, 0);
    assert_eq!(a.read(0, 0, 8).good(), blocks(8, 1));
}

#[test]
fn a_held_task_whose_data_is_in_nobodys_way_stays() {
    let target = Target::over(vec![memory()]);
    let mut a = Initiator::log_in(&target, Port::A, &[("InitialR2T", "No")]);
    a.test_unit_ready(0).sense();
    a.answers_r2ts = false;
    let older = a.start_write(0, 0, blocks(8, 1), 0);
    while a.r2ts.is_empty() {
        a.take_one();
    }
    a.attribute = TaskAttribute::ORDERED;
    a.announces_data = true;
    let in_the_way = a.start_write(0, 0, blocks(8, 2), 0);
    a.announces_data = false;
    let held = a.start_write(0, 0, blocks(8, 3), 0);
    a.send_unsolicited(0, in_the_way);
    assert_eq!(a.finish(in_the_way).status, TASK_SET_FULL);
    a.answers_r2ts = true;
    let r2t = a.r2ts.remove(0);
    a.answer_r2t(&r2t);
    assert_eq!(a.finish(older).status, 0);
    assert_eq!(a.finish(held).status, 0);
    assert_eq!(a.read(0, 0, 8).good(), blocks(8, 3));
}

#[test]
fn an_aca_task_is_refused() {
    let target = Target::over(vec![memory()]);
    let mut a = Initiator::attach(&target, Port::A);
    a.attribute = TaskAttribute::ACA;
    assert_eq!(a.test_unit_ready(0).sense(), (5, 0x49, 0));
}
