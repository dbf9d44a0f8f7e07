use proptest::prelude::*;

use super::*;
use crate::limits::MAX_SILENCE;
use crate::recovery::probes::MAX_PROBE_INTERVAL;
use crate::recovery::ranges::{Ranges, Span};

const LEN: usize = 1000;

const fn ms(ms: u64) -> Time {
    Time::new(Duration::from_millis(ms))
}

fn recovery() -> Recovery<u64> {
    Recovery::new(Config { datagram_len: LEN, flows: FLOWS, control: CongestionControl::Cubic, seed: 7 }, ms(0))
}

fn send(recovery: &mut Recovery<u64>, now: Time) -> u64 {
    let packet_number = recovery.next_packet_number();
    recovery.on_sent(SentPacket { packet_number, bytes: LEN, is_path_probe: false, content: packet_number }, now);
    packet_number
}

const fn up_to(largest: u64) -> Acknowledged {
    let bits = if largest >= 64 { u64::MAX } else { (1 << largest) - 1 };
    Acknowledged { largest, bits, delay_us: 0 }
}

fn hear(recovery: &mut Recovery<u64>, said: Acknowledged, count: u32, now: Time) -> Vec<Outcome<u64>> {
    let mut outcomes = Vec::new();
    recovery.on_acknowledged(&said, AckRanges::NONE, count, now, &mut |outcome| outcomes.push(outcome)).expect("sent");
    outcomes
}

fn timeout(recovery: &mut Recovery<u64>, now: Time) -> Timeout {
    recovery.on_timeout(now, &mut |_| {})
}

/// With a round trip of 100 ms and nothing in flight at `ms(100)`.
fn measured() -> Recovery<u64> {
    let mut recovery = recovery();
    let number = send(&mut recovery, ms(0));
    hear(&mut recovery, up_to(number), 0, ms(100));
    recovery
}

