use proptest::prelude::*;

use super::*;

const LIMIT: Duration = Duration::from_mins(10);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs to the end, and checks that each chunk came through.
fn run(path: Path, flows: &[Flow], seed: u64) -> Simulation {
    let mut simulation = Simulation::new(path, flows, seed);
    simulation.run(LIMIT);
    for pair in &simulation.pairs {
        assert!(
            pair.has_ended() && !pair.is_silent,
            "after {LIMIT:?} {} of {} chunks",
            pair.received.len(),
            pair.flow.chunks
        );
        assert_eq!(pair.received.len() as u64, pair.flow.chunks);
        assert_eq!(pair.acknowledged.len() as u64, pair.flow.chunks);
        assert!(pair.open.is_empty() && pair.again.is_empty(), "an outcome or a chunk is missing");
    }
    simulation
}

/// The part of the bottleneck that the first flow got, from its beginning to its end.
#[allow(clippy::cast_precision_loss)]
fn share(simulation: &Simulation) -> f64 {
    let path = simulation.network.path();
    simulation.pairs[0].throughput(path.datagram_len) / path.bytes_per_second as f64
}

/// Bytes from `from` to `until`, of flows without end.
fn delivered(path: Path, flows: &[Flow], from: Duration, until: Duration) -> Vec<usize> {
    let mut simulation = Simulation::new(path, flows, 1);
    simulation.run(from);
    let before: Vec<usize> = simulation.pairs.iter().map(|pair| pair.received.len()).collect();
    simulation.run(until);
    simulation.pairs.iter().zip(before).map(|(pair, before)| pair.received.len() - before).collect()
}

const ENDLESS: Flow = Flow::bulk(1 << 40);

#[test]
fn without_faults_the_bottleneck_is_nearly_full() {
    // From the first packet to the last, so slow start and the losses at its end are in it. 0.95 to 0.99 were measured.
    let cases = [
        ("100 Mbit/s, 20 ms", Path::new(100, ms(20)), 20_000),
        ("1 Gbit/s, 1 ms", Path::new(1000, ms(1)), 20_000),
        ("10 Gbit/s, 0.1 ms, long datagrams", Path { datagram_len: 9000, ..Path::new(10_000, ms(1) / 10) }, 20_000),
        ("20 Mbit/s, 100 ms", Path::new(20, ms(100)), 10_000),
        ("1 Mbit/s, 30 ms", Path::new(1, ms(30)), 1000),
    ];
    for (name, path, chunks) in cases {
        let simulation = run(path, &[Flow::bulk(chunks)], 1);
        assert!(share(&simulation) > 0.85, "{name}: {:.3}", share(&simulation));
        assert_eq!(
            simulation.pairs[0].sender.lost(),
            simulation.network.dropped,
            "{name}: only what was dropped is lost"
        );
    }
}

#[test]
fn two_flows_share_within_1_to_2() {
    // The second one comes 1 s later, when the window of the first is full. On long paths CUBIC takes long to make
    // room: a stage lasts as long as K, 5 s on the last one.
    for (path, from) in
        [(Path::new(20, ms(10)), 10_000), (Path::new(20, ms(30)), 15_000), (Path::new(10, ms(100)), 40_000)]
    {
        let late = Flow { begin: ms(1000), ..ENDLESS };
        let shares = delivered(path, &[ENDLESS, late], ms(from), ms(from + 15_000));
        assert!(shares[0] < shares[1] * 2 && shares[1] < shares[0] * 2, "{shares:?} on {path:?}");
    }
}

#[test]
fn beside_one_connection_of_cubic_it_takes_no_more_than_twice_as_much() {
    // Queues in bandwidth-delay products. Two connections' worth at every loss takes 1.6 to 3.1 times as much.
    let cases = [
        (Path::new(20, ms(10)), 1.0, 0),
        (Path::new(20, ms(10)), 1.0, 2000),
        (Path::new(20, ms(100)), 1.0, 0),
        (Path::new(50, ms(20)), 0.1, 0),
        (Path::new(50, ms(20)), 0.5, 2000),
    ];
    for (mut path, queue, begin) in cases {
        path.queue_bytes = Duration::from_secs(path.queue_bytes).mul_f64(queue).as_secs();
        let ours = Flow { begin: ms(begin), ..ENDLESS };
        let shares = delivered(path, &[ours, Flow { flows: 1, ..ENDLESS }], ms(10_000), ms(30_000));
        assert!(shares[0] < shares[1] * 2 && shares[1] < shares[0] * 2, "{shares:?} on {path:?}, {begin} ms later");
    }
}

