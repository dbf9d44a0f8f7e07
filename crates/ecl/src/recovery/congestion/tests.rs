use super::*;

const LEN: usize = 1000;
const RTT: Duration = Duration::from_millis(100);

const fn ms(ms: u64) -> Time {
    Time::new(Duration::from_millis(ms))
}

/// A round trip that is `queue` longer than the shortest one.
fn rtt(queue: Duration) -> Rtt {
    let mut rtt = Rtt::default();
    for latest in [RTT].into_iter().chain(std::iter::repeat_n(RTT + queue, 60)) {
        rtt.sample(latest, Duration::ZERO, ms(1));
    }
    rtt
}

/// With 100 datagrams as its window, in congestion avoidance from `ms(1000)` on, after a loss with a long queue
/// (`flows` 1) or a short one.
fn avoiding(flows: u8) -> Cubic {
    let mut cubic = Cubic::new(LEN, flows);
    cubic.on_acknowledged(90_000, RTT, ms(900));
    assert_eq!(cubic.window(), 100_000);
    assert!(cubic.on_congestion(ms(999), 1, &rtt(Duration::ZERO), ms(1000)));
    cubic
}

/// Acknowledges a window in steps of a datagram, spread over each round trip.
fn run(cubic: &mut Cubic, from_ms: u64, until_ms: u64) {
    let mut now = ms(from_ms);
    while now < ms(until_ms) {
        cubic.on_acknowledged(LEN as u64, RTT, now);
        now = now + RTT * u32::try_from(LEN).expect("small") / u32::try_from(cubic.window()).expect("small");
    }
}

#[test]
fn the_window_begins_as_section_7_2_of_rfc_9002_says() {
    for (len, window) in
        [(1200, 12_000), (1400, 14_000), (1472, 14_720), (1500, 14_720), (9000, 18_000), (65_507, 131_014)]
    {
        assert_eq!(Cubic::new(len, 1).window(), window, "datagrams of {len} bytes");
    }
}

#[test]
fn slow_start_grows_by_what_was_acknowledged_by_section_7_3_1_of_rfc_9002() {
    let mut cubic = Cubic::new(LEN, 1);
    cubic.on_acknowledged(10_000, RTT, ms(100));
    assert_eq!((cubic.window(), cubic.is_slow_start()), (20_000, true));
    cubic.on_acknowledged(0, RTT, ms(200));
    assert_eq!(cubic.window(), 20_000, "packets that did not fill the window do not let it grow (section 7.8)");
}

#[test]
fn the_window_has_an_upper_bound() {
    let mut cubic = Cubic::new(LEN, 1);
    for _ in 0..4 {
        cubic.on_acknowledged(MAX_WINDOW_BYTES / 2, RTT, ms(100));
    }
    assert_eq!(cubic.window(), MAX_WINDOW_BYTES);
}

#[test]
fn a_loss_takes_three_tenths_of_one_flow_by_section_4_6_of_rfc_9438() {
    let cubic = avoiding(1);
    assert_eq!((cubic.window(), cubic.is_slow_start()), (70_000, false));
}

#[test]
fn several_flows_lose_less_when_the_queue_is_short_and_only_then() {
    assert_eq!(avoiding(2).window(), 85_000);
    let mut cubic = Cubic::new(LEN, 2);
    cubic.on_acknowledged(90_000, RTT, ms(900));
    cubic.on_congestion(ms(999), 1, &rtt(RTT / 8), ms(1000));
    assert_eq!(cubic.window(), 70_000);
}

#[test]
fn a_round_trip_has_one_decrease_by_section_7_3_2_of_rfc_9002() {
    let mut cubic = avoiding(1);
    assert!(!cubic.on_congestion(ms(1000), 9, &rtt(Duration::ZERO), ms(1050)));
    assert_eq!(cubic.window(), 70_000);
    assert!(cubic.on_congestion(ms(1001), 1, &rtt(Duration::ZERO), ms(1100)));
    assert_eq!(cubic.window(), 49_000);
}

#[test]
fn the_window_has_a_lower_bound_by_section_7_2_of_rfc_9002() {
    let mut cubic = Cubic::new(LEN, 1);
    for time in 1..20 {
        cubic.on_congestion(ms(time * 100), 1, &rtt(Duration::ZERO), ms(time * 100));
    }
    assert_eq!(cubic.window(), 2000);
}

#[test]
fn the_window_is_again_what_it_was_after_k_by_section_4_2_of_rfc_9438() {
    let mut cubic = avoiding(1);
    // K is the cube root of 30 datagrams / 0.4: 4.217 s.
    run(&mut cubic, 1000, 3000);
    // 100 + 0.4 × (2 − 4.217)³, or Reno's 70 + 0.53 × 20 when that is more.
    assert!((95_000..97_500).contains(&cubic.window()), "{} after 2 s", cubic.window());
    run(&mut cubic, 3000, 5217);
    assert!((99_000..102_500).contains(&cubic.window()), "{} after K", cubic.window());
    run(&mut cubic, 5217, 8217);
    // 100 + 0.4 × 3³ = 110.8; Reno's would be 70 + 0.53 × 57 to 100 and then a datagram in each round trip.
    assert!((109_000..126_000).contains(&cubic.window()), "{} 3 s after K", cubic.window());
}

