//! A link as a whole, packet by packet, under a virtual clock.

use proptest::prelude::*;

use super::*;

const MS: Nanos = 1_000_000;

/// 10 Mb/s and 5 ms: a packet of 1,250 bytes takes 1 ms on the line.
fn settings() -> Settings {
    Settings {
        bits_per_second: Some(10_000_000),
        delay: 5 * MS,
        jitter: 0,
        loss: LossModel::random(0.0),
        reordering: None,
        queue_bytes: 1_000_000,
        max_packets: 10_000,
        seed: 1,
        direction: 0,
    }
}

/// Offers packets of the same size, one every `gap`, and returns which arrive when.
fn send(link: &mut Link<usize>, packets: usize, bytes: u32, gap: Nanos) -> Vec<(Nanos, usize)> {
    for number in 0..packets {
        link.offer(number as Nanos * gap, bytes, number);
    }
    std::iter::from_fn(|| link.arrival(Nanos::MAX)).collect()
}

fn numbers(arrivals: &[(Nanos, usize)]) -> Vec<usize> {
    arrivals.iter().map(|(_, number)| *number).collect()
}

#[test]
fn a_packet_arrives_after_its_time_on_the_line_and_the_delay() {
    let mut link = Link::new(settings());
    assert_eq!(link.offer(3 * MS, 1250, 'a'), None);
    assert_eq!(link.next_due(), Some(9 * MS));
    assert_eq!(link.arrival(9 * MS - 1), None);
    assert_eq!(link.arrival(9 * MS), Some((9 * MS, 'a')));
    assert_eq!(link.next_due(), None);
}

#[test]
fn packets_arrive_one_after_another_at_the_rate() {
    let arrivals = send(&mut Link::new(settings()), 100, 1250, 0);
    let expected: Vec<_> = (0..100).map(|number| ((number as Nanos + 6) * MS, number)).collect();
    assert_eq!(arrivals, expected);
}

#[test]
fn an_idle_line_gives_no_credit() {
    let mut link = Link::new(settings());
    link.offer(0, 1250, 0);
    link.offer(1000 * MS, 1250, 1);
    link.offer(1000 * MS, 1250, 2);
    let due: Vec<Nanos> = std::iter::from_fn(|| link.arrival(Nanos::MAX)).map(|(due, _)| due).collect();
    assert_eq!(due, [6 * MS, 1006 * MS, 1007 * MS]);
}

#[test]
fn a_full_queue_drops_the_packet_that_comes_last() {
    let mut link = Link::new(Settings { queue_bytes: 3 * 1250, ..settings() });
    assert_eq!(numbers(&send(&mut link, 5, 1250, 0)), [0, 1, 2]);
    assert_eq!((link.counts().dropped, link.counts().longest_queue_bytes), (2, 3750));
}

#[test]
fn the_queue_has_room_again_when_a_packet_has_left() {
    let mut link = Link::new(Settings { queue_bytes: 2 * 1250, ..settings() });
    for (now, packet, expected) in [(0, 'a', None), (0, 'b', None), (MS - 1, 'c', Some('c')), (MS, 'd', None)] {
        assert_eq!(link.offer(now, 1250, packet), expected, "{packet}");
    }
}

#[test]
fn a_small_packet_may_fit_where_a_large_one_did_not() {
    let mut link = Link::new(Settings { queue_bytes: 2000, ..settings() });
    assert_eq!(link.offer(0, 1250, 'a'), None);
    assert_eq!(link.offer(0, 1250, 'b'), Some('b'));
    assert_eq!(link.offer(0, 750, 'c'), None);
    assert_eq!(link.offer(0, 1, 'd'), Some('d'));
}

#[test]
fn a_free_line_takes_a_packet_that_is_longer_than_the_queue() {
    let mut link = Link::new(Settings { queue_bytes: 100, ..settings() });
    assert_eq!(numbers(&send(&mut link, 3, 1250, MS)), [0, 1, 2]);
}

