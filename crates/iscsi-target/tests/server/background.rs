//! Work that belongs to a logical unit and to no command: SANITIZE and scrubs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use lunette_device::{LogicalUnit, LogicalUnitConfig, ScrubEnd, ScrubOwner, ScrubbedBlocks, TargetDevice, scrub_once};
use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_scsi::Lun;
use lunette_store::filters::Delay;

use crate::common::{BLOCK_LEN, Initiator, Port, TARGET, Target, blocks, memory, unit};

const IMMED: u8 = 0x80;
const BLOCK_ERASE: u8 = 0x02;
const GOOD: u8 = 0;
/// NOT READY, SANITIZE IN PROGRESS.
const IN_PROGRESS: (u8, u8, u8) = (0x02, 0x04, 0x1b);

fn sanitize(action_and_flags: u8) -> [u8; 10] {
    [0x48, action_and_flags, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Looks until the unit is ready again, on the same or on new connections.
fn wait_until_ready(initiator: &mut Initiator) {
    while initiator.test_unit_ready(0).status != GOOD {}
}

#[test]
fn goes_on_when_its_initiator_is_gone() {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::over(vec![delay.clone(), memory()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    assert_eq!(initiator.write(0, 0, blocks(8, 1)).status, GOOD);
    delay.hold();
    assert_eq!(initiator.command(0, &sanitize(IMMED | BLOCK_ERASE), Vec::new(), 0).status, GOOD);
    delay.wait_until_held(1);
    assert_eq!(initiator.test_unit_ready(0).sense(), IN_PROGRESS);
    initiator.test_unit_ready(1);
    assert_eq!(initiator.write(1, 0, blocks(8, 2)).status, GOOD, "other units are served");
    drop(initiator);
    target.wait_until("the end of the session", |now| now.sessions == 0 && now.tasks == 0);
    let mut initiator = Initiator::attach_again(&target, Port::A);
    assert_eq!(initiator.test_unit_ready(0).sense(), IN_PROGRESS);
    delay.release();
    wait_until_ready(&mut initiator);
    assert_eq!(initiator.read(0, 0, 8).good(), vec![0; 8 * BLOCK_LEN]);
}

#[test]
fn is_not_aborted_with_the_command_that_began_it() {
    for function in [Function::ABORT_TASK, Function::LOGICAL_UNIT_RESET, Function::TARGET_WARM_RESET] {
        let (target, delay) = Target::over_delay();
        let mut initiator = Initiator::attach(&target, Port::A);
        assert_eq!(initiator.write(0, 0, blocks(8, 1)).status, GOOD);
        delay.hold();
        let command = initiator.start(0, &sanitize(BLOCK_ERASE), Vec::new(), 0, 0);
        delay.wait_until_held(1);
        let request = initiator.start_management(function, 0, Some(command));
        // The store works for no command: there is nothing to wait for.
        assert_eq!(initiator.finish_management(request), Answer::FUNCTION_COMPLETE);
        while initiator.test_unit_ready(0).sense() != IN_PROGRESS {}
        delay.release();
        wait_until_ready(&mut initiator);
        assert!(!initiator.has_answer(command), "an aborted task has no response");
        assert_eq!(initiator.read(0, 0, 8).good(), vec![0; 8 * BLOCK_LEN]);
    }
}

#[test]
fn a_stop_waits_for_the_store_and_for_no_more() {
    let (target, delay) = Target::over_delay();
    let mut initiator = Initiator::attach(&target, Port::A);
    delay.hold();
    let pattern = [0x1f, 0, 0, 1, 7];
    let cdb = [0x48, IMMED | 1, 0, 0, 0, 0, 0, 0, 5, 0];
    assert_eq!(initiator.command(0, &cdb, pattern.to_vec(), 0).status, GOOD);
    delay.wait_until_held(1);
    drop(initiator);
    target.wait_until("the end of the session", |now| now.connections == 0);
    target.begin_stop();
    delay.release();
    target.end().unwrap();
    assert_eq!(target.monitor.read().buffer_bytes, 0);
}

/// No thread and no connection comes to its help.
#[test]
fn a_pause_comes_to_its_end() {
    let config = LogicalUnitConfig { sanitize_rate: Some(64 << 20), ..LogicalUnitConfig::new(memory(), "slow") };
    let device = TargetDevice::new(TARGET);
    device.add(Lun::ZERO, Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
    let target = Target::of(vec![Arc::new(device)], |_| {});
    let mut initiator = Initiator::attach(&target, Port::A);
    let cdb = [0x48, 1, 0, 0, 0, 0, 0, 0, 5, 0];
    assert_eq!(initiator.command(0, &cdb, vec![0x01, 0, 0, 1, 7], 0).status, GOOD);
    assert_eq!(initiator.read(0, 0, 8).good(), vec![7; 8 * BLOCK_LEN]);
}

/// Tells what becomes of its pass: the number of blocks that were read, then its end. Dropped, it tells no more.
struct Owner(Sender<Result<u64, ScrubEnd>>);

impl ScrubOwner for Owner {
    fn scrubbed(&mut self, ScrubbedBlocks { blocks, .. }: ScrubbedBlocks) -> ControlFlow<()> {
        self.0.send(Ok(blocks)).unwrap();
        ControlFlow::Continue(())
    }

    fn ended(self, end: Result<(), ScrubEnd>) {
        self.0.send(end.map(|()| 0)).unwrap();
    }
}

#[test]
fn work_that_was_asked_for_is_driven_to_its_end_or_dropped_by_a_stop() {
    let (target, delay) = Target::over_delay();
    let unit = unit(delay.clone(), "scrubbed");
    let begin = || {
        let (told, rx) = channel();
        target.control.run_background(scrub_once(&unit, Owner(told))).map(|()| rx)
    };
    let told: Vec<_> = begin().unwrap().iter().collect();
    let read: u64 = told.iter().map(|told| told.as_ref().unwrap()).sum();
    assert_eq!((read, told.last()), (unit.blocks(), Some(&Ok(0))));

    delay.hold();
    let told = begin().unwrap();
    delay.wait_until_held(1);
    target.begin_stop();
    target.wait_until_it_stops();
    delay.release();
    target.end().unwrap();
    assert_eq!(told.iter().count(), 0, "neither blocks nor an end");
    assert!(begin().is_err(), "the server has ended");
}
