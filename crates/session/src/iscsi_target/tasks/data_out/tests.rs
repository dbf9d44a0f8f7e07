use lunette_buffer::Pool;
use lunette_pdu::{InitiatorTaskTag, LunField, SerialNumber};

use super::*;

const BURST: u32 = 100;

fn pdu(ttt: TargetTransferTag, data_sn: u32, range: Range<u32>, final_: bool) -> DataOut {
    DataOut {
        final_,
        lun: LunField::default(),
        itt: InitiatorTaskTag(1),
        ttt,
        exp_stat_sn: SerialNumber(0),
        data_sn,
        buffer_offset: range.start,
        data_segment_len: range.len(),
    }
}

/// A task that asks for all of its data.
fn collector(wanted: u32) -> Collector {
    let mut collector = Collector::new(0, None);
    let pool = Pool::new(1 << 30);
    collector.want(pool.take(wanted as usize).expect("the pool is large"), wanted);
    collector
}

/// Asks for all that may be asked for. Gives tags and ranges.
fn solicit(collector: &mut Collector, next_ttt: &mut u16, at_most: u32) -> Vec<(TargetTransferTag, Range<u32>)> {
    let mut asked = Vec::new();
    while let Some(solicitation) = collector.solicit(BURST, at_most) {
        let ttt = TargetTransferTag(0x0007_0000 | u32::from(*next_ttt));
        *next_ttt = next_ttt.wrapping_add(1);
        collector.solicited(ttt, solicitation);
        asked.push((ttt, solicitation.offset..solicitation.offset + solicitation.len));
    }
    asked
}

fn arrive(collector: &mut Collector, pdu: &DataOut) {
    collector.accept(pdu, rules(false)).unwrap();
    collector.verified(pdu.buffer_offset, pdu.data_segment_len as u32);
}

fn rules(in_order: bool) -> DataRules {
    DataRules { in_order, recovers: false }
}

#[test]
fn as_many_r2ts_as_the_key_can_say_are_answered_in_any_order() {
    for reverse in [false, true] {
        let wanted = 66_000 * BURST;
        let (mut collector, mut next_ttt) = (collector(wanted), 65_000);
        let mut open = solicit(&mut collector, &mut next_ttt, u32::MAX);
        assert_eq!(open.len(), 65_535);
        if reverse {
            open.reverse();
        }
        for (ttt, range) in open {
            assert!(collector.solicits(ttt));
            arrive(&mut collector, &pdu(ttt, 0, range, true));
            assert!(!collector.solicits(ttt));
        }
        let rest = solicit(&mut collector, &mut next_ttt, u32::MAX);
        assert_eq!(rest.len(), 66_000 - 65_535);
        for (ttt, range) in rest {
            assert!(collector.take_complete().is_none());
            arrive(&mut collector, &pdu(ttt, 0, range, true));
        }
        assert!(collector.take_complete().is_some());
        assert_eq!(collector.r2ts(), 66_000);
    }
}

#[test]
fn tags_of_ended_sequences_name_nothing() {
    let (mut collector, mut next_ttt) = (collector(300), u16::MAX);
    let open = solicit(&mut collector, &mut next_ttt, 3);
    let [(first, _), (second, range), (third, _)] = &open[..] else { panic!("three R2Ts") };
    arrive(&mut collector, &pdu(*second, 0, range.clone(), true));
    assert_eq!([first, second, third].map(|ttt| collector.solicits(*ttt)), [true, false, true]);
    let again = collector.accept(&pdu(*second, 1, range.clone(), true), rules(false));
    assert_eq!(again, Err(DataOutError::Unannounced));
    assert!(!collector.solicits(TargetTransferTag(third.0 + 1)));
}

#[test]
fn what_was_lost_is_asked_for_again() {
    let (mut collector, mut next_ttt) = (collector(250), 0);
    let open = solicit(&mut collector, &mut next_ttt, 8);
    assert_eq!(open.iter().map(|(_, range)| range.clone()).collect::<Vec<_>>(), [0..100, 100..200, 200..250]);
    let [(first, _), (second, _), (third, _)] = open[..] else { panic!("three R2Ts") };
    arrive(&mut collector, &pdu(first, 0, 0..40, false));
    // The header is right, its data is not; the sequence goes on.
    collector.accept(&pdu(first, 1, 40..70, false), rules(true)).unwrap();
    collector.lost(40, 30).unwrap();
    let again = solicit(&mut collector, &mut next_ttt, 8);
    assert_eq!(again, [(TargetTransferTag(0x0007_0003), 40..70)]);
    arrive(&mut collector, &pdu(first, 2, 70..100, true));
    // The last PDU is lost with its F bit, and again when it is repeated.
    arrive(&mut collector, &pdu(third, 0, 200..250, true));
    collector.accept(&pdu(second, 0, 100..200, true), rules(true)).unwrap();
    collector.lost(100, 100).unwrap();
    let (ttt, range) = solicit(&mut collector, &mut next_ttt, 8)[0].clone();
    assert_eq!(range, 100..200);
    collector.accept(&pdu(ttt, 0, range.clone(), true), rules(true)).unwrap();
    collector.lost(100, 100).unwrap();
    let (ttt, range) = solicit(&mut collector, &mut next_ttt, 8)[0].clone();
    arrive(&mut collector, &pdu(ttt, 0, range, true));
    assert!(collector.take_complete().is_none());
    arrive(&mut collector, &pdu(again[0].0, 0, 40..70, true));
    assert!(collector.take_complete().is_some());
    assert_eq!(collector.r2ts(), 6);
}