#[test]
fn a_lost_packet_takes_its_time_on_the_line() {
    let mut link = Link::new(Settings { loss: LossModel::random(0.5), ..settings() });
    for (due, number) in send(&mut link, 1000, 1250, 0) {
        assert_eq!(due, (number as Nanos + 6) * MS);
    }
    assert!(link.counts().lost > 300, "{}", link.counts().lost);
}

#[test]
fn packets_on_their_way_are_bounded() {
    let mut link = Link::new(Settings { bits_per_second: None, max_packets: 10, ..settings() });
    assert_eq!(send(&mut link, 15, 1250, 0).len(), 10);
    assert_eq!((link.counts().overflowed, link.counts().dropped), (5, 0));
}

#[test]
fn jitter_lengthens_the_delay_evenly_and_keeps_the_order() {
    let mut link = Link::new(Settings { bits_per_second: None, jitter: 2 * MS, ..settings() });
    let arrivals = send(&mut link, 10_000, 100, 10 * MS);
    let extra: Vec<Nanos> = arrivals.iter().map(|(due, number)| due - *number as Nanos * 10 * MS - 5 * MS).collect();
    assert!(extra.iter().all(|extra| *extra <= 2 * MS));
    let mean = extra.iter().sum::<Nanos>() / 10_000;
    assert!(mean.abs_diff(MS) < MS / 20, "{mean}");
    let mut link = Link::new(Settings { jitter: 50 * MS, ..settings() });
    assert_eq!(numbers(&send(&mut link, 1000, 100, 0)), (0..1000).collect::<Vec<_>>());
}

#[test]
fn held_packets_are_passed_by_those_behind() {
    let reordering = Some(Reordering { share: 0.1, longer: 3 * MS });
    let mut link = Link::new(Settings { reordering, ..settings() });
    let arrivals = send(&mut link, 1000, 1250, 0);
    let mut held = 0;
    for (at, (due, number)) in arrivals.iter().enumerate() {
        let usual = (*number as Nanos + 6) * MS;
        if *due == usual {
            continue;
        }
        assert_eq!(*due, usual + 3 * MS);
        held += 1;
        // The last packets have none behind them that could pass.
        if *number < 990 {
            assert!(arrivals[..at].iter().any(|(_, before)| before > number), "{number} was not passed");
        }
    }
    assert_eq!(held, link.counts().held);
    assert!((50..150).contains(&held), "{held}");
}

#[test]
fn one_option_does_not_change_the_losses_of_another() {
    let lossy = Settings { loss: LossModel::random(0.2), bits_per_second: None, ..settings() };
    let plain = numbers(&send(&mut Link::new(lossy.clone()), 1000, 100, MS));
    let jittery = Settings { jitter: MS / 2, reordering: Some(Reordering { share: 0.0, longer: MS }), ..lossy.clone() };
    assert_eq!(numbers(&send(&mut Link::new(jittery), 1000, 100, MS)), plain);
    let other_way = Settings { direction: 1, ..lossy };
    assert_ne!(numbers(&send(&mut Link::new(other_way), 1000, 100, MS)), plain);
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let line = (prop::option::of(1_000_u64..10_000_000_000), 0..100 * MS, prop_oneof![Just(0), 0..10 * MS]);
    let trouble =
        (0.0..0.5_f64, prop::option::of((0.0..0.5_f64, 0..10 * MS)), 0_u64..100_000, 1_usize..200, any::<u64>());
    (line, trouble).prop_map(
        |((bits_per_second, delay, jitter), (loss, reordering, queue_bytes, max_packets, seed))| Settings {
            bits_per_second,
            delay,
            jitter,
            loss: LossModel::random(loss),
            reordering: reordering.map(|(share, longer)| Reordering { share, longer }),
            queue_bytes,
            max_packets,
            seed,
            direction: 0,
        },
    )
}

/// Packets as gaps and lengths.
fn any_packets() -> impl Strategy<Value = Vec<(Nanos, u32)>> {
    prop::collection::vec((prop_oneof![Just(0), 0..MS, 0..100 * MS], 20_u32..=1500), 1..300)
}

