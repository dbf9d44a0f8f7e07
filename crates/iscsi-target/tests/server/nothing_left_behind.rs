//! Tests that objects that are gone leave nothing behind.

use lunette_pdu::TaskManagementFunction as Function;

use crate::common::{Initiator, Port, Target, blocks, memory};

#[test]
fn connections_that_come_and_go_leave_nothing() {
    let target = Target::over(vec![memory()]);
    let mut witness = Initiator::attach(&target, Port::A);
    // Each core has its share of the sessions.
    let cores = target.monitor.read_cores().count();
    for round in 0..200 * cores {
        let port = Port { isid: 100 + round as u16, ..Port::B };
        match round % 4 {
            // Before the login, and in it.
            0 => drop(Initiator::connect(target.address)),
            1 => Initiator::connect(target.address).send_bytes(&[0x43, 0x87, 0, 0]),
            // With a write that waits for its data.
            2 => {
                let mut initiator = Initiator::attach(&target, port);
                initiator.answers_r2ts = false;
                initiator.start_write(0, 0, blocks(64, 1), 512);
                initiator.round_trip();
            }
            // With answers that were never read, and a reset on top.
            _ => {
                let mut initiator = Initiator::attach(&target, port);
                for _ in 0..4 {
                    initiator.start_read(0, 0, 2048);
                }
                initiator.start_management(Function::ABORT_TASK_SET, 0, None);
            }
        }
    }
    let left = target.wait_until("the end of all but one", |now| {
        now.connections == 1 && now.sessions == 1 && now.tasks == 0 && now.buffer_bytes == 0
    });
    assert!(target.monitor.read_cores().all(|core| core.timers < 100), "{left:?}");
    assert!(witness.test_unit_ready(0).good().is_empty());
}
