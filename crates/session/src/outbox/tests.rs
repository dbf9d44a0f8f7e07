use std::sync::Arc;

use lunette_buffer::{Payload, PayloadRef, Pool, Run};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::markers::MarkedOutbox;

fn drain(outbox: &mut Outbox, step: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    while !outbox.is_empty() {
        let ready: Vec<u8> = outbox.slices().flatten().copied().collect();
        let taken = step.min(ready.len());
        wire.extend(&ready[..taken]);
        outbox.sent(taken);
    }
    wire
}

fn filled() -> MarkedOutbox {
    let mut outbox = MarkedOutbox::default();
    outbox.push([1; BHS_LEN], Payload::Empty);
    outbox.configure(true, true);
    outbox.push([2; BHS_LEN], Payload::from(b"hello".to_vec()));
    outbox.push([3; BHS_LEN], Payload::Empty);
    outbox
}

#[test]
fn the_wire_holds_headers_digests_segments_and_pads_in_order() {
    let mut expected = vec![1; BHS_LEN];
    expected.extend([2; BHS_LEN]);
    expected.extend(to_wire(crc32c(&[2; BHS_LEN])));
    expected.extend(b"hello\0\0\0");
    expected.extend(to_wire(crc32c(b"hello\0\0\0")));
    expected.extend([3; BHS_LEN]);
    expected.extend(to_wire(crc32c(&[3; BHS_LEN])));
    for step in [1, 5, 47, 48, 49, 1000] {
        assert_eq!(drain(&mut filled(), step), expected, "step {step}");
    }
}

#[test]
fn additional_header_segments_stand_between_header_and_its_digest() {
    let mut outbox = Outbox::default();
    outbox.configure(true, true);
    outbox.push_with_ahs([2; BHS_LEN], &[9; 8], Payload::from(b"hello".to_vec()));
    outbox.push_with_ahs([2; BHS_LEN], &[9; 8], Payload::Empty);
    let header = [&[2; BHS_LEN][..], &[9; 8]].concat();
    let header = [&header[..], &to_wire(crc32c(&header))].concat();
    let expected = [&header[..], b"hello\0\0\0", &to_wire(crc32c(b"hello\0\0\0")), &header].concat();
    assert_eq!(drain(&mut outbox, 7), expected);
    assert_eq!((outbox.pdus(), outbox.owned_bytes(), outbox.segment_bytes()), (0, 0, 0));
}

#[test]
fn markers_stand_in_headers_segments_and_tails_and_are_not_digested() {
    let mut outbox = filled();
    let login = drain(&mut outbox, 1000);
    assert_eq!(login.len(), 48 + 52 + 12 + 52);
    // As a connection counts: everything up to here was the login.
    outbox.start_markers(Some(32));
    let data: Vec<u8> = (0..61).collect();
    outbox.push([4; BHS_LEN], Payload::from(data.clone()));
    outbox.push([5; BHS_LEN], Payload::Empty);
    assert_eq!((outbox.pdus(), outbox.owned_bytes(), outbox.segment_bytes()), (2, 61, 61));
    let wire = drain(&mut outbox, 7);
    assert_eq!((outbox.pdus(), outbox.owned_bytes(), outbox.segment_bytes()), (0, 0, 0));

    let padded = [&data[..], &[0; 3]].concat();
    let digest = |bytes: &[u8]| to_wire(crc32c(bytes));
    let first = [&[4; BHS_LEN][..], &digest(&[4; BHS_LEN]), &padded, &digest(&padded)].concat();
    let second = [&[5; BHS_LEN][..], &digest(&[5; BHS_LEN])].concat();
    let mut stream = login.clone();
    for (pdu, pdus) in [(&first, 1), (&second, 2)] {
        for (at, word) in pdu.chunks(4).enumerate() {
            if stream.len() % 40 == 32 {
                let left = if at == 0 { 0 } else { (pdu.len() - 4 * at) as u32 };
                stream.extend([left.to_be_bytes(), left.to_be_bytes()].concat());
            }
            stream.extend(word);
        }
        assert!(stream.len() > login.len() + pdus * 60, "each has a marker");
    }
    assert_eq!(wire, stream[login.len()..]);
}

/// A loan of `bytes` in runs of these lengths; the last takes the rest.
fn lent(bytes: &[u8], lens: &[usize]) -> Payload {
    let mut rest = bytes;
    let mut runs = Vec::new();
    for len in lens.iter().copied().chain([usize::MAX]) {
        let (run, later) = rest.split_at(len.min(rest.len()));
        rest = later;
        runs.extend((!run.is_empty()).then(|| Run { memory: Arc::new(run.to_vec()), range: 0..run.len() }));
    }
    let mut buffer = Pool::new(1 << 20).reserve(bytes.len()).unwrap();
    buffer.allow_loan();
    Payload::Lent(buffer.lend(runs.into_iter()).unwrap())
}