/// Offers and takes packets as a driver does, which wakes for each arrival. Returns the arrivals.
fn drive(settings: &Settings, packets: &[(Nanos, u32)]) -> (Vec<(Nanos, usize)>, Counts) {
    let mut link = Link::new(settings.clone());
    let mut arrivals = Vec::new();
    let mut now = 0;
    for (number, (gap, bytes)) in packets.iter().enumerate() {
        now += gap;
        arrivals.extend(std::iter::from_fn(|| link.arrival(now)));
        link.offer(now, *bytes, number);
    }
    arrivals.extend(std::iter::from_fn(|| link.arrival(Nanos::MAX)));
    (arrivals, link.counts().clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn each_packet_is_counted_once(settings in any_settings(), packets in any_packets()) {
        let (arrivals, counts) = drive(&settings, &packets);
        prop_assert_eq!(counts.offered, packets.len() as u64);
        prop_assert_eq!(counts.arrived, arrivals.len() as u64);
        prop_assert_eq!(counts.offered, counts.arrived + counts.lost + counts.dropped + counts.overflowed);
        let bytes: u64 = arrivals.iter().map(|(_, number)| u64::from(packets[*number].1)).sum();
        prop_assert_eq!(counts.arrived_bytes, bytes);
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals(settings in any_settings(), packets in any_packets()) {
        prop_assert_eq!(drive(&settings, &packets), drive(&settings, &packets));
    }

    #[test]
    fn packets_take_at_least_the_delay_and_at_most_the_queue_too(settings in any_settings(), packets in any_packets()) {
        let (arrivals, _) = drive(&settings, &packets);
        let sent: Vec<Nanos> = packets.iter().scan(0, |now, (gap, _)| { *now += gap; Some(*now) }).collect();
        let longest = settings.queue_bytes.max(1500);
        let waiting = settings.bits_per_second.map_or(0, |rate| longest * 8_000_000_000 / rate + 1);
        let longer = settings.reordering.map_or(0, |by| by.longer);
        for (due, number) in arrivals {
            let line = settings.bits_per_second.map_or(0, |rate| u64::from(packets[number].1) * 8_000_000_000 / rate);
            prop_assert!(due >= sent[number] + line + settings.delay);
            prop_assert!(due <= sent[number] + waiting + settings.delay + settings.jitter + longer);
        }
    }

    #[test]
    fn without_reordering_the_order_is_kept(settings in any_settings(), packets in any_packets()) {
        let (arrivals, counts) = drive(&Settings { reordering: None, ..settings }, &packets);
        prop_assert!(arrivals.is_sorted(), "{:?}", arrivals);
        prop_assert!(numbers(&arrivals).is_sorted());
        prop_assert_eq!(counts.held, 0);
    }

    #[test]
    fn no_second_carries_more_than_the_rate(settings in any_settings(), packets in any_packets()) {
        let steady = Settings { jitter: 0, reordering: None, bits_per_second: Some(settings.bits_per_second.unwrap_or(9_600)), ..settings };
        let rate = steady.bits_per_second.unwrap_or(1);
        let (arrivals, _) = drive(&steady, &packets);
        for (from, (began, _)) in arrivals.iter().enumerate() {
            // The packets after the first one of a window leave within it.
            let mut bits = 0_u128;
            for (due, number) in &arrivals[from + 1..] {
                bits += u128::from(packets[*number].1) * 8;
                let carried = u128::from(due - began + 1) * u128::from(rate) / 1_000_000_000 + 1;
                prop_assert!(bits <= carried, "{} bits in {} ns", bits, due - began);
            }
        }
    }

    #[test]
    fn the_queue_drops_nothing_that_fits(
        rate in 1_000_u64..10_000_000_000,
        packets in any_packets(),
    ) {
        let all: u64 = packets.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        let roomy = Settings { bits_per_second: Some(rate), queue_bytes: all, ..settings() };
        let (arrivals, counts) = drive(&roomy, &packets);
        prop_assert_eq!(arrivals.len(), packets.len());
        prop_assert!(counts.longest_queue_bytes <= all);
    }

    #[test]
    fn the_queue_never_holds_more_than_its_length(settings in any_settings(), packets in any_packets()) {
        let (_, counts) = drive(&settings, &packets);
        prop_assert!(counts.longest_queue_bytes <= settings.queue_bytes.max(1500));
    }
}
