//! Outcomes reach the reactor whatever thread they come from.

use std::sync::Arc;

use lunette_store::filters::Delay;

use crate::common::{Initiator, Port, Target, blocks, memory};

#[test]
fn an_outcome_from_another_thread_wakes_it() {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::over(vec![delay.clone()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    delay.hold();
    let write = initiator.start_write(0, 0, blocks(8, 1), 4096);
    delay.wait_until_held(1);
    // Nothing else will wake the reactor after this.
    initiator.round_trip();
    delay.release();
    initiator.finish(write).good();
}