#[test]
fn alone_on_a_path_that_loses_it_gets_what_two_connections_get() {
    for lost in [1000, 10_000] {
        let path = Path { lost, ..Path::new(100, ms(50)) };
        let one = delivered(path, &[Flow { flows: 1, ..ENDLESS }], ms(5000), ms(60_000))[0];
        let two = delivered(path, &[ENDLESS], ms(5000), ms(60_000))[0];
        assert!(two * 2 > one * 3 && two * 2 < one * 5, "{two} and {one} packets with a loss of {lost} in 1,000,000");
    }
}

const BBR: Flow = Flow { control: CongestionControl::Bbr, ..ENDLESS };

#[test]
fn bbr_fills_a_path_whether_it_loses_packets_or_not() {
    // Percent of the line from the third second on.
    for (lost, speed, round_trip, least) in [
        (0, 100, ms(20), 90),
        (0, 1000, ms(1), 85),
        (0, 20, ms(100), 85),
        (1000, 100, ms(50), 85),
        (10_000, 100, ms(50), 85),
        (10_000, 1000, ms(10), 85),
    ] {
        let path = Path { lost, ..Path::new(speed, round_trip) };
        let packets = delivered(path, &[BBR], ms(2000), ms(5000))[0];
        let percent = packets as u64 * path.datagram_len as u64 * 100 / (path.bytes_per_second * 3);
        assert!(percent > least, "{percent}% of {speed} Mbit/s, {round_trip:?}, a loss of {lost} in 1,000,000");
    }
}

#[test]
fn bbr_and_a_connection_of_cubic_share_within_1_to_3() {
    // Queues in products of rate and round trip. Without a bound BBR gets 8 to 50 times as much where the queue is no
    // longer than one.
    let cases = [(Path::new(20, ms(10)), 1.0), (Path::new(20, ms(100)), 1.0), (Path::new(50, ms(20)), 0.5)];
    for (mut path, queue) in cases {
        path.queue_bytes = Duration::from_secs(path.queue_bytes).mul_f64(queue).as_secs();
        for (ours, theirs) in [(0, 0), (3000, 0), (0, 3000)] {
            let flows = [Flow { begin: ms(ours), ..BBR }, Flow { begin: ms(theirs), flows: 1, ..ENDLESS }];
            let shares = delivered(path, &flows, ms(20_000), ms(40_000));
            assert!(
                shares[0] < shares[1] * 3 && shares[1] < shares[0] * 3,
                "{shares:?} on {path:?}, from {ours}, {theirs} ms"
            );
            let percent = (shares[0] + shares[1]) as u64 * path.datagram_len as u64 * 5 / path.bytes_per_second;
            assert!(percent > 95, "{percent}% of {path:?}");
        }
    }
}

/// The path of the laboratory: with a long queue and a long way CUBIC needs 8 s to grow back after a loss.
#[test]
fn bbr_leaves_cubic_a_share_of_a_long_path() {
    let path = Path::new(155, ms(50));
    let shares = delivered(path, &[BBR, Flow { flows: 1, ..ENDLESS }], ms(4000), ms(20_000));
    assert!(shares[0] < shares[1] * 4 && shares[1] < shares[0] * 4, "{shares:?}");
}

#[test]
fn two_flows_of_bbr_share_within_1_to_2() {
    // With a queue of one product of rate and round trip they have it full, and what is smaller stays so: 1 to 4 on the
    // second path.
    for mut path in [Path::new(20, ms(10)), Path::new(50, ms(30))] {
        path.queue_bytes *= 3;
        let late = Flow { begin: ms(1000), ..BBR };
        let shares = delivered(path, &[BBR, late], ms(12_000), ms(24_000));
        assert!(shares[0] < shares[1] * 2 && shares[1] < shares[0] * 2, "{shares:?} on {path:?}");
    }
}

/// A sender of little learns nothing of the path, and what it then has much to send finds it all the same.
#[test]
fn bbr_is_not_misled_by_a_sender_that_had_little_to_send() {
    let path = Path::new(100, ms(20));
    let little = Flow { every: Some((ms(100), 4)), control: CongestionControl::Bbr, ..Flow::bulk(400) };
    let simulation = run(path, &[little], 1);
    assert!(simulation.pairs[0].finished_at.expect("the flow has ended").since_epoch() < ms(99 * 100 + 40));
}

/// Sends `count` pieces of `chunks` chunks, one each `every`, from `begin` on; gives how long the last one took.
fn pieces(simulation: &mut Simulation, begin: Duration, every: Duration, count: u32, chunks: u64) -> Duration {
    let mut took = Duration::ZERO;
    for piece in 0..count {
        let at = begin + every * piece;
        let pair = &mut simulation.pairs[0];
        (pair.flow.begin, pair.flow.chunks) = (at, pair.next_chunk + chunks);
        pair.finished_at = None;
        simulation.network.wake_sender(0, Time::new(at));
        simulation.run(LIMIT);
        took = simulation.pairs[0].finished_at.expect("the piece has arrived") - Time::new(at);
    }
    took
}

