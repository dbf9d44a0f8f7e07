//! The rule on simulated paths: a line that takes one request after the other, with a delay.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A path under virtual time, in nanoseconds.
struct Line {
    now_ns: u64,
    /// The time that a request takes on the line.
    service_ns: u64,
    delay_ns: u64,
    free_at_ns: u64,
    /// How often a packet is lost, and how long the responses behind it are held up until it has come again.
    loss: Option<(u64, u64)>,
    /// When each request in flight began, and when it ends.
    in_flight: VecDeque<(u64, u64)>,
    ended: usize,
}

impl Line {
    fn new(service_ns: u64, delay_ns: u64) -> Self {
        Self { now_ns: 0, service_ns, delay_ns, free_at_ns: 0, loss: None, in_flight: VecDeque::new(), ended: 0 }
    }

    /// Keeps as many requests in flight as the rule says, for a time.
    fn run(&mut self, rule: &mut InFlight<1>, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while self.now_ns < end_ns {
            while self.in_flight.len() < rule.limit() {
                self.free_at_ns = self.free_at_ns.max(self.now_ns) + self.service_ns;
                self.in_flight.push_back((self.now_ns, self.held_up(self.free_at_ns + self.delay_ns)));
            }
            let (began_ns, ends_ns) = self.in_flight.pop_front().expect("the rule keeps at least one in flight");
            self.now_ns = self.now_ns.max(ends_ns);
            self.ended += 1;
            rule.ended(0, Duration::from_nanos(self.now_ns), Duration::from_nanos(self.now_ns - began_ns));
        }
    }

    /// When a response that arrives at `at_ns` is delivered.
    fn held_up(&self, at_ns: u64) -> u64 {
        let Some((every_ns, for_ns)) = self.loss else { return at_ns };
        at_ns.max(at_ns / every_ns * every_ns + for_ns.min(every_ns))
    }

    /// The share of the line that requests of the next `time_ns` use.
    fn use_of(&mut self, rule: &mut InFlight<1>, time_ns: u64) -> f64 {
        let (began_ns, before) = (self.now_ns, self.ended);
        self.run(rule, time_ns);
        ((self.ended - before) as u64 * self.service_ns) as f64 / (self.now_ns - began_ns) as f64
    }

    /// Requests that fill the path.
    fn filling(&self) -> f64 {
        (self.service_ns + self.delay_ns) as f64 / self.service_ns as f64
    }
}

const SECOND_NS: u64 = 1_000_000_000;

proptest! {
    // A case is a minute of a path, request by request.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_path_is_filled_and_no_more_than_three_times(service_us in 5_u64..5_000, delay_us in 0_u64..200_000) {
        let mut line = Line::new(service_us * 1_000, delay_us * 1_000);
        let mut rule = InFlight::new(1..=100_000);
        line.run(&mut rule, 4 * SECOND_NS);
        let used = line.use_of(&mut rule, 4 * SECOND_NS);
        prop_assert!(used > 0.97, "{used} of the line is used");
        let limit = rule.limit() as f64;
        prop_assert!(limit <= GAIN * line.filling() * 1.05 + 1.0, "{limit} in flight where {} fill the path", line.filling());
    }

    #[test]
    fn the_bounds_are_kept(service_us in 5_u64..5_000, delay_us in 0_u64..200_000, least in 1_usize..8, most in 8_usize..64) {
        let mut line = Line::new(service_us * 1_000, delay_us * 1_000);
        let mut rule = InFlight::new(least..=most);
        for _ in 0..20 {
            line.run(&mut rule, SECOND_NS / 10);
            prop_assert!((least..=most).contains(&rule.limit()));
        }
    }

    #[test]
    fn a_path_that_changes_is_followed(faster in 1_u64..8, delay_ms in 1_u64..50) {
        let mut line = Line::new(400_000, delay_ms * 1_000_000);
        let mut rule = InFlight::new(1..=100_000);
        line.run(&mut rule, 5 * SECOND_NS);
        // The delay doubles, and the line becomes faster: what was three times the path may be less than it now.
        (line.service_ns, line.delay_ns) = (line.service_ns / faster, 2 * line.delay_ns);
        line.run(&mut rule, 40 * SECOND_NS);
        let used = line.use_of(&mut rule, 20 * SECOND_NS);
        prop_assert!(used > 0.95, "{used} of the line is used");
        // And back.
        (line.service_ns, line.delay_ns) = (line.service_ns * faster, line.delay_ns / 2);
        line.run(&mut rule, 40 * SECOND_NS);
        let limit = rule.limit() as f64;
        prop_assert!(limit <= GAIN * line.filling() * 1.05 + 1.0, "{limit} in flight where {} fill the path", line.filling());
    }
}