#[test]
fn with_a_short_round_trip_it_grows_as_reno_does_by_section_4_3_of_rfc_9438() {
    let short = Duration::from_millis(1);
    let mut cubic = avoiding(1);
    let grown = |cubic: &mut Cubic, from: u64| {
        let before = cubic.window();
        for round in 0..10 {
            let window = cubic.window();
            for _ in 0..window / LEN as u64 {
                cubic.on_acknowledged(LEN as u64, short, ms(from + round));
            }
        }
        cubic.window() - before
    };
    // α = 3 × 0.3 / 1.7 = 0.53 of a datagram in each round trip; CUBIC's own curve is still below.
    let first = grown(&mut cubic, 1000);
    assert!((5_000..5_600).contains(&first), "{first} bytes in 10 round trips");
    for from in (1010..1700).step_by(10) {
        grown(&mut cubic, from);
    }
    let later = grown(&mut cubic, 1700);
    assert!((9_500..10_600).contains(&later), "{later} bytes in 10 round trips above the window before the loss");
}

#[test]
fn it_makes_room_for_others_when_it_shrinks_again_by_section_4_7_of_rfc_9438() {
    let mut cubic = avoiding(1);
    cubic.on_congestion(ms(1100), 1, &rtt(Duration::ZERO), ms(1101));
    assert!((cubic.state.max - 70_000.0 * 0.85).abs() < 1.0, "{}", cubic.state.max);
}

#[test]
fn time_without_use_does_not_let_it_grow_by_section_5_8_of_rfc_9438() {
    let (mut busy, mut idle) = (avoiding(1), avoiding(1));
    for cubic in [&mut busy, &mut idle] {
        run(cubic, 1000, 2000);
    }
    run(&mut busy, 2000, 3000);
    idle.on_restart(ms(60_000));
    run(&mut idle, 60_000, 61_000);
    assert!(busy.window().abs_diff(idle.window()) < 1000, "{} and {}", busy.window(), idle.window());
    let window = idle.window();
    idle.on_acknowledged(0, RTT, ms(90_000));
    idle.on_acknowledged(LEN as u64, RTT, ms(90_001));
    assert!(idle.window() - window < 1000);
}

#[test]
fn a_decrease_for_late_packets_is_taken_back_by_section_4_9_of_rfc_9438() {
    let mut cubic = avoiding(1);
    cubic.on_congestion(ms(990), 2, &rtt(Duration::ZERO), ms(1010));
    cubic.on_late(2, ms(999));
    assert_eq!(cubic.window(), 70_000, "one of three was lost");
    cubic.on_late(1, ms(999));
    assert_eq!((cubic.window(), cubic.is_slow_start()), (100_000, true));
    cubic.on_late(1, ms(999));
    assert_eq!(cubic.window(), 100_000, "it is taken back once");
}

#[test]
fn a_decrease_for_a_mark_is_not_taken_back() {
    let mut cubic = Cubic::new(LEN, 1);
    cubic.on_congestion(ms(999), 0, &rtt(Duration::ZERO), ms(1000));
    cubic.on_congestion(ms(998), 1, &rtt(Duration::ZERO), ms(1001));
    cubic.on_late(1, ms(998));
    assert_eq!(cubic.window(), 7000);
}

#[test]
fn after_persistent_congestion_slow_start_begins_at_the_least_window_by_section_7_6_2_of_rfc_9002() {
    let mut cubic = avoiding(1);
    cubic.on_persistent_congestion();
    assert_eq!((cubic.window(), cubic.is_slow_start(), cubic.decreased_at()), (2000, true, None));
    cubic.on_acknowledged(90_000, RTT, ms(1100));
    assert_eq!((cubic.window(), cubic.is_slow_start()), (70_000, false), "up to the threshold of the last decrease");
}

#[test]
fn longer_datagrams_raise_the_least_window() {
    let mut cubic = Cubic::new(1200, 1);
    cubic.set_datagram_len(65_507);
    assert_eq!(cubic.window(), 131_014);
}

#[test]
fn slow_start_ends_when_round_trips_rise_by_rfc_9406() {
    let mut cubic = Cubic::new(LEN, 1);
    for round in 0..12_u64 {
        for sample in 0..10 {
            cubic.on_rtt(RTT + RTT / 4 * u32::from(round > 0), round * 10 + sample, round * 10 + 10);
        }
    }
    assert!(!cubic.is_slow_start());
}