proptest! {
    #[test]
    fn what_one_side_says_the_other_understands(numbers in prop::collection::vec(0..300_u64, 1..300)) {
        let mut received = Received::default();
        let mut ranges = Ranges::default();
        for number in numbers {
            let arrival = Arrival { packet_number: number, is_acknowledged: true, ack_now: false, is_marked: false };
            prop_assert_eq!(received.receive(arrival, ms(1)), ranges.insert_one(number));
        }
        let said = received.acknowledged(ms(1));
        let mut payload = [0; MAX_ACK_PAYLOAD_LEN];
        let len = received.ranges(&mut payload);
        let told = AckRanges::parse(&payload[..len], said.largest).expect("well-formed");
        let mut understood = Ranges::default();
        for span in spans(&said).chain(told.iter()) {
            understood.insert(span, |_| {});
        }
        let expected: Vec<Span> = ranges.newest_first().take(crate::limits::MAX_ACK_RANGES).collect();
        prop_assert_eq!(understood.newest_first().take(expected.len()).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_packet_that_was_not_sent_cannot_be_acknowledged() {
    let mut recovery = recovery();
    let number = send(&mut recovery, ms(0));
    let mut refuse = |said, ranges: AckRanges<'_>| {
        recovery.on_acknowledged(&said, ranges, 0, ms(1), &mut |outcome| panic!("{outcome:?}")).expect_err("a lie")
    };
    assert_eq!(refuse(up_to(number + 1), AckRanges::NONE), NeverSent(number + 1));
    assert_eq!(refuse(up_to(u64::MAX - 1), AckRanges::NONE), NeverSent(u64::MAX - 1));
    assert_eq!(recovery.bytes_in_flight(), LEN as u64);
    assert_eq!(hear(&mut recovery, Acknowledged::NOTHING, 0, ms(1)), []);
}

#[test]
fn a_peer_that_acknowledges_all_numbers_is_found_out_by_section_21_4_of_rfc_9000() {
    let mut recovery = recovery();
    let found_out = (0..5000).find(|_| {
        let number = send(&mut recovery, ms(0));
        recovery.on_acknowledged(&up_to(number), AckRanges::NONE, 0, ms(1), &mut |_| {}).is_err()
    });
    assert!(found_out.is_some());
}

#[test]
fn numbers_ascend_and_some_are_skipped_where_the_seed_says() {
    let skips = |seed| {
        let mut numbers = Numbers::new(seed);
        let taken: Vec<u64> = (0..50_000).map(|_| numbers.take()).collect();
        assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
        let skipped: Vec<u64> = taken.windows(2).filter(|pair| pair[0] + 1 < pair[1]).map(|pair| pair[0] + 1).collect();
        for number in &skipped[skipped.len() - 8..] {
            assert_eq!(numbers.never_sent(Span::one(*number)), Some(*number));
        }
        skipped
    };
    assert!((12..=195).contains(&skips(1).len()));
    assert_ne!(skips(1), skips(2));
}

#[test]
fn a_probe_leaves_after_section_6_2_and_the_next_after_twice_the_time() {
    let mut recovery = measured();
    let sent_at = ms(1000);
    send(&mut recovery, sent_at);
    // 100 ms + 4 × 50 ms + 5 ms.
    let probe_timeout = Duration::from_millis(305);
    let mut due_at = sent_at + probe_timeout;
    for (probe, interval) in [1, 2, 4].into_iter().zip(1_u32..) {
        assert_eq!(recovery.next_timeout(), Some(due_at), "probe {interval}");
        assert_eq!(timeout(&mut recovery, ms(1001)), Timeout::Nothing);
        assert_eq!(timeout(&mut recovery, due_at), Timeout::Probe);
        send(&mut recovery, due_at);
        due_at = due_at + probe_timeout * probe * 2;
    }
    // No further apart than 2 s.
    assert_eq!(timeout(&mut recovery, due_at), Timeout::Probe);
    assert_eq!(recovery.next_timeout(), Some(due_at + MAX_PROBE_INTERVAL));
    // An answer ends it.
    let number = send(&mut recovery, due_at);
    hear(&mut recovery, Acknowledged { largest: number, bits: u64::MAX >> (64 - number), delay_us: 0 }, 0, due_at);
    assert_eq!(recovery.next_timeout(), None);
}

#[test]
fn a_probe_that_the_caller_does_not_send_is_asked_for_again_and_not_at_once() {
    let mut recovery = measured();
    send(&mut recovery, ms(1000));
    let due_at = recovery.next_timeout().expect("a probe");
    assert_eq!(timeout(&mut recovery, due_at), Timeout::Probe);
    assert!(recovery.next_timeout().is_some_and(|next| next > due_at));
}

#[test]
fn a_peer_that_never_answers_ends_the_association_after_30_s() {
    let mut recovery = measured();
    send(&mut recovery, ms(1000));
    let mut probes = 0;
    let silent_at = loop {
        let now = recovery.next_timeout().expect("something is in flight");
        match timeout(&mut recovery, now) {
            Timeout::Probe => {
                probes += 1;
                send(&mut recovery, now);
            }
            Timeout::Silent => break now,
            Timeout::Nothing => panic!("nothing at {now:?}"),
        }
    };
    assert_eq!(silent_at, ms(1000) + MAX_SILENCE);
    assert!((15..20).contains(&probes), "{probes} probes");
}

#[test]
fn silence_counts_from_the_packet_that_broke_it() {
    let mut recovery = measured();
    send(&mut recovery, ms(100_000));
    assert_eq!(timeout(&mut recovery, ms(100_001)), Timeout::Nothing);
}

#[test]
fn the_round_trip_is_known_from_acknowledgements_of_acknowledgements_too() {
    let mut recovery = recovery();
    send(&mut recovery, ms(0));
    let ack = recovery.next_packet_number();
    recovery.on_other_sent(ack, ms(10));
    hear(&mut recovery, Acknowledged { delay_us: 2000, ..up_to(ack) }, 0, ms(60));
    assert_eq!(recovery.rtt().latest(), Duration::from_millis(50));
}

#[test]
fn a_late_acknowledgement_of_an_old_packet_is_no_sample_by_section_5_1() {
    let mut recovery = recovery();
    send(&mut recovery, ms(0));
    let second = send(&mut recovery, ms(0));
    hear(&mut recovery, Acknowledged { largest: second, bits: 0, delay_us: 0 }, 0, ms(40));
    hear(&mut recovery, up_to(second), 0, ms(70));
    assert_eq!(recovery.rtt().latest(), Duration::from_millis(40));
}

#[test]
fn marks_count_as_losses_once_in_a_round_trip_by_section_7_1() {
    let mut recovery = measured();
    let window = recovery.window();
    let numbers: Vec<u64> = (0..4).map(|_| send(&mut recovery, ms(200))).collect();
    hear(&mut recovery, up_to(numbers[0]), 1, ms(300));
    let after = recovery.window();
    assert!(after < window);
    hear(&mut recovery, up_to(numbers[1]), 2, ms(301));
    assert_eq!(recovery.window(), after, "it was sent before the decrease");
    let number = send(&mut recovery, ms(400));
    hear(&mut recovery, up_to(number), 2, ms(500));
    assert_eq!(recovery.window(), after, "the count has not changed");
    let number = send(&mut recovery, ms(501));
    hear(&mut recovery, up_to(number), 3, ms(600));
    assert!(recovery.window() < after);
}

#[test]
fn a_window_is_full_until_packets_are_acknowledged() {
    let mut recovery = recovery();
    assert_eq!(recovery.allowance(1 << 20, ms(0)), Allowance::Bytes(10_000));
    let numbers: Vec<u64> = (0..10).map(|_| send(&mut recovery, ms(0))).collect();
    assert_eq!(recovery.allowance(1, ms(0)), Allowance::WindowFull);
    hear(&mut recovery, up_to(numbers[1]), 0, ms(50));
    assert_eq!(recovery.window(), 12_000, "the window was full, so it grows");
    assert!(matches!(recovery.allowance(1 << 20, ms(50)), Allowance::Bytes(LEN..=4000)));
}

#[test]
fn a_sender_with_little_to_send_does_not_grow_its_window_by_section_7_8() {
    let mut recovery = recovery();
    let window = recovery.window();
    for round in 0..100 {
        assert!(matches!(recovery.allowance(LEN, ms(round * 100)), Allowance::Bytes(_)));
        let number = send(&mut recovery, ms(round * 100));
        hear(&mut recovery, up_to(number), 0, ms(round * 100 + 50));
    }
    assert_eq!(recovery.window(), window);
}

#[test]
fn packets_in_flight_have_a_bound() {
    let mut recovery = recovery();
    for _ in 0..crate::limits::MAX_PACKETS_IN_FLIGHT {
        let packet_number = recovery.next_packet_number();
        recovery.on_sent(SentPacket { packet_number, bytes: 0, is_path_probe: false, content: 0 }, ms(0));
    }
    assert_eq!(recovery.allowance(1, ms(0)), Allowance::WindowFull);
}

#[test]
fn a_new_path_begins_again_and_losses_of_the_old_one_do_not_slow_it() {
    let mut recovery = measured();
    let old: Vec<u64> = (0..5).map(|_| send(&mut recovery, ms(200))).collect();
    recovery.on_path_change(ms(250));
    assert_eq!((recovery.window(), recovery.rtt().first_sample_at()), (10_000, None));
    let outcomes = hear(&mut recovery, Acknowledged { largest: old[4], bits: 0, delay_us: 0 }, 0, ms(300));
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Lost(_))).count(), 2);
    assert_eq!(recovery.window(), 10_000);
}