#[test]
fn the_way_up_takes_a_round_for_each_doubling_at_most_and_none_from_a_good_start() {
    // 50 ms and room for 128 requests: 7 doublings.
    let mut line = Line::new(390_000, 49_610_000);
    let mut rule = InFlight::new(1..=1_024);
    line.run(&mut rule, 9 * 50_000_000);
    assert!(rule.limit() >= 128, "{} in flight", rule.limit());
    // 64 KiB at 155 Mb/s and 50 ms.
    let mut line = Line::new(3_382_000, 50_000_000);
    let mut rule = InFlight::starting_with(16, 4..=256);
    let used = line.use_of(&mut rule, 2 * SECOND_NS);
    assert!(used > 0.96, "{used} of the line is used");
    assert!(InFlight::<1>::starting_with(16, 1..=8).limit() == 8, "within the bounds");
}

#[test]
fn a_line_has_work_while_a_packet_that_was_lost_comes_again() {
    // A loss in each second holds the responses up for two round trips: one over the path, one through the queue before
    // it.
    let mut line = Line::new(3_382_000, 50_000_000);
    line.loss = Some((SECOND_NS, 100_000_000));
    let mut rule = InFlight::new(4..=256);
    line.run(&mut rule, SECOND_NS);
    let used = line.use_of(&mut rule, 8 * SECOND_NS);
    assert!(used > 0.98, "{used} of the line is used");
}

#[test]
fn each_kind_has_its_own_latency() {
    // A copy: reads of 1 ms and writes of 49 ms take turns, so 50 ms pass per piece. Far from full, the limit grows.
    let mut rule = InFlight::<2>::new(1..=1_000);
    let mut now = Duration::ZERO;
    for _ in 0..2 {
        for (kind, latency_ms) in [(0, 1), (1, 49)] {
            let latency = Duration::from_millis(latency_ms);
            now += latency;
            rule.ended(kind, now, latency);
        }
    }
    // One or two pieces fill it.
    assert!((GAIN as usize..=2 * GAIN as usize).contains(&rule.limit()), "{}", rule.limit());
}

#[test]
fn a_batch_of_completions_is_not_taken_for_a_rate() {
    // 8 requests end at once every 10 ms, each after 10 ms.
    let mut rule = InFlight::<1>::new(8..=1_000_000);
    for batch in 1..200 {
        let now = Duration::from_millis(10 * batch);
        (0..8).for_each(|_| rule.ended(0, now, Duration::from_millis(10)));
    }
    assert!(rule.limit() <= 32, "{} in flight", rule.limit());
}

#[test]
fn batches_of_a_slow_kind_are_not_taken_for_its_rate_beside_a_fast_kind() {
    // A copy: each write of 5 ms follows a read of 20 us, and the answers to writes come eight at a time, every 10 ms.
    let mut rule = InFlight::<2>::new(4..=100_000);
    for batch in 1..500 {
        for piece in 0..8 {
            let now = Duration::from_millis(10 * batch) + piece * Duration::from_micros(20);
            rule.ended(1, now, Duration::from_millis(5));
            rule.ended(0, now, Duration::from_micros(20));
        }
    }
    // 800 writes a second over 5 ms: 4 fill the path, and a batch may count twice.
    assert!(rule.limit() <= 32, "{} in flight", rule.limit());
}

#[test]
fn no_burst_follows_when_the_latency_has_been_measured_again() {
    let mut line = Line::new(1_000_000, 50_000_000);
    let mut rule = InFlight::new(1..=1_000);
    line.run(&mut rule, 2 * SECOND_NS);
    let mut least = usize::MAX;
    while line.now_ns < 2 * LATENCY_LIFE.as_secs() * SECOND_NS {
        let before = rule.limit();
        line.run(&mut rule, 1);
        least = least.min(rule.limit());
        assert!(rule.limit() <= before + REFILL, "from {before} to {} in flight", rule.limit());
    }
    assert!((least as f64) < line.filling(), "{least} in flight at least");
}

#[test]
fn a_burst_is_not_the_rate_of_the_path() {
    // A copy within a busy machine: nothing is done for 3 ms, then what has come meanwhile is written, piece by piece.
    let mut rule = InFlight::<2>::new(4..=256);
    let mut now = Duration::ZERO;
    for _ in 0..200 {
        now += Duration::from_millis(3);
        for _ in 0..rule.limit() {
            now += Duration::from_micros(5);
            rule.ended(0, now, Duration::from_micros(200));
            now += Duration::from_micros(75);
            rule.ended(1, now, Duration::from_micros(75));
        }
    }
    assert_eq!(rule.limit(), 4);
}
