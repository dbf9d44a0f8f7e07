use proptest::prelude::*;

use super::*;
use crate::header::ParityPosition;

fn packet(group: u16, position: u8, payload: &[u8]) -> Header {
    let mut header = Header::new(PacketType::Stream, 7, u64::from(group) * 100 + u64::from(position));
    header.parity = ParityPosition { group, position };
    header.stream_offset = u64::from(position) * 1000;
    header.pdu_offset = u32::from(position) * 10;
    header.bhs = [position; BHS_LEN];
    header.payload_check = crc32c(payload);
    header
}

/// The Parity packet of a group.
fn parity(group: u16, payloads: &[Vec<u8>]) -> (Header, Vec<u8>) {
    let mut sum = Sum::default();
    for (position, payload) in (0..).zip(payloads) {
        let (front, back) = payload.split_at(payload.len() / 3);
        sum.add_packet(&packet(group, position, payload), [front, back]);
    }
    let mut header = Header::new(PacketType::Parity, 7, u64::from(group) * 100 + 99);
    header.parity = ParityPosition { group, position: payloads.len() as u8 };
    let payload = sum.into_packet(&mut header);
    (header, payload)
}

proptest! {
    #[test]
    fn any_one_packet_of_a_group_is_rebuilt_in_any_order(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..=64),
        lost: prop::sample::Index,
        parity_comes: prop::sample::Index,
    ) {
        let lost = lost.index(payloads.len());
        let parity_comes = parity_comes.index(payloads.len());
        let mut groups = Groups::default();
        let (header, sum) = parity(3, &payloads);
        let mut rebuilt = Vec::new();
        for (position, payload) in payloads.iter().enumerate() {
            if position == parity_comes {
                rebuilt.extend(groups.add(&header, &sum));
            }
            if position != lost {
                rebuilt.extend(groups.add(&packet(3, position as u8, payload), payload));
            }
        }
        prop_assert_eq!(rebuilt.len(), 1);
        let expected = packet(3, lost as u8, &payloads[lost]);
        let Rebuilt { header, bytes } = &rebuilt[0];
        prop_assert_eq!(
            (header.stream_offset, header.pdu_offset, header.bhs, header.payload_check),
            (expected.stream_offset, expected.pdu_offset, expected.bhs, expected.payload_check)
        );
        prop_assert_eq!(&bytes[..BHS_LEN], &expected.bhs);
        prop_assert_eq!(&bytes[BHS_LEN..], &payloads[lost]);
        // When it comes after all, it is the session's business whether it is a repetition.
        prop_assert_eq!(groups.add(&expected, &payloads[lost]), None);
    }

    #[test]
    fn no_packets_make_it_panic_or_rebuild_what_does_not_fit_its_check(
        packets in prop::collection::vec((1_u16..12, 0_u8..64, any::<bool>(), prop::collection::vec(any::<u8>(), 0..20)), 0..200),
    ) {
        let mut groups = Groups::default();
        for (group, position, is_parity, payload) in packets {
            let mut header = packet(group, position, &payload);
            if is_parity {
                header.packet_type = PacketType::Parity;
                header.parity.position = position % 4 + 1;
            }
            if let Some(Rebuilt { header, bytes }) = groups.add(&header, &payload) {
                prop_assert_eq!(crc32c(&bytes[BHS_LEN..]), header.payload_check);
            }
            prop_assert!(groups.groups.len() <= MAX_PARITY_GROUPS);
        }
    }
}

#[test]
fn a_group_that_lost_nothing_or_two_packets_rebuilds_nothing() {
    let payloads = [vec![1; 10], vec![2; 10], vec![3; 10]];
    for came in [vec![0, 1, 2], vec![1]] {
        let mut groups = Groups::default();
        for position in came {
            assert_eq!(groups.add(&packet(1, position, &payloads[0]), &payloads[usize::from(position)]), None);
        }
        let (header, sum) = parity(1, &payloads);
        assert_eq!(groups.add(&header, &sum), None);
    }
}

#[test]
fn a_damaged_sum_rebuilds_nothing() {
    let payloads = [vec![1; 10], vec![2; 10]];
    for at in 0..11 {
        let mut groups = Groups::default();
        let (header, mut sum) = parity(1, &payloads);
        sum[at] ^= 4;
        assert_eq!(groups.add(&header, &sum), None);
        assert_eq!(groups.add(&packet(1, 0, &payloads[0]), &payloads[0]), None, "byte {at}");
    }
}

