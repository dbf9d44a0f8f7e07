//! Outcomes reach the reactor whatever thread they come from.

use crate::common::{Initiator, Port, Target, start_held_write};

#[test]
fn an_outcome_from_another_thread_wakes_it() {
    let (target, delay) = Target::over_delay();
    let mut initiator = Initiator::attach(&target, Port::A);
    let write = start_held_write(&mut initiator, &delay);
    // Nothing else will wake the reactor after this.
    initiator.round_trip();
    delay.release();
    initiator.finish(write).good();
}
