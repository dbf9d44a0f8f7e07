//! Several initiators, targets and logical units.

use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};

use crate::common::{Initiator, Port, TARGET, Target, blocks, device, memory};

const OTHER: &str = "iqn.2026-11.org.example:other";

#[test]
fn targets_and_logical_units_keep_their_blocks_apart() {
    let devices = vec![device(TARGET, vec![memory(), memory()]), device(OTHER, vec![memory()])];
    let target = Target::of(devices, |_| {});
    let mut here = Initiator::attach(&target, Port::A);
    let mut there = Initiator::attach(&target, Port { target: OTHER, ..Port::A });
    assert_eq!(here.test_unit_ready(1).sense(), (6, 0x29, 0));
    assert_eq!(there.test_unit_ready(1).sense(), (5, 0x25, 0));
    here.write(0, 7, blocks(1, 1)).good();
    here.write(1, 7, blocks(1, 2)).good();
    there.write(0, 7, blocks(1, 3)).good();
    assert_eq!(here.read(0, 7, 1).good(), blocks(1, 1));
    assert_eq!(here.read(1, 7, 1).good(), blocks(1, 2));
    assert_eq!(there.read(0, 7, 1).good(), blocks(1, 3));
    let statistics = target.wait_until("two sessions", |now| now.sessions == 2);
    assert_eq!(statistics.connections, 2);
}

#[test]
fn a_reset_is_told_to_each_nexus_once() {
    let target = Target::over(vec![memory(), memory()]);
    let mut a = Initiator::attach(&target, Port::A);
    let mut b = Initiator::attach(&target, Port::B);
    b.test_unit_ready(1).sense();
    let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    assert!(b.test_unit_ready(1).good().is_empty(), "the other logical unit was not reset");
    for nexus in [&mut a, &mut b] {
        assert_eq!(nexus.test_unit_ready(0).sense(), (6, 0x29, 3));
        assert!(nexus.test_unit_ready(0).good().is_empty());
    }
}

#[test]
fn clearing_a_task_set_is_no_matter_of_another_nexus() {
    let target = Target::over(vec![memory()]);
    let mut a = Initiator::attach(&target, Port::A);
    let mut b = Initiator::attach(&target, Port::B);
    b.answers_r2ts = false;
    let write = b.start_write(0, 0, blocks(8, 1), 0);
    while b.r2ts.is_empty() {
        b.take_one();
    }
    let clear = a.start_management(Function::CLEAR_TASK_SET, 0, None);
    assert_eq!(a.finish_management(clear), Answer::FUNCTION_COMPLETE);
    let r2t = b.r2ts.remove(0);
    b.answer_r2t(&r2t);
    b.finish(write).good();
    assert!(b.test_unit_ready(0).good().is_empty());
}

#[test]
fn a_reset_of_no_logical_unit_is_refused() {
    let target = Target::over(vec![memory()]);
    let mut a = Initiator::attach(&target, Port::A);
    let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 5, None);
    assert_eq!(a.finish_management(reset), Answer::LUN_DOES_NOT_EXIST);
}

#[test]
fn a_cdb_that_is_too_long_is_answered() {
    let target = Target::over(vec![memory()]);
    let mut a = Initiator::attach(&target, Port::A);
    let task = a.start_with_extended_cdb(400);
    assert_eq!(a.finish(task).sense().0, 5);
}
