//! An idle target does not wake up.

use std::sync::Arc;
use std::time::Instant;

use lunette_store::filters::Delay;

use crate::common::{Initiator, LIMIT, Port, Target, blocks, memory};

/// Waits until the target makes no turn while another one answers a thousand commands: how long that is, the machine
/// says.
fn comes_to_rest(target: &Target, elsewhere: &mut Initiator) {
    let give_up = Instant::now() + LIMIT;
    loop {
        let before = target.monitor.read().event_loop;
        for _ in 0..1000 {
            elsewhere.test_unit_ready(0).good();
        }
        let after = target.monitor.read().event_loop;
        if after == before {
            return;
        }
        assert!(Instant::now() < give_up, "it turned from {before:?} to {after:?}");
    }
}

#[test]
fn connections_that_wait_cost_nothing() {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::over(vec![delay.clone(), memory()]);
    let busy = Target::over(vec![memory()]);
    let mut elsewhere = Initiator::attach(&busy, Port::A);
    comes_to_rest(&target, &mut elsewhere);
    let mut initiators: Vec<_> = (1..=16).map(|isid| Initiator::attach(&target, Port { isid, ..Port::A })).collect();
    comes_to_rest(&target, &mut elsewhere);
    // For the rest of a login.
    let mut half = Initiator::connect(target.address);
    half.send_bytes(&[0x43, 0x87, 0, 0]);
    let [data, store, reader, ..] = &mut initiators[..] else { panic!("there are more") };
    data.answers_r2ts = false;
    data.start_write(1, 0, blocks(64, 1), 512);
    delay.hold();
    store.start_read(0, 0, 8);
    delay.wait_until_held(1);
    assert_eq!(reader.test_unit_ready(1).sense().0, 6);
    for _ in 0..100 {
        reader.start_read(1, 0, 2048);
    }
    comes_to_rest(&target, &mut elsewhere);
    delay.release();
    initiators[9].test_unit_ready(0).good();
    comes_to_rest(&target, &mut elsewhere);
}
