//! An event loop whose sessions ask for nothing does not wake up.

use std::time::Instant;

use lunette_initiator::{Disk, Session, wait};
use lunette_scsi::Lun;

use crate::fixture::{LIMIT, TARGET, Target, blocks, disk, event_loop, options, portal};

#[test]
fn sessions_that_wait_cost_nothing() {
    let target = Target::new();
    let idle = event_loop();
    let sessions: Vec<_> =
        (0..4).map(|_| wait(Session::connect(&idle, &portal(target.address), TARGET, options())).unwrap()).collect();
    let at_rest = wait(Disk::open(sessions[0].clone(), Lun::ZERO)).unwrap();
    wait(at_rest.write(0, &blocks(64, 1), false)).unwrap();
    // Another event loop says how long that is.
    let busy = disk(target.address, options());
    let give_up = Instant::now() + LIMIT;
    loop {
        let before = idle.counts();
        for _ in 0..2000 {
            wait(busy.flush()).unwrap();
        }
        if idle.counts() == before {
            break;
        }
        assert!(Instant::now() < give_up, "it turned from {before:?} to {:?}", idle.counts());
    }
    assert_eq!(wait(at_rest.read(0, 64)).unwrap()[..], blocks(64, 1));
}
