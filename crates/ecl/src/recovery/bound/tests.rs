use super::*;

const LEN: u64 = 1000;

fn round(in_flight: u64) -> Round {
    Round { in_flight, is_limited: false, is_try: false, raise: None }
}

/// A bound of 70,000 bytes.
fn bound() -> Bound {
    let mut bound = Bound::default();
    bound.on_round(round(100_000));
    assert!(bound.on_lost(3000, 0));
    bound.set(10_000);
    assert_eq!((bound.window(true), bound.window(false)), (70_000, 59_500));
    bound
}

/// A round trip of a try, which loses `lost` bytes.
fn attempt(bound: &mut Bound, in_flight: u64, lost: u64) {
    bound.on_try();
    bound.on_round(Round { in_flight, is_limited: false, is_try: true, raise: Some(LEN) });
    if bound.on_lost(lost, 0) {
        bound.set(10_000);
    }
}

#[test]
fn losses_up_to_2_percent_of_what_was_in_flight_change_nothing() {
    let mut bound = Bound::default();
    bound.on_round(round(100_000));
    assert!(!bound.on_lost(1000, 0) && !bound.on_lost(1000, 0));
    // The next round trip begins with none.
    bound.on_round(round(100_000));
    assert!(!bound.on_lost(2000, 0));
    assert!(bound.on_lost(1, 0), "more than 2%");
    assert!(!bound.on_lost(50_000, 0), "once in a round trip");
}

#[test]
fn few_packets_are_no_proof_before_the_path_is_full() {
    let mut bound = Bound::default();
    bound.on_round(round(10 * LEN));
    assert!(!bound.on_lost(5 * LEN, 6 * LEN));
    assert!(bound.on_lost(LEN, 6 * LEN));
}

#[test]
fn the_bound_leaves_what_fills_the_path_without_a_queue() {
    let mut bound = Bound::default();
    bound.on_round(round(100_000));
    bound.on_lost(3000, 0);
    bound.set(90_000);
    assert_eq!(bound.window(true), 90_000);
}

#[test]
fn a_sender_with_little_to_send_sets_no_bound() {
    let mut bound = Bound::default();
    bound.on_round(Round { is_limited: true, ..round(5000) });
    assert!(bound.on_lost(1000, 0));
    bound.set(10_000);
    assert!(!bound.exists());
}

#[test]
fn tries_raise_it_slowly_at_first_and_for_five_round_trips() {
    let mut bound = bound();
    bound.on_round(round(50_000));
    for (raised, expected) in [1, 3, 7, 15, 31].into_iter().zip(1..) {
        assert!(!bound.is_raised(), "{expected}");
        attempt(&mut bound, 60_000, 0);
        assert_eq!(bound.window(true), 70_000 + raised * LEN);
    }
    assert!(bound.is_raised());
    // The next try begins slowly, too.
    bound.on_round(round(60_000));
    attempt(&mut bound, 60_000, 0);
    assert_eq!(bound.window(true), 102_000);
}

#[test]
fn only_losses_of_a_try_make_it_smaller() {
    let mut bound = bound();
    for _ in 0..3 {
        bound.on_round(round(59_000));
        assert!(bound.on_lost(5000, 0));
        bound.set(10_000);
        assert_eq!(bound.window(true), 70_000);
    }
    attempt(&mut bound, 69_000, 5000);
    // Until the end of the round trip that began with it.
    bound.on_round(round(59_000));
    assert_eq!(bound.window(true), 48_300);
}

#[test]
fn what_came_through_is_within_the_bound() {
    let mut bound = bound();
    bound.on_round(round(90_000));
    bound.on_round(round(50_000));
    assert_eq!(bound.window(true), 90_000);
}
