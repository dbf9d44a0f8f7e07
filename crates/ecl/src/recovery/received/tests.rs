use super::*;
use crate::recovery::ack_payload::AckRanges;

const fn at(us: u64) -> Time {
    Time::new(Duration::from_micros(us))
}

const fn packet(packet_number: u64) -> Arrival {
    Arrival { packet_number, is_acknowledged: true, ack_now: false, is_marked: false }
}

/// Has received `numbers`, one each µs, and told of them twice.
fn having(numbers: impl IntoIterator<Item = u64>) -> Received {
    let mut received = Received::default();
    for (number, us) in numbers.into_iter().zip(1..) {
        assert!(received.receive(packet(number), at(us)));
    }
    received.told(Told::WithRanges);
    received.told(Told::WithRanges);
    received
}

fn ranges(received: &Received) -> Vec<(u64, u64)> {
    let mut payload = [0; MAX_ACK_PAYLOAD_LEN];
    let len = received.ranges(&mut payload);
    let largest = received.acknowledged(at(0)).largest;
    let ranges = AckRanges::parse(&payload[..len], largest).expect("well-formed ranges");
    ranges.iter().map(|span| (span.first, span.last)).collect()
}

#[test]
fn a_duplicate_is_told_from_a_new_packet() {
    let mut received = having(0..3);
    assert!(!received.receive(packet(1), at(9)));
    assert!(received.receive(packet(3), at(9)));
    assert!(!received.receive(packet(NOTHING_ACKNOWLEDGED), at(9)), "no packet has that number");
}

#[test]
fn two_packets_make_an_acknowledgement_due_and_one_waits_by_section_13_2_of_rfc_9000() {
    let mut received = having(0..2);
    assert_eq!(received.next_timeout(), None);
    assert!(received.receive(packet(2), at(10)));
    assert!(!received.is_due(at(10)));
    assert_eq!(received.next_timeout(), Some(at(10) + ACK_DELAY));
    assert!(received.is_due(at(10) + ACK_DELAY));
    assert!(received.receive(packet(3), at(11)));
    assert!(received.is_due(at(11)));
}

#[test]
fn one_acknowledgement_answers_a_batch_of_forty() {
    let mut received = having(0..2);
    for number in 2..42 {
        assert!(received.receive(packet(number), at(50)));
    }
    assert!(received.is_due(at(50)));
    received.told(Told::InHeader);
    assert!(!received.is_due(at(50) + ACK_DELAY));
    assert_eq!(received.next_timeout(), None);
}

#[test]
fn some_packets_are_acknowledged_at_once_by_section_13_2_1_of_rfc_9000() {
    let cases = [
        ("a gap", packet(5), true),
        ("in order", packet(3), false),
        ("asks for it", Arrival { ack_now: true, ..packet(3) }, true),
        ("marked", Arrival { is_marked: true, ..packet(3) }, true),
        ("wants none", Arrival { is_acknowledged: false, ..packet(5) }, false),
        ("wants none, marked", Arrival { is_acknowledged: false, is_marked: true, ..packet(5) }, false),
        ("late", packet(1), true),
    ];
    for (name, packet, is_due) in cases {
        let mut received = having([0, 2]);
        assert!(received.receive(packet, at(10)));
        assert_eq!(received.is_due(at(10)), is_due, "{name}");
    }
}

#[test]
fn acknowledgements_are_not_acknowledged() {
    let mut received = having(0..2);
    for number in 2..40 {
        assert!(received.receive(Arrival { is_acknowledged: false, ..packet(number) }, at(10)));
    }
    assert_eq!(received.next_timeout(), None);
}

#[test]
fn marks_are_counted() {
    let mut received = having(0..2);
    assert!(received.receive(Arrival { is_marked: true, ..packet(2) }, at(10)));
    assert!(!received.receive(Arrival { is_marked: true, ..packet(2) }, at(10)));
    assert!(received.receive(Arrival { is_marked: true, is_acknowledged: false, ..packet(3) }, at(10)));
    assert_eq!(received.congestion_count(), 2);
}

#[test]
fn a_header_says_65_numbers_and_how_long_ago_the_largest_came() {
    assert_eq!(Received::default().acknowledged(at(0)), Acknowledged::NOTHING);
    assert_eq!(having([0]).acknowledged(at(8)), Acknowledged { largest: 0, bits: 0, delay_us: 7 });
    assert_eq!(having([1, 3, 0]).acknowledged(at(2)), Acknowledged { largest: 3, bits: 0b110, delay_us: 0 });
    assert_eq!(having(0..65).acknowledged(at(65)), Acknowledged { largest: 64, bits: u64::MAX, delay_us: 0 });
    let bits = having((0..40).chain(70..101)).acknowledged(at(71)).bits;
    let expected = (0..64).filter(|bit| matches!(99 - bit, 0..40 | 70..101)).fold(0, |bits, bit| bits | 1_u64 << bit);
    assert_eq!(bits, expected);
    assert_eq!(having([5]).acknowledged(at(1 << 40)).delay_us, u32::MAX, "the field's largest value");
}

#[test]
fn each_number_is_told_twice() {
    let mut received = having(0..2);
    for number in 2..42 {
        assert!(received.receive(packet(number), at(50)));
    }
    received.told(Told::InHeader);
    // The header of the next batch has no room for this one, should its acknowledgement be lost.
    for number in 42..82 {
        assert!(received.receive(packet(number), at(60)));
    }
    assert!(received.needs_ranges());
    received.told(Told::InHeader);
    assert!(received.is_due(at(60)), "a header alone was not enough");
    assert_eq!(ranges(&received), [(0, 81)]);
    received.told(Told::WithRanges);
    assert!(!received.is_due(at(60)));
    assert!(!received.needs_ranges(), "the second batch fits the next header");
}

#[test]
fn an_ack_packet_repeats_some_ranges_and_all_that_were_not_told_twice() {
    let mut received = having((0..40).map(|number| number * 3));
    assert_eq!(ranges(&received).len(), RANGES_REPEATED);
    assert_eq!(ranges(&received)[0], (117, 117));
    // A late packet is told, with all that is newer.
    assert!(received.receive(packet(31), at(100)));
    assert!(received.needs_ranges());
    assert_eq!(ranges(&received).last(), Some(&(30, 31)));
    assert_eq!(ranges(&having([0, 64])), [], "the header says it all");
}

#[test]
fn of_too_many_ranges_the_newest_are_told() {
    let received = {
        let mut received = Received::default();
        for number in 0..500 {
            assert!(received.receive(packet(number * 2), at(number)));
        }
        received
    };
    let ranges = ranges(&received);
    assert_eq!(ranges.len(), crate::limits::MAX_ACK_RANGES);
    assert_eq!(ranges[0], (998, 998));
}
