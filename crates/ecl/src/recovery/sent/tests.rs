use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::recovery::reordering::Reordering;

const RTT: Duration = Duration::from_millis(80);

const TIMES: LossTimes =
    LossTimes { round_trip: RTT, persistent: Duration::from_secs(1), measured_at: Some(Time::new(Duration::ZERO)) };

const ANY: Growth = Growth { sent_after: None, below: u64::MAX };

const fn ms(ms: u64) -> Time {
    Time::new(Duration::from_millis(ms))
}

const fn packet(packet_number: u64) -> SentPacket<u64> {
    SentPacket { packet_number, bytes: 1000, is_path_probe: false, content: packet_number }
}

/// Packets of these numbers, one each ms.
fn having(numbers: impl IntoIterator<Item = u64>) -> Sent<u64> {
    let mut sent = Sent::default();
    for (number, at) in numbers.into_iter().zip(0..) {
        sent.on_sent(packet(number), ms(at));
    }
    sent
}

fn acknowledge(sent: &mut Sent<u64>, first: u64, last: u64) -> (Newly, Vec<u64>) {
    let (mut newly, mut contents) = (Newly::default(), Vec::new());
    sent.on_acknowledged(Span { first, last }, ANY, &mut newly, &mut |outcome| match outcome {
        Outcome::Acknowledged(content) => contents.push(content),
        Outcome::Lost(content) => panic!("{content} is lost"),
    });
    (newly, contents)
}

fn lose(sent: &mut Sent<u64>, now: Time) -> (Losses, Vec<u64>) {
    let mut contents = Vec::new();
    let losses = sent.detect_losses(TIMES, now, &mut |outcome| match outcome {
        Outcome::Lost(content) => contents.push(content),
        Outcome::Acknowledged(content) => panic!("{content} is acknowledged"),
    });
    (losses, contents)
}

#[test]
fn contents_come_back_once() {
    let mut sent = having(0..10);
    let (newly, contents) = acknowledge(&mut sent, 2, 5);
    assert_eq!((newly.packets, newly.newest, contents), (4, Some((5, ms(5))), vec![2, 3, 4, 5]));
    assert_eq!((sent.bytes_in_flight(), sent.packets_in_flight(), sent.oldest()), (6000, 6, Some(&0)));
    assert_eq!(acknowledge(&mut sent, 0, 7).1, [0, 1, 6, 7]);
    assert_eq!(acknowledge(&mut sent, 0, 7).1, []);
    assert_eq!((sent.bytes_in_flight(), sent.oldest()), (2000, Some(&8)));
}

#[test]
fn three_later_numbers_are_proof_of_a_loss_by_section_6_1_1() {
    let mut sent = having(0..10);
    acknowledge(&mut sent, 4, 4);
    assert_eq!(
        lose(&mut sent, ms(10)),
        (Losses { packets: 2, bytes: 2000, newest_sent_at: Some(ms(1)), is_persistent: false }, vec![0, 1])
    );
    assert_eq!(sent.packets_in_flight(), 7);
}

#[test]
fn nine_eighths_of_a_round_trip_are_proof_of_a_loss_by_section_6_1_2() {
    let mut sent = having(0..10);
    acknowledge(&mut sent, 2, 2);
    assert_eq!(sent.loss_time(RTT), Some(ms(90)));
    assert_eq!(lose(&mut sent, ms(89)).1, []);
    assert_eq!(lose(&mut sent, ms(90)).1, [0]);
    assert_eq!(lose(&mut sent, ms(1000)).1, [1]);
    assert_eq!(sent.loss_time(RTT), None, "nothing sent later was acknowledged");
}

#[test]
fn nothing_is_lost_before_a_later_packet_was_acknowledged_by_section_6_1() {
    let mut sent = having(0..10);
    assert_eq!(lose(&mut sent, ms(100_000)).1, []);
    acknowledge(&mut sent, 0, 1);
    assert_eq!(lose(&mut sent, ms(100_000)).1, []);
}

#[test]
fn a_lost_path_probe_is_no_congestion_by_rfc_8899() {
    let mut sent = Sent::default();
    sent.on_sent(SentPacket { is_path_probe: true, ..packet(0) }, ms(0));
    sent.on_sent(packet(5), ms(1));
    acknowledge(&mut sent, 5, 5);
    assert_eq!(lose(&mut sent, ms(2)), (Losses::default(), vec![0]));
}