proptest! {
    #[test]
    fn lent_data_gives_the_same_stream_wherever_its_runs_end(
        segments in vec((vec(any::<u8>(), 1..300), vec(1..100_usize, 0..6), any::<bool>()), 1..6),
        digests in any::<(bool, bool)>(),
        markers in proptest::option::of(16..64_u32),
        step in 1..400_usize,
    ) {
        let mut outboxes = [false, true].map(|lends| {
            let mut outbox = MarkedOutbox::default();
            outbox.configure(digests.0, digests.1);
            outbox.start_markers(markers.map(|words| 4 * words));
            for (bytes, lens, ahs) in &segments {
                let segment = if lends { lent(bytes, lens) } else { Payload::from(bytes.clone()) };
                if *ahs {
                    outbox.push_with_ahs([7; BHS_LEN], &[9; 8], segment);
                } else {
                    outbox.push([7; BHS_LEN], segment);
                }
            }
            outbox
        });
        let told = |outbox: &Outbox| (outbox.pdus(), outbox.segment_bytes());
        prop_assert_eq!(told(&outboxes[0]), told(&outboxes[1]));
        let [owned, lent] = outboxes.each_mut().map(|outbox| drain(outbox, step));
        prop_assert!(owned == lent);
        prop_assert_eq!(told(&outboxes[1]), (0, 0));
    }
}

#[test]
fn pieces_lie_in_the_buffer_behind_what_was_sent() {
    let buffer = Pool::new(1 << 20).take(100).unwrap().share();
    let mut outbox = Outbox::default();
    outbox.push([1; BHS_LEN], Payload::Shared(buffer.slice(0..50)), None, 0);
    outbox.sent(BHS_LEN + 7);
    let mut pieces = outbox.pieces();
    assert!(
        matches!(pieces.next(), Some(PayloadRef::Bytes(data)) if data.as_ptr_range() == buffer[7..50].as_ptr_range())
    );
    assert!(matches!(pieces.next(), Some(PayloadRef::Bytes(pad)) if pad == [0; 2]));
    assert!(pieces.next().is_none());
}

#[test]
fn owned_bytes_are_counted_until_they_are_sent() {
    let mut outbox = filled();
    assert_eq!((outbox.pdus(), outbox.owned_bytes()), (3, 5));
    drain(&mut outbox, 64);
    assert_eq!((outbox.pdus(), outbox.owned_bytes()), (0, 0));
}

#[test]
fn a_crc_that_the_caller_knows_is_sent_as_it_is() {
    let mut outbox = Outbox::default();
    let digests = |outbox: &mut Outbox| {
        let mut push = |segment: &[u8], crc| {
            outbox.push([1; BHS_LEN], Payload::from(segment.to_vec()), crc, 0);
            drain(outbox, 1000)[BHS_LEN + segment.len()..].to_vec()
        };
        [push(b"data", Some(0x0102_0304)), push(b"data", None), push(b"hello", Some(0x0102_0304))]
    };
    assert_eq!(digests(&mut outbox), [vec![], vec![], vec![0; 3]], "without digests");
    outbox.configure(false, true);
    let padded = [&[0; 3], &to_wire(crc32c(b"hello\0\0\0"))[..]].concat();
    assert_eq!(digests(&mut outbox), [vec![4, 3, 2, 1], to_wire(crc32c(b"data")).to_vec(), padded]);
}

/// The bytes of a PDU, as a transport without digests sends them.
fn wire_of(pdu: &OutgoingPdu) -> Vec<u8> {
    let mut wire = [&pdu.bhs[..], &pdu.ahs].concat();
    for payload in std::iter::once(&pdu.data).chain(&pdu.more) {
        wire.extend(payload.to_vec());
    }
    wire.extend(vec![0; pad_len(pdu.data_len())]);
    wire
}