#[test]
fn old_groups_make_room_and_numbers_come_round() {
    let mut groups = Groups::default();
    let payloads = [vec![5; 7], vec![6; 9]];
    for (packet_number, number) in (1000..).step_by(100).zip((65_500..=u16::MAX).chain(1..50)) {
        let mut first = packet(number, 0, &payloads[0]);
        first.packet_number = packet_number;
        assert_eq!(groups.add(&first, &payloads[0]), None);
        let (mut header, sum) = parity(number, &payloads);
        header.packet_number = packet_number + 99;
        assert!(groups.add(&header, &sum).is_some(), "group {number}");
    }
    assert_eq!(groups.groups.len(), MAX_PARITY_GROUPS);
    let (mut header, sum) = parity(20, &payloads[..1]);
    header.packet_number = 1_000_000;
    assert_eq!(groups.add(&header, &sum), None, "it is too old");
}

/// The sum of three packets fits its payload check, because CRC32C is linear: only the numbers tell.
#[test]
fn a_packet_that_was_held_back_belongs_to_no_later_group_of_the_same_number() {
    const ROUND: u64 = 2 * (u16::MAX as u64);
    let payloads = [vec![1; 10], vec![2; 10], vec![3; 10]];
    let later = |mut header: Header| {
        header.packet_number += ROUND;
        header
    };
    let held_back = vec![9; 10];
    // It comes in the middle of the group, or some groups before that.
    for before in [0, 5] {
        let mut groups = Groups::default();
        assert_eq!(groups.add(&later(packet(40 - before, 0, &payloads[0])), &payloads[0]), None);
        assert_eq!(groups.add(&packet(40, 1, &held_back), &held_back), None);
        // The attacker drops two of the group.
        assert_eq!(groups.add(&later(packet(40, 0, &payloads[0])), &payloads[0]), None);
        let (header, sum) = parity(40, &payloads);
        assert_eq!(groups.add(&later(header), &sum), None, "{before} groups before");
        let Rebuilt { bytes, .. } =
            groups.add(&later(packet(40, 1, &payloads[1])), &payloads[1]).expect("the lost one");
        assert_eq!(&bytes[BHS_LEN..], payloads[2]);
    }
}

fn send(grouping: &mut Grouping, payload: &[u8]) -> bool {
    let position = grouping.next_position();
    if position == ParityPosition::NONE {
        return false;
    }
    grouping.add(&packet(position.group, position.position, payload), [payload]);
    true
}

#[test]
fn the_share_of_parity_follows_the_loss() {
    for (loss, least, most) in [(0, 0, 0), (1000, 60, 64), (100, 20, 30), (10, 4, 4)] {
        let mut grouping = Grouping::new();
        for packet in 1..20_000_u32 {
            grouping.on_outcome(loss > 0 && packet.is_multiple_of(loss));
        }
        let sent = (0..64).take_while(|_| send(&mut grouping, &[0; 100]) && !grouping.is_due(false)).count();
        let len = if sent == 0 { 0 } else { sent + usize::from(grouping.is_due(false)) };
        assert!((least..=most).contains(&len), "one lost of {loss}: groups of {len}");
    }
}

#[test]
fn an_idle_sender_closes_a_group_early_as_far_as_the_share_allows() {
    let mut grouping = Grouping::new();
    for packet in 1..20_000_u32 {
        grouping.on_outcome(packet.is_multiple_of(100));
    }
    let (mut packets, mut parity) = (0, 0);
    for _ in 0..1000 {
        assert!(send(&mut grouping, &[0; 100]));
        packets += 1;
        if grouping.is_due(true) {
            let (position, _) = grouping.take();
            assert!(position.position > 0);
            parity += 1;
        }
    }
    let share = packets / parity;
    assert!((5..=8).contains(&share), "one in {share}, though each packet is the last for now");
}

#[test]
fn late_packets_are_no_loss_and_without_the_option_there_is_no_parity() {
    let mut grouping = Grouping::new();
    grouping.on_outcome(true);
    grouping.on_late(1);
    assert!(!send(&mut grouping, &[1]));
    let mut grouping = Grouping::default();
    grouping.on_outcome(true);
    assert!(!send(&mut grouping, &[1]));
}