#[test]
fn a_late_packet_raises_the_threshold_that_was_too_small() {
    let mut sent = having(0..20);
    acknowledge(&mut sent, 9, 9);
    lose(&mut sent, ms(20));
    let (newly, contents) = acknowledge(&mut sent, 2, 2);
    assert_eq!((newly.packets, newly.late, newly.late_sent_at, contents), (0, 1, Some(ms(2)), vec![]));
    assert_eq!((sent.reordering().packets(), sent.reordering().late()), (8, 1));
    assert_eq!(acknowledge(&mut sent, 2, 2).0.late, 0, "it is late once");
    // With the threshold of 8, packet 10 waits for packet 18.
    acknowledge(&mut sent, 7, 8);
    acknowledge(&mut sent, 17, 17);
    assert_eq!(lose(&mut sent, ms(20)).1, []);
    acknowledge(&mut sent, 18, 18);
    assert_eq!(lose(&mut sent, ms(20)).1, [10]);

    let mut sent = having(0..2);
    acknowledge(&mut sent, 1, 1);
    lose(&mut sent, ms(90));
    acknowledge(&mut sent, 0, 0);
    assert_eq!((sent.reordering().packets(), sent.reordering().delay(RTT)), (3, RTT * 10 / 8));
}

#[test]
fn remembered_losses_have_a_bound() {
    let mut sent = having(0..400);
    acknowledge(&mut sent, 399, 399);
    assert_eq!(lose(&mut sent, ms(400)).1.len(), 397);
    assert_eq!(acknowledge(&mut sent, 0, 396).0.late as usize, REMEMBERED_LOSSES);
}

#[test]
fn thresholds_have_bounds() {
    let mut reordering = Reordering::default();
    for distance in 0..3000 {
        reordering.on_late(distance, false);
        reordering.on_late(distance, true);
    }
    assert_eq!((reordering.packets(), reordering.delay(RTT)), (1024, RTT * 2));
    assert_eq!(reordering.delay(Duration::ZERO), crate::recovery::rtt::GRANULARITY);
}

#[test]
fn thresholds_fall_back_after_16_events_without_a_late_packet_by_section_6_2_of_rfc_8985() {
    let mut reordering = Reordering::default();
    reordering.on_late(9, false);
    for _ in 0..15 {
        reordering.on_decrease();
    }
    assert_eq!(reordering.packets(), 10);
    reordering.on_late(9, false);
    for _ in 0..15 {
        reordering.on_decrease();
    }
    assert_eq!(reordering.packets(), 10, "a late packet has renewed them");
    reordering.on_decrease();
    assert_eq!((reordering.packets(), reordering.late()), (3, 2));
}

#[test]
fn losses_without_an_acknowledgement_between_are_persistent_congestion_by_section_7_6() {
    let cases =
        [("all lost", None, 0, true), ("one between came", Some(7), 0, false), ("not yet measured", None, 600, false)];
    for (name, came, measured_at, is_persistent) in cases {
        let mut sent = Sent::default();
        for number in 0..15 {
            sent.on_sent(packet(number), ms(number * 100));
        }
        sent.on_sent(packet(20), ms(1600));
        if let Some(number) = came {
            acknowledge(&mut sent, number, number);
        }
        acknowledge(&mut sent, 20, 20);
        let times = LossTimes { measured_at: Some(ms(measured_at)), ..TIMES };
        let losses = sent.detect_losses(times, ms(1700), &mut |_| {});
        assert_eq!(losses.is_persistent, is_persistent, "{name}");
    }
}

#[test]
fn growth_counts_packets_that_filled_the_window_after_the_last_decrease() {
    let mut sent = having(0..10);
    let growth = Growth { sent_after: Some(ms(2)), below: 8 };
    let mut newly = Newly::default();
    sent.on_acknowledged(Span { first: 0, last: 9 }, growth, &mut newly, &mut |_| {});
    assert_eq!((newly.packets, newly.growth_bytes), (10, 5000));
}