#[test]
fn a_recovery_r2t_is_no_longer_than_a_burst() {
    let (mut collector, mut next_ttt) = (Collector::new(250, None), 0);
    collector.want(Pool::new(1 << 20).take(300).unwrap(), 300);
    collector.lost(0, 250).unwrap();
    let ranges: Vec<_> = solicit(&mut collector, &mut next_ttt, 8).into_iter().map(|(_, range)| range).collect();
    assert_eq!(ranges, [0..100, 100..200, 200..300]);
}

#[test]
fn unsolicited_data_that_leaves_gaps_is_completed_by_r2ts() {
    let (mut collector, mut next_ttt) = (Collector::new(10, Some(100)), 0);
    collector.want(Pool::new(1 << 20).take(120).unwrap(), 120);
    collector.verified(0, 10);
    arrive(&mut collector, &pdu(TargetTransferTag::RESERVED, 0, 60..70, false));
    assert_eq!(solicit(&mut collector, &mut next_ttt, 8), [], "not before its end");
    arrive(&mut collector, &pdu(TargetTransferTag::RESERVED, 1, 20..40, true));
    let ranges: Vec<_> = solicit(&mut collector, &mut next_ttt, 8).into_iter().map(|(_, range)| range).collect();
    assert_eq!(ranges, [10..20, 40..60, 70..120]);
}

#[test]
fn data_in_too_many_pieces_ends_the_task() {
    let mut collector = collector(1 << 20);
    let asked = collector.solicit(1 << 20, 1).unwrap();
    let ttt = TargetTransferTag(0);
    collector.solicited(ttt, asked);
    let mut data_sn = 0;
    let error = loop {
        let piece = pdu(ttt, data_sn, data_sn * 2..data_sn * 2 + 1, false);
        match collector.accept(&piece, rules(false)) {
            Ok(()) => collector.verified(piece.buffer_offset, 1),
            Err(error) => break error,
        }
        data_sn += 1;
    };
    assert!(matches!(error, DataOutError::Range { why: ExtentsError::TooMany, .. }), "{error}");
}

const RECOVERS: DataRules = DataRules { in_order: true, recovers: true };

fn arrives_with_gaps(collector: &mut Collector, pdu: &DataOut) {
    collector.accept(pdu, RECOVERS).unwrap();
    collector.verified(pdu.buffer_offset, pdu.data_segment_len as u32);
}

#[test]
fn pdus_that_were_lost_whole_are_asked_for_when_their_sequence_ends() {
    let (mut collector, mut next_ttt) = (collector(150), 0);
    let (first, _) = solicit(&mut collector, &mut next_ttt, 1)[0].clone();
    arrives_with_gaps(&mut collector, &pdu(first, 1, 20..40, false));
    arrives_with_gaps(&mut collector, &pdu(first, 4, 70..100, true));
    let mut asked = Vec::new();
    while let [(ttt, range)] = &solicit(&mut collector, &mut next_ttt, 1)[..] {
        asked.push(range.clone());
        arrives_with_gaps(&mut collector, &pdu(*ttt, 0, range.clone(), true));
    }
    assert_eq!(asked, [0..20, 40..70, 100..150]);
    assert_eq!(collector.take_complete().map(|buffer| buffer.len()), Some(150));
}

fn ranges(asked: &[(TargetTransferTag, Range<u32>)]) -> Vec<(u32, u32)> {
    asked.iter().map(|(_, range)| (range.start, range.end)).collect()
}