#[test]
fn a_pdu_is_taken_with_all_of_its_parts() {
    let loan = lent(&(0..90).collect::<Vec<u8>>(), &[40, 30, 20]);
    let fill = |outbox: &mut Outbox| {
        outbox.push([1; BHS_LEN], Payload::Empty, None, 0);
        outbox.push([5; BHS_LEN], Payload::Empty, None, 0);
        outbox.push_with_ahs([6; BHS_LEN], &[9; 8], Payload::Empty);
        outbox.push_with_ahs([2; BHS_LEN], &[9; 8], Payload::from(b"hello".to_vec()));
        outbox.push([3; BHS_LEN], loan.clone(), None, 0);
        outbox.push([4; BHS_LEN], Payload::from(b"end".to_vec()), None, 0);
    };
    let (mut sent, mut taken) = (Outbox::default(), Outbox::default());
    for outbox in [&mut sent, &mut taken] {
        outbox.join_headers();
        fill(outbox);
    }
    assert_eq!(taken.pdus(), 6);
    let pdus: Vec<OutgoingPdu> = std::iter::from_fn(|| taken.take_pdu()).collect();
    assert_eq!(pdus.iter().map(|pdu| pdu.bhs[0]).collect::<Vec<_>>(), [1, 5, 6, 2, 3, 4]);
    assert!(pdus.iter().all(|pdu| wire_of(pdu).len() == BHS_LEN + pdu.body_len()));
    assert_eq!(pdus.iter().flat_map(wire_of).collect::<Vec<u8>>(), drain(&mut sent, 1000));
    assert_eq!((taken.pdus(), taken.owned_bytes(), taken.segment_bytes()), (0, 0, 0));
}

#[test]
fn headers_leave_as_one_slice_and_count_one_by_one() {
    let mut outbox = Outbox::default();
    outbox.join_headers();
    outbox.configure(true, true);
    let one = BHS_LEN + DIGEST_LEN;
    for number in 0..10 {
        outbox.push([number; BHS_LEN], Payload::Empty, None, 0);
    }
    assert_eq!((outbox.slices().count(), outbox.parts(), outbox.pdus()), (1, 1, 10));
    outbox.sent(3 * one + 1);
    assert_eq!((outbox.pdus(), outbox.has_left(3), outbox.has_left(4)), (7, true, false));
    // Never empty, and no larger for it.
    for number in 0..10_000_u32 {
        outbox.push([number as u8; BHS_LEN], Payload::Empty, None, 0);
        outbox.sent(one);
        assert!((outbox.pdus(), outbox.parts()) == (7, 1) && outbox.inline.bytes().len() == 7 * one);
    }
    assert!(outbox.inline.capacity() < 100 * one);
}

/// The operations on an outbox that has a sheet.
#[derive(Debug, Clone)]
enum Action {
    Push(Vec<u8>),
    Place(Vec<u8>),
    /// The place is asked for, and nothing is put there.
    Leave(usize),
    Send(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let data = || vec(any::<u8>(), 0..60);
    prop_oneof![
        1 => data().prop_map(Action::Push),
        1 => Just(Action::Push(Vec::new())),
        3 => data().prop_map(Action::Place),
        1 => (0..60_usize).prop_map(Action::Leave),
        2 => (0..300_usize).prop_map(Action::Send),
    ]
}

proptest! {
    /// Sheets of a page fill up, are left by other PDUs, and are sent while they grow. Headers join, or do not.
    #[test]
    fn pdus_on_sheets_leave_as_all_others(
        actions in vec(action(), 1..300),
        digests in any::<[bool; 2]>(),
        joins in any::<bool>(),
    ) {
        let (pool, mut outbox, mut sent) = (Pool::new(1 << 20), Outbox::default(), Vec::new());
        let mut expected = Outbox::default();
        if joins {
            outbox.join_headers();
        }
        outbox.configure(digests[0], digests[1]);
        expected.configure(digests[0], digests[1]);
        for (number, action) in actions.into_iter().enumerate() {
            let bhs = [number as u8; BHS_LEN];
            match action {
                Action::Push(data) => {
                    outbox.push(bhs, Payload::from(data.clone()), None, 0);
                    expected.push(bhs, Payload::from(data), None, 0);
                }
                Action::Place(data) => {
                    let place = outbox.place(data.len(), |_| pool.take(4096)).expect("there is room");
                    place.copy_from_slice(&data);
                    outbox.push_placed(&bhs, data.len());
                    expected.push(bhs, Payload::from(data), None, 0);
                }
                Action::Leave(len) => {
                    outbox.place(len, |_| pool.take(4096)).expect("there is room").fill(0xee);
                    outbox.leave_place();
                }
                Action::Send(len) => {
                    let ready = outbox.slices().collect::<Vec<_>>().concat();
                    sent.extend(&ready[..len.min(ready.len())]);
                    outbox.sent(len.min(ready.len()));
                }
            }
            prop_assert_eq!(outbox.is_empty(), outbox.slices().next().is_none());
        }
        prop_assert_eq!(outbox.pushed_pdus(), expected.pushed_pdus());
        sent.extend(drain(&mut outbox, 100));
        prop_assert_eq!(sent, drain(&mut expected, 1000));
        prop_assert_eq!((outbox.pdus(), outbox.segment_bytes(), outbox.owned_bytes(), pool.used_bytes()), (0, 0, 0, 0));
    }
}