#[test]
fn the_last_acknowledgements_are_known_by_their_time() {
    let mut sent = having(0..1);
    sent.on_other_sent(1, ms(7));
    assert_eq!((sent.other_sent_at(1), sent.other_sent_at(0), sent.other_sent_at(33)), (Some(ms(7)), None, None));
    sent.on_other_sent(33, ms(8));
    assert_eq!((sent.other_sent_at(1), sent.other_sent_at(33)), (None, Some(ms(8))));
}

/// An event for the packets in flight of a [`Sent`].
#[derive(Debug, Clone)]
enum Act {
    /// The next number, and others skipped before it.
    Send {
        skipped: u64,
    },
    Acknowledge {
        first: u64,
        more: u64,
    },
    Wait {
        ms: u64,
    },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..3_u64).prop_map(|skipped| Act::Send { skipped }),
        2 => (0..100_u64, 0..6_u64).prop_map(|(first, more)| Act::Acknowledge { first, more }),
        1 => (0..60_u64).prop_map(|ms| Act::Wait { ms }),
    ];
    prop::collection::vec(act, 0..150)
}

/// RFC 9002 section 6.1, with a map that is searched from end to end.
#[derive(Default)]
struct Naive {
    in_flight: BTreeMap<u64, Time>,
    lost: BTreeMap<u64, bool>,
    largest: Option<u64>,
    reordering: Reordering,
}

impl Naive {
    fn acknowledge(&mut self, first: u64, last: u64) -> Vec<u64> {
        let largest_before = self.largest;
        self.largest = self.largest.max(Some(last));
        for number in first..=last {
            if let Some(by_time) = self.lost.remove(&number) {
                self.reordering.on_late(largest_before.map_or(0, |largest| largest.saturating_sub(number)), by_time);
            }
        }
        (first..=last).filter(|number| self.in_flight.remove(number).is_some()).collect()
    }

    fn lose(&mut self, now: Time) -> Vec<u64> {
        let Some(largest) = self.largest else { return Vec::new() };
        let delay = self.reordering.delay(RTT);
        let by_number = |number: u64| number + self.reordering.packets() <= largest;
        let is_lost =
            |(number, sent_at): &(u64, Time)| *number < largest && (by_number(*number) || *sent_at + delay <= now);
        let flying = self.in_flight.iter().map(|(number, sent_at)| (*number, *sent_at));
        let lost: Vec<u64> = flying.filter(is_lost).map(|(number, _)| number).collect();
        self.lost.extend(lost.iter().map(|number| (*number, !by_number(*number))));
        self.in_flight.retain(|number, _| !lost.contains(number));
        lost
    }
}

proptest! {
    #[test]
    fn it_does_what_a_naive_list_does(acts in acts()) {
        let (mut sent, mut naive) = (Sent::default(), Naive::default());
        let (mut now, mut next) = (ms(0), 0_u64);
        for act in acts {
            match act {
                Act::Send { skipped } => {
                    next += skipped;
                    sent.on_sent(packet(next), now);
                    naive.in_flight.insert(next, now);
                    next += 1;
                }
                Act::Acknowledge { first, more } if first < next => {
                    let last = (first + more).min(next - 1);
                    prop_assert_eq!(acknowledge(&mut sent, first, last).1, naive.acknowledge(first, last));
                }
                Act::Acknowledge { .. } => {}
                Act::Wait { ms } => now = now + Duration::from_millis(ms),
            }
            prop_assert_eq!(lose(&mut sent, now).1, naive.lose(now));
            prop_assert_eq!(sent.packets_in_flight(), naive.in_flight.len());
            prop_assert_eq!(sent.bytes_in_flight(), naive.in_flight.len() as u64 * 1000);
            prop_assert_eq!(sent.oldest(), naive.in_flight.keys().next());
            prop_assert_eq!(sent.reordering(), &naive.reordering);
        }
    }
}

#[test]
fn the_rate_is_that_of_the_packet_that_left_last_in_whatever_order_they_are_told() {
    let newest = acknowledge(&mut having(0..10), 8, 9).0.arrived;
    assert!(newest.is_some());
    let (mut sent, mut newly) = (having(0..10), Newly::default());
    for (first, last) in [(8, 9), (0, 3)] {
        sent.on_acknowledged(Span { first, last }, ANY, &mut newly, &mut |_| {});
    }
    assert_eq!(newly.arrived, newest);
}