#[test]
fn what_was_asked_for_again_is_not_asked_for_a_third_time_when_its_sequence_ends_with_gaps() {
    let (mut collector, mut next_ttt) = (collector(100), 0);
    let (first, _) = solicit(&mut collector, &mut next_ttt, 2)[0];
    // The PDU before it was lost whole, and this one is damaged.
    let damaged = pdu(first, 1, 20..40, false);
    collector.accept(&damaged, DataRules { recovers: true, ..rules(true) }).unwrap();
    collector.lost(20, 20).unwrap();
    let again = solicit(&mut collector, &mut next_ttt, 2);
    assert_eq!(ranges(&again), [(20, 40)]);
    arrives_with_gaps(&mut collector, &pdu(first, 2, 40..100, true));
    let rest = solicit(&mut collector, &mut next_ttt, 2);
    assert_eq!(ranges(&rest), [(0, 20)]);
    for (ttt, range) in again.into_iter().chain(rest) {
        arrive(&mut collector, &pdu(ttt, 0, range, true));
    }
    assert!(collector.take_complete().is_some());
}

#[test]
fn without_recovery_a_gap_is_an_error() {
    let (mut collector, mut next_ttt) = (collector(100), 0);
    let (ttt, _) = solicit(&mut collector, &mut next_ttt, 1)[0].clone();
    let behind = pdu(ttt, 1, 20..40, false);
    assert_eq!(collector.accept(&behind, rules(true)), Err(DataOutError::DataSn { got: 1, expected: 0 }));
    for (data_sn, range) in [(0, 20..40), (1, 40..50)] {
        let mut collector = self::collector(100);
        let (ttt, _) = solicit(&mut collector, &mut next_ttt, 1)[0].clone();
        if data_sn == 1 {
            arrives_with_gaps(&mut collector, &pdu(ttt, 0, 0..20, false));
        }
        let hole = collector.accept(&pdu(ttt, data_sn, range, false), RECOVERS);
        assert!(matches!(hole, Err(DataOutError::Offset { .. })), "no PDU is missing, so no byte may be");
    }
}

#[test]
fn an_r2t_that_is_not_answered_is_repeated_and_then_replaced() {
    let (mut collector, mut next_ttt) = (collector(100), 0);
    let (first, range) = solicit(&mut collector, &mut next_ttt, 1)[0].clone();
    assert!(!collector.is_overdue(), "it was sent just now");
    assert!(collector.is_overdue());
    assert!(collector.give_up(), "it comes again as it was");
    assert_eq!(collector.outstanding(7).map(|(ttt, asked)| (ttt, asked.r2t_sn)).collect::<Vec<_>>(), [(first, 0)]);
    assert!(collector.is_overdue());
    assert!(!collector.give_up());
    assert!(!collector.solicits(first));
    let (second, again) = solicit(&mut collector, &mut next_ttt, 1)[0].clone();
    assert_eq!((again, collector.r2ts()), (range.clone(), 2));
    arrives_with_gaps(&mut collector, &pdu(second, 0, range, true));
    assert!(collector.take_complete().is_some());
}

#[test]
fn the_rest_of_a_sequence_that_stays_away_is_asked_for() {
    let (mut collector, mut next_ttt) = (collector(100), 0);
    let (first, _) = solicit(&mut collector, &mut next_ttt, 1)[0].clone();
    arrives_with_gaps(&mut collector, &pdu(first, 0, 0..30, false));
    assert!(!collector.is_overdue());
    collector.accept(&pdu(first, 1, 30..40, false), RECOVERS).unwrap();
    assert!(!collector.is_overdue() && !collector.is_overdue(), "its segment is on its way");
    collector.verified(30, 10);
    assert!(collector.is_overdue() && !collector.give_up());
    let (second, rest) = solicit(&mut collector, &mut next_ttt, 1)[0].clone();
    assert_eq!(rest, 40..100);
    arrives_with_gaps(&mut collector, &pdu(second, 0, rest, true));
    assert!(collector.take_complete().is_some());
}

#[test]
fn announced_data_that_stays_away_is_asked_for_and_dropped_when_it_comes() {
    let mut collector = Collector::new(0, Some(50));
    collector.want(Pool::new(1 << 20).take(80).expect("the pool is large"), 80);
    assert!(!collector.is_overdue() && collector.is_overdue() && !collector.give_up());
    let mut next_ttt = 0;
    assert_eq!(solicit(&mut collector, &mut next_ttt, 1)[0].1, 0..80);
    assert!(collector.skips_repetition(false) && collector.skips_repetition(true) && !collector.skips_repetition(true));
}

#[test]
fn bytes_of_a_failed_task_may_come_for_ever() {
    let len = (1 << 24) - 1;
    let mut collector = Collector::new(0, Some(len));
    collector.discard();
    for data_sn in 0..300 {
        let outcome = collector.accept(&pdu(TargetTransferTag::RESERVED, data_sn, 1..len, false), rules(false));
        assert_eq!(outcome.is_ok(), data_sn == 0);
    }
}
