//! Outcomes reach the reactor whatever thread they come from.

use crate::common::{Initiator, Port, Target};

#[test]
fn an_outcome_from_another_thread_wakes_it() {
    let (target, delay) = Target::over_delay();
    let mut initiator = Initiator::attach(&target, Port::A);
    let write = initiator.start_held_write(&delay);
    // Nothing else will wake the reactor after this.
    initiator.round_trip();
    delay.release();
    initiator.finish(write).good();
}
