use lunette_buffer::Payload;
use lunette_session::OutgoingPdu;
use proptest::prelude::*;

use super::*;
use crate::header::PacketType;
use crate::outgoing::{Cut, Outgoing};

const NO_LIMIT: u64 = u64::MAX;

/// A header segment of a PDU with that many bytes of data.
fn bhs(len: usize) -> [u8; BHS_LEN] {
    let mut bhs = [0; BHS_LEN];
    bhs[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
    bhs
}

fn packet(stream_offset: u64, pdu_offset: u32) -> Header {
    Header { stream_offset, pdu_offset, bhs: bhs(40), ..Header::new(PacketType::Stream, 1, 1) }
}

#[test]
fn a_packet_is_due_early_or_repeated() {
    let mut incoming = Incoming::<()>::default();
    let first = packet(0, 0);
    assert_eq!(incoming.check(&first, 10, NO_LIMIT), Ok(Verdict::Due(0)));
    assert_eq!(incoming.check(&packet(58, 10), 10, NO_LIMIT), Ok(Verdict::Early));
    assert_eq!(incoming.deliver(&first, 10), Ok(()));
    assert_eq!(incoming.check(&first, 10, NO_LIMIT), Ok(Verdict::Repeated));
    assert_eq!(incoming.check(&packet(58, 10), 10, NO_LIMIT), Ok(Verdict::Due(0)));
    // Cut otherwise than before: its first ten bytes have come.
    assert_eq!(incoming.check(&first, 20, NO_LIMIT), Ok(Verdict::Due(58)));
    assert_eq!(incoming.deliver(&first, 20), Ok(()));
    assert_eq!(incoming.delivered(), 68);
}

#[test]
fn each_rule_of_the_stream_is_checked() {
    let mut incoming = Incoming::<()>::default();
    let broken = incoming.check(&packet(0, 0), 1, BHS_LEN as u64);
    assert_eq!(broken, Err(StreamError::Credit { end: 49, credit: 48 }));
    assert_eq!(incoming.check(&packet(7, 1), 0, NO_LIMIT), Err(StreamError::Empty(7)));
    let broken = incoming.check(&packet(u64::MAX, 0), 1, NO_LIMIT);
    assert_eq!(broken, Err(StreamError::Credit { end: u64::MAX, credit: NO_LIMIT }));
    // A PDU begins where the one before it has not ended; bytes of another PDU; more than the PDU has; bytes that stand
    // elsewhere in it.
    assert_eq!(incoming.deliver(&packet(0, 0), 10), Ok(()));
    let other = Header { bhs: bhs(41), ..packet(58, 10) };
    let broken = [(packet(58, 0), 1), (other, 1), (packet(58, 10), 31), (packet(58, 11), 1), (packet(50, 3), 10)];
    for (header, len) in broken {
        assert_eq!(incoming.deliver(&header, len), Err(StreamError::Pdu(header.stream_offset)), "{header:?}");
    }
    // A packet that begins within a header.
    assert_eq!(incoming.deliver(&packet(58, 10), 30), Ok(()));
    assert_eq!(incoming.check(&packet(70, 0), 1, NO_LIMIT), Err(StreamError::Overlap(88)));
    // The same, of packets that came early.
    let mut incoming = Incoming::default();
    incoming.keep(&packet(60, 5), 35, Kept::Placed(()));
    assert_eq!(incoming.deliver(&packet(0, 0), 40), Ok(()));
    assert_eq!(incoming.next_due(), Err(StreamError::Pdu(60)));
    let mut incoming = Incoming::default();
    incoming.keep(&packet(60, 0), 40, Kept::Placed(()));
    assert_eq!(incoming.deliver(&packet(0, 0), 40), Ok(()));
    assert_eq!(incoming.next_due(), Err(StreamError::Overlap(88)));
}

#[test]
fn early_packets_are_bounded() {
    let mut incoming = Incoming::default();
    incoming.trust();
    for index in 0..MAX_EARLY_PACKETS as u64 {
        let header = packet(100 + index, 1);
        assert_eq!(incoming.check(&header, 1, NO_LIMIT), Ok(Verdict::Early));
        incoming.keep(&header, 1, Kept::Placed(()));
    }
    assert_eq!(incoming.check(&packet(99, 1), 1, NO_LIMIT), Ok(Verdict::NoRoom));
    assert_eq!(incoming.check(&packet(100, 1), 1, NO_LIMIT), Ok(Verdict::Repeated));
    let mut incoming = Incoming::<()>::default();
    incoming.trust();
    let long = |stream_offset, pdu_offset| Header { bhs: bhs(1 << 21), ..packet(stream_offset, pdu_offset) };
    incoming.keep(&long(88, 40), MAX_EARLY_BYTES, Kept::Bytes(&vec![0; MAX_EARLY_BYTES]));
    assert_eq!(incoming.check(&packet(87, 39), 1, NO_LIMIT), Ok(Verdict::NoRoom));
    // What is delivered makes room.
    assert_eq!(incoming.deliver(&long(0, 0), 40), Ok(()));
    assert!(matches!(incoming.next_due(), Ok(Some(Due::Bytes(_)))));
    let far = packet(2 * MAX_EARLY_BYTES as u64, 1);
    assert_eq!(incoming.check(&far, MAX_EARLY_BYTES, NO_LIMIT), Ok(Verdict::Early));
}

#[test]
fn a_peer_that_has_not_logged_in_can_have_little_kept() {
    let mut incoming = Incoming::<()>::default();
    let long = Header { bhs: bhs(1 << 21), ..packet(100, 1) };
    assert_eq!(incoming.check(&long, MAX_EARLY_BYTES_OF_LOGIN + 1, NO_LIMIT), Ok(Verdict::NoRoom));
    for index in 0..MAX_EARLY_PACKETS_OF_LOGIN as u64 {
        incoming.keep(&packet(100 + index, 1), 1, Kept::Bytes(&[0]));
    }
    assert_eq!(incoming.check(&packet(99, 1), 1, NO_LIMIT), Ok(Verdict::NoRoom));
    incoming.trust();
    assert_eq!(incoming.check(&packet(99, 1), 1, NO_LIMIT), Ok(Verdict::Early));
}

/// A reader that takes nothing now: what is due is kept, once, and what overlaps it is bounded like all that is early.
#[test]
fn what_is_due_and_kept_is_bounded() {
    let mut incoming = Incoming::<()>::default();
    incoming.trust();
    assert_eq!(incoming.deliver(&packet(0, 0), 10), Ok(()));
    let due = packet(58, 10);
    assert_eq!(incoming.check(&due, 5, NO_LIMIT), Ok(Verdict::Due(0)));
    incoming.keep(&due, 5, Kept::Bytes(&[0; 5]));
    assert!(incoming.has_due());
    assert_eq!(incoming.check(&due, 5, NO_LIMIT), Ok(Verdict::Repeated));
    assert_eq!(incoming.check(&packet(50, 2), MAX_EARLY_BYTES, NO_LIMIT), Ok(Verdict::NoRoom));
    assert!(matches!(incoming.next_due(), Ok(Some(Due::Bytes(bytes))) if bytes.len() == 5));
    assert!(!incoming.has_due());
}

/// One step of a network between [`Outgoing`] and [`Incoming`].
#[derive(Debug, Clone)]
enum Step {
    Send {
        payload_len: u32,
    },
    /// The packet of this index arrives, and stays under way when it is duplicated.
    Arrive {
        index: prop::sample::Index,
        duplicated: bool,
        placed: bool,
    },
    Lose(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let arrive = (any::<prop::sample::Index>(), any::<bool>(), any::<bool>());
    let step = prop_oneof![
        3 => (1..200_u32).prop_map(|payload_len| Step::Send { payload_len }),
        3 => arrive.prop_map(|(index, duplicated, placed)| Step::Arrive { index, duplicated, placed }),
        1 => any::<prop::sample::Index>().prop_map(Step::Lose),
    ];
    prop::collection::vec(step, 0..300)
}

/// A receiver: what it was given in order, and what was placed ahead of it.
#[derive(Default)]
struct Receiver {
    /// A place is named by where its bytes stand in the stream.
    incoming: Incoming<u64>,
    delivered: Vec<u8>,
    places: BTreeMap<u64, u8>,
}

impl Receiver {
    fn receive(&mut self, header: &Header, payload: &[u8], placed: bool) {
        let begins = header.begins_pdu();
        match self.incoming.check(header, payload.len(), NO_LIMIT).expect("the sender keeps the rules") {
            Verdict::Due(skipped) => {
                self.incoming.deliver(header, payload.len()).expect("the sender keeps the rules");
                let bytes = header.bhs.iter().filter(|_| begins).chain(payload);
                self.delivered.extend(bytes.skip(skipped));
            }
            Verdict::Early if placed => {
                let place = header.stream_offset + header_len(begins);
                self.places.extend((place..).zip(payload.iter().copied()));
                self.incoming.keep(header, payload.len(), Kept::Placed(place));
            }
            Verdict::Early => self.incoming.keep(header, payload.len(), Kept::Bytes(payload)),
            Verdict::Repeated => {}
            Verdict::NoRoom => panic!("there are not as many"),
        }
        while let Some(due) = self.incoming.next_due().expect("the sender keeps the rules") {
            match due {
                Due::Bytes(bytes) => self.delivered.extend(bytes),
                Due::Placed { bhs, place, skipped, len } => {
                    self.delivered.extend(bhs.into_iter().flatten());
                    let start = place + skipped as u64;
                    assert_eq!(start, self.delivered.len() as u64, "the place is where the bytes are due");
                    self.delivered.extend((start..start + len as u64).map(|at| self.places[&at]));
                }
            }
        }
    }
}

fn send(outgoing: &Outgoing, cut: Cut) -> (Header, Vec<u8>) {
    let place = outgoing.place(cut).expect("it is not acknowledged");
    let payload = outgoing.slices(cut).flatten().copied().collect();
    (Header { bhs: *place.bhs, ..packet(place.stream_offset, place.pdu_offset) }, payload)
}

proptest! {
    /// Whatever the network does to packets, the stream arrives as it was sent, as far as there is no gap.
    #[test]
    fn the_stream_arrives_as_it_was_sent(lens in prop::collection::vec(0..700_usize, 1..12), steps in steps()) {
        let mut outgoing = Outgoing::default();
        let mut stream = Vec::new();
        for (tag, len) in lens.into_iter().enumerate() {
            let data: Vec<u8> = (0..len).map(|index| (tag * 31 + index) as u8).collect();
            let bhs = bhs(len);
            stream.extend(bhs);
            stream.extend(&data);
            stream.extend(vec![0; lunette_pdu::pad_len(len)]);
            outgoing.push(OutgoingPdu { bhs, ahs: Box::default(), data: Payload::from(data), more: Vec::new(), block_len: 0 });
        }
        let mut receiver = Receiver::default();
        receiver.incoming.trust();
        let mut under_way: Vec<(Cut, Header, Vec<u8>)> = Vec::new();
        for step in steps {
            match step {
                Step::Send { payload_len } => {
                    let cut = outgoing.next_cut(payload_len, NO_LIMIT);
                    under_way.extend(cut.map(|cut| {
                        let (header, payload) = send(&outgoing, cut);
                        (cut, header, payload)
                    }));
                }
                Step::Arrive { index, duplicated, placed } if !under_way.is_empty() => {
                    let index = index.index(under_way.len());
                    let (cut, header, payload) = under_way[index].clone();
                    receiver.receive(&header, &payload, placed);
                    outgoing.acknowledged(cut);
                    if !duplicated {
                        under_way.remove(index);
                    }
                }
                Step::Lose(index) if !under_way.is_empty() => {
                    let (cut, ..) = under_way.remove(index.index(under_way.len()));
                    outgoing.lost(cut);
                }
                _ => {}
            }
            prop_assert_eq!(&receiver.delivered[..], &stream[..receiver.delivered.len()]);
        }
        // Then nothing is lost any more.
        for (cut, header, payload) in under_way {
            receiver.receive(&header, &payload, true);
            outgoing.acknowledged(cut);
        }
        while let Some(cut) = outgoing.next_cut(90, NO_LIMIT) {
            let (header, payload) = send(&outgoing, cut);
            receiver.receive(&header, &payload, false);
            outgoing.acknowledged(cut);
        }
        prop_assert!(outgoing.is_empty());
        prop_assert_eq!(outgoing.queued_bytes(), 0);
        prop_assert_eq!(receiver.delivered, stream);
        prop_assert_eq!(receiver.incoming.kept_bytes, 0);
    }
}
