use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::Limit;

fn path(rate_mbit: f64, round_trip_ms: u64, loss: f64) -> Path {
    Path { rate: rate_mbit * 1e6 / 8.0, round_trip: Duration::from_millis(round_trip_ms), loss, ..Path::default() }
}

proptest! {
    #[test]
    fn no_other_settings_are_predicted_to_be_much_better(
        rate_mbit in 1.0_f64..10_000.0,
        round_trip_ms in 0_u64..300,
        loss in prop_oneof![Just(0.0), 1e-6_f64..0.05],
        depth in 1_u32..128,
        request_kib in 64_u64..4096,
        connections in 1_u32..=8,
        is_solicited: bool,
    ) {
        let path = path(rate_mbit, round_trip_ms, loss);
        let (target, bounds) = (Target::default(), Bounds::default());
        let found = recommend(&path, &target, &bounds);
        let other = Settings {
            request_len: request_kib << 10,
            depth,
            connections,
            initial_r2t: is_solicited,
            ..candidate(&path, &target, &bounds, request_kib << 10, connections)
        };
        let (found_rate, other_rate) = (both_ways(&path, &target, &found), both_ways(&path, &target, &other));
        // Lengths that are no power of two may fill the command window a little better.
        prop_assert!(found_rate >= 0.95 * other_rate, "{found:?}: {found_rate} against {other_rate} of {other:?}");
    }

    #[test]
    fn the_bounds_are_kept(
        round_trip_ms in 0_u64..300,
        max_connections in 0_u32..8,
        max_in_flight_mib in 1_u64..64,
        request_len in proptest::option::of(512_u64..1 << 20),
        block_len in prop_oneof![Just(512_u64), Just(4096), Just(4160), 1_u64..10_000],
    ) {
        let max_in_flight_bytes = max_in_flight_mib << 20;
        let bounds = Bounds { block_len, request_len, max_connections, max_in_flight_bytes, ..Bounds::default() };
        let found = recommend(&path(1_000.0, round_trip_ms, 1e-4), &Target::default(), &bounds);
        prop_assert!(found.connections <= max_connections.max(1));
        prop_assert!(u64::from(found.depth) * found.request_len <= max_in_flight_bytes.max(found.request_len));
        prop_assert!(found.depth <= Target::default().command_window);
        prop_assert_eq!(request_len.unwrap_or(found.request_len), found.request_len);
        prop_assert!(request_len.is_some() || found.request_len.is_multiple_of(block_len));
    }
}

#[test]
fn a_lan_needs_one_connection_and_little_memory() {
    let found = recommend(&path(1_000.0, 0, 0.0), &Target::default(), &Bounds::default());
    assert_eq!((found.connections, found.request_len), (1, 64 << 10));
    assert!(found.depth <= 4, "{found:?}");
}

#[test]
fn distance_is_met_by_requests_in_flight_and_loss_by_connections() {
    let target = Target::default();
    let far = recommend(&path(155.0, 50, 0.0), &target, &Bounds::default());
    assert_eq!(far.connections, 1);
    let prediction = predict(&path(155.0, 50, 0.0), &target, &far, Transfer::Write);
    assert_eq!(prediction.limit, Limit::Line, "{far:?}");
    let lossy = recommend(&path(155.0, 50, 1e-3), &target, &Bounds::default());
    assert_eq!(lossy.connections, 8);
}
