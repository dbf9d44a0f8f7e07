use super::*;

fn pdu(tag: u8, len: usize) -> OutgoingPdu {
    let data: Vec<u8> = (0..len).map(|index| tag.wrapping_add(index as u8)).collect();
    OutgoingPdu { bhs: [tag; BHS_LEN], ahs: Box::default(), data: data.into(), more: Vec::new(), block_len: 0 }
}

fn payload(outgoing: &Outgoing, cut: Cut) -> Vec<u8> {
    outgoing.slices(cut).flatten().copied().collect()
}

const NO_LIMIT: u64 = u64::MAX;

#[test]
fn a_pdu_is_cut_where_a_packet_is_full() {
    let mut outgoing = Outgoing::default();
    outgoing.push(pdu(1, 10));
    outgoing.push(pdu(2, 0));
    let mut seen = Vec::new();
    while let Some(cut) = outgoing.next_cut(8, NO_LIMIT) {
        let place = outgoing.place(cut).expect("it is not acknowledged");
        seen.push((place.bhs[0], place.stream_offset, place.pdu_offset, payload(&outgoing, cut)));
    }
    // Ten bytes of data and two of pad.
    let expected = [
        (1, 0, 0, vec![1, 2, 3, 4, 5, 6, 7, 8]),
        (1, BHS_LEN as u64 + 8, 8, vec![9, 10, 0, 0]),
        (2, BHS_LEN as u64 + 12, 0, vec![]),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn additional_header_segments_go_before_the_data() {
    let mut outgoing = Outgoing::default();
    outgoing.push(OutgoingPdu { ahs: Box::new([7, 7, 7, 7]), ..pdu(1, 3) });
    let cut = outgoing.next_cut(100, NO_LIMIT).expect("a PDU waits");
    assert_eq!(payload(&outgoing, cut), [7, 7, 7, 7, 1, 2, 3, 0]);
}

/// A Data-In PDU of blocks that are quanta of 1024 bytes with their slots.
fn data_in(buffer_offset: u32, len: usize) -> OutgoingPdu {
    let mut pdu = OutgoingPdu { block_len: 1088, ..pdu(1, len) };
    pdu.bhs[0] = Opcode::SCSI_DATA_IN.0;
    pdu.bhs[40..44].copy_from_slice(&buffer_offset.to_be_bytes());
    pdu
}

#[test]
fn cuts_keep_quanta_with_their_slots_whole() {
    let mut outgoing = Outgoing::default();
    outgoing.push(data_in(0, 4 * 1088));
    // One that begins within a block, as after a burst of another length.
    outgoing.push(data_in(1088 + 88, 1000 + 2 * 1088 + 500));
    let mut seen = Vec::new();
    while let Some(cut) = outgoing.next_cut(3000, NO_LIMIT) {
        let place = outgoing.place(cut).expect("it is not acknowledged");
        seen.push((cut.payload_len(), place.quanta));
    }
    let whole = Some(QuantumSize::B1024);
    assert_eq!(seen, [(2176, whole), (2176, whole), (2088, None), (1588, None)]);
    // A path that carries no whole one.
    outgoing.push(data_in(0, 1088));
    let lens: Vec<usize> = std::iter::from_fn(|| outgoing.next_cut(600, NO_LIMIT)).map(Cut::payload_len).collect();
    assert_eq!(lens, [600, 488]);
}

#[test]
fn nothing_new_is_sent_beyond_the_credit() {
    let mut outgoing = Outgoing::default();
    outgoing.push(pdu(1, 100));
    assert_eq!(outgoing.next_cut(64, BHS_LEN as u64), None, "a header alone makes no packet of a PDU with data");
    assert!(!outgoing.has_more(BHS_LEN as u64) && outgoing.waits_for_credit(BHS_LEN as u64));
    let first = outgoing.next_cut(64, BHS_LEN as u64 + 20).expect("20 bytes are allowed");
    assert_eq!(first.payload_len(), 20);
    assert_eq!(outgoing.next_cut(64, BHS_LEN as u64 + 20), None);
    assert!(outgoing.waits_for_credit(BHS_LEN as u64 + 20));
    // What was lost was within the credit.
    outgoing.lost(first);
    assert!(!outgoing.waits_for_credit(BHS_LEN as u64 + 20));
    assert_eq!(outgoing.next_cut(64, 0), Some(first));
}

#[test]
fn what_was_lost_is_cut_again_for_a_narrower_path() {
    let mut outgoing = Outgoing::default();
    outgoing.push(pdu(1, 20));
    let cut = outgoing.next_cut(20, NO_LIMIT).expect("a PDU waits");
    outgoing.lost(cut);
    let again: Vec<Cut> = std::iter::from_fn(|| outgoing.next_cut(8, NO_LIMIT)).collect();
    assert_eq!(again.iter().map(|cut| cut.payload_len()).collect::<Vec<_>>(), [8, 8, 4]);
    let bytes: Vec<u8> = again.iter().flat_map(|cut| payload(&outgoing, *cut)).collect();
    assert_eq!(bytes, payload(&outgoing, cut));
}

#[test]
fn what_was_acknowledged_after_all_is_not_sent_again() {
    let mut outgoing = Outgoing::default();
    outgoing.push(pdu(1, 16));
    let cuts: Vec<Cut> = std::iter::from_fn(|| outgoing.next_cut(8, NO_LIMIT)).collect();
    outgoing.lost(cuts[0]);
    outgoing.acknowledged(cuts[0]);
    assert_eq!(outgoing.next_cut(8, NO_LIMIT), None);
    outgoing.acknowledged(cuts[1]);
    assert!(outgoing.is_empty());
    assert_eq!(outgoing.queued_bytes(), 0);
}

#[test]
fn a_pdu_is_kept_until_all_of_it_is_acknowledged_in_whatever_order() {
    let mut outgoing = Outgoing::default();
    outgoing.push(pdu(1, 24));
    outgoing.push(pdu(2, 0));
    let cuts: Vec<Cut> = std::iter::from_fn(|| outgoing.next_cut(8, NO_LIMIT)).collect();
    for cut in [cuts[3], cuts[2], cuts[1]] {
        outgoing.acknowledged(cut);
        outgoing.acknowledged(cut);
        assert!(!outgoing.is_empty());
    }
    assert_eq!(outgoing.queued_bytes(), BHS_LEN + 24);
    outgoing.acknowledged(cuts[0]);
    assert!(outgoing.is_empty());
    assert_eq!(outgoing.place(cuts[0]), None);
}

#[test]
fn what_lies_behind_a_gap_counts_as_unacknowledged() {
    let mut outgoing = Outgoing::default();
    for tag in 1..=3 {
        outgoing.push(pdu(tag, 6));
    }
    let of = |pdus: usize| Unacknowledged { bytes: pdus * (BHS_LEN + 8), data_bytes: pdus * 6 };
    let cuts: Vec<Cut> = std::iter::from_fn(|| outgoing.next_cut(8, NO_LIMIT)).collect();
    assert_eq!(outgoing.unacknowledged(), of(3), "pads are no data");
    outgoing.acknowledged(cuts[1]);
    assert_eq!(outgoing.unacknowledged(), of(3), "its buffer may be that of the PDUs beside it");
    outgoing.acknowledged(cuts[0]);
    assert_eq!(outgoing.unacknowledged(), of(1));
    outgoing.acknowledged(cuts[2]);
    assert_eq!(outgoing.unacknowledged(), of(0));
}

#[test]
fn data_in_several_places_is_one_body() {
    let mut outgoing = Outgoing::default();
    let more = vec![vec![5; 5].into(), vec![6; 6].into()];
    outgoing.push(OutgoingPdu { more, ..pdu(1, 3) });
    let cuts: Vec<Cut> = std::iter::from_fn(|| outgoing.next_cut(4, NO_LIMIT)).collect();
    let bytes: Vec<u8> = cuts.iter().flat_map(|cut| payload(&outgoing, *cut)).collect();
    assert_eq!(bytes, [1, 2, 3, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 0, 0]);
}