/// A disk has times of little and then much to do.
#[test]
fn bbr_remembers_the_path_while_there_is_little_to_send() {
    let path = Path::new(100, ms(20));
    let mut simulation = Simulation::new(path, &[Flow { chunks: 2000, ..BBR }], 1);
    simulation.run(LIMIT);
    // 1.4 MB take 112 ms on the line.
    let fresh = pieces(&mut simulation, ms(1000), ms(400), 3, 1000);
    pieces(&mut simulation, ms(4000), ms(40), 50, 1);
    let after = pieces(&mut simulation, ms(6100), ms(400), 1, 1000);
    assert!(after < fresh * 5 / 4, "{after:?}, and {fresh:?} before");
}

#[test]
fn a_path_that_reorders_is_not_taken_for_one_that_loses() {
    let path = Path { reordered: 20_000, jitter: ms(5), ..Path::new(100, ms(20)) };
    let simulation = run(path, &[Flow::bulk(20_000)], 1);
    let sender = &simulation.pairs[0].sender;
    assert!(sender.late() > 0, "nothing was late");
    assert!(sender.late() < 100, "{} of 400 reordered packets were taken for lost", sender.late());
    assert!(share(&simulation) > 0.8, "{:.3}", share(&simulation));
}

#[test]
fn marks_keep_the_queue_from_overflowing() {
    let path = Path { mark_bytes: Some(80_000), ..Path::new(100, ms(20)) };
    let simulation = run(path, &[Flow { begin: ms(0), ..Flow::bulk(30_000) }], 1);
    let unmarked = run(Path { mark_bytes: None, ..path }, &[Flow::bulk(30_000)], 1);
    assert!(simulation.network.dropped * 2 < unmarked.network.dropped, "{}", simulation.network.dropped);
    assert!(share(&simulation) > 0.85, "{:.3}", share(&simulation));
}

#[test]
fn after_a_blackout_it_goes_on() {
    let path = Path { blackout: Some((ms(500), ms(3000))), ..Path::new(100, ms(20)) };
    let simulation = run(path, &[Flow::bulk(20_000)], 1);
    let end = simulation.pairs[0].finished_at.expect("the flow has ended").since_epoch();
    // 2.4 s of sending, 2.5 s in the dark, and at most one interval between probes.
    assert!(end < ms(7500), "{end:?}");
}

#[test]
fn a_path_that_never_comes_back_is_given_up_after_30_s() {
    let path = Path { blackout: Some((ms(500), ms(1 << 40))), ..Path::new(10, ms(20)) };
    let mut simulation = Simulation::new(path, &[Flow::bulk(20_000)], 1);
    simulation.run(LIMIT);
    assert!(simulation.pairs[0].is_silent);
    assert!(simulation.pairs[0].probed < 30, "{} probes", simulation.pairs[0].probed);
}

#[test]
fn a_sender_of_little_now_and_then_is_served_at_once_and_does_not_grow() {
    let little = Flow { every: Some((ms(100), 4)), ..Flow::bulk(400) };
    let simulation = run(Path::new(100, ms(20)), &[little], 1);
    let pair = &simulation.pairs[0];
    assert_eq!(pair.sender.window(), super::super::congestion::initial_window(1400));
    assert!(pair.finished_at.expect("the flow has ended").since_epoch() < ms(99 * 100 + 40));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a path does, each packet has one outcome, each chunk comes through, and it ends.
    #[test]
    fn nothing_is_lost_or_twice_on_a_path_with_faults(
        speed in prop::sample::select(vec![1_u64, 10, 100, 1000]),
        round_trip in prop::sample::select(vec![1_u64, 10, 60]),
        faults in (0..100_000_u64, 0..200_000_u64, 0..50_000_u64, 0..30_u64),
        queue in 3_000..200_000_u64,
        dark in prop::option::of((0..500_u64, 0..5000_u64)),
        control in prop::sample::select(vec![CongestionControl::Cubic, CongestionControl::Bbr]),
        seed in any::<u32>(),
    ) {
        let (lost, reordered, duplicated, jitter) = faults;
        let path = Path {
            lost,
            reordered,
            duplicated,
            jitter: ms(jitter),
            queue_bytes: queue,
            mark_bytes: (queue % 2 == 0).then_some(queue / 2),
            blackout: dark.map(|(begin, lasts)| (ms(begin), ms(begin + lasts))),
            ..Path::new(speed, ms(round_trip))
        };
        let interactive = Flow { every: Some((ms(30), 3)), control, ..Flow::bulk(150) };
        run(path, &[Flow { control, ..Flow::bulk(500) }, interactive], u64::from(seed));
    }
}