#[test]
fn packets_that_took_the_path_before_measure_no_new_one_by_section_9_4_of_rfc_9000() {
    for control in [CongestionControl::Cubic, CongestionControl::Bbr] {
        let mut recovery = Recovery::new(Config { datagram_len: LEN, flows: FLOWS, control, seed: 7 }, ms(0));
        let old: Vec<u64> = (0..60).map(|_| send(&mut recovery, ms(200))).collect();
        recovery.on_path_change(ms(250));
        let rate = |recovery: &Recovery<u64>| recovery.congestion.rate(Duration::from_millis(100), LEN as u64);
        let before = rate(&recovery);
        let first = send(&mut recovery, ms(251));
        hear(&mut recovery, up_to(old[59]), 0, ms(300));
        assert_eq!((recovery.rtt().first_sample_at(), rate(&recovery)), (None, before), "{control:?}");
        hear(&mut recovery, up_to(first), 0, ms(351));
        assert_eq!(recovery.rtt().latest(), Duration::from_millis(100));
        // One packet in 100 ms.
        if control == CongestionControl::Bbr {
            assert!(rate(&recovery).bytes_per_second < 30_000.0, "{:?}", rate(&recovery));
        }
    }
}

#[test]
fn the_handshake_measures_the_path() {
    let mut recovery = recovery();
    recovery.on_handshake(Duration::from_millis(3), ms(3));
    assert_eq!(recovery.rtt().smoothed(), Duration::from_millis(3));
}
