//! Scatter and gather: the digest over segments is that of the bytes laid end to end.

use lunette_crc32c::{Crc32c, Segment, SegmentMut, combine, crc32c, zeroes};
use proptest::prelude::*;

/// Lengths and C bits of a list of segments.
type Cuts = Vec<(usize, bool)>;

/// Any list of segments with `total` bytes.
fn cuts(total: usize) -> impl Strategy<Value = Cuts> {
    proptest::collection::vec((0..=total, any::<bool>()), 0..8).prop_map(move |points| {
        let mut ends: Vec<_> = points.into_iter().chain([(total, true)]).collect();
        ends.sort_unstable();
        let mut start = 0;
        ends.into_iter()
            .map(|(end, digested)| {
                let len = end - start;
                start = end;
                (len, digested)
            })
            .collect()
    })
}

fn message_and_cuts() -> impl Strategy<Value = (Vec<u8>, Cuts, Cuts)> {
    proptest::collection::vec(any::<u8>(), 0..5000).prop_flat_map(|message| {
        let total = message.len();
        (Just(message), cuts(total), cuts(total))
    })
}

/// The C bit of each byte.
fn bits(cuts: &[(usize, bool)]) -> impl Iterator<Item = bool> + '_ {
    cuts.iter().flat_map(|(len, digested)| std::iter::repeat_n(*digested, *len))
}

proptest! {
    #[test]
    fn any_cuts_on_both_sides((message, source_cuts, place_cuts) in message_and_cuts()) {
        let mut rest = &message[..];
        let segments: Vec<_> = source_cuts.iter().map(|(len, digested)| {
            let (bytes, after) = rest.split_at(*len);
            rest = after;
            Segment { bytes, digested: *digested }
        }).collect();

        let mut copied = vec![0; message.len()];
        let mut room = &mut copied[..];
        let mut places = Vec::new();
        for (len, digested) in &place_cuts {
            let (bytes, after) = room.split_at_mut(*len);
            room = after;
            places.push(SegmentMut { bytes, digested: *digested });
        }

        let mut digest = Crc32c::new();
        digest.copy_segments(&mut places, &segments);

        let in_both: Vec<u8> = message.iter().zip(bits(&source_cuts).zip(bits(&place_cuts)))
            .filter(|(_, (source, place))| *source && *place)
            .map(|(byte, _)| *byte)
            .collect();
        prop_assert_eq!(digest.finish(), crc32c(&in_both));
        prop_assert!(copied == message);

        let in_source: Vec<u8> = segments.iter().filter(|segment| segment.digested)
            .flat_map(|segment| segment.bytes).copied().collect();
        let mut digest = Crc32c::new();
        digest.update_segments(&segments);
        prop_assert_eq!(digest.finish(), crc32c(&in_source));
    }

    #[test]
    fn combining_is_concatenating(message in proptest::collection::vec(any::<u8>(), 0..5000), cut in any::<prop::sample::Index>()) {
        let (head, tail) = message.split_at(cut.index(message.len() + 1));
        prop_assert_eq!(combine(crc32c(head), crc32c(tail), tail.len() as u64), crc32c(&message));
    }

    #[test]
    fn zeroes_need_no_bytes(head in proptest::collection::vec(any::<u8>(), 0..100), len in 0usize..100_000) {
        let run = vec![0; len];
        prop_assert_eq!(zeroes(len as u64), crc32c(&run));
        let mut digest = Crc32c::new();
        digest.update(&head);
        let mut skipped = digest;
        digest.update(&run);
        skipped.update_zeroes(len as u64);
        prop_assert_eq!(skipped, digest);
    }

    #[test]
    fn zeroes_of_any_length_add_up(first: u64, second: u64) {
        let (first, second) = (first / 2, second / 2);
        prop_assert_eq!(combine(zeroes(first), zeroes(second), second), zeroes(first + second));
    }
}

#[test]
#[should_panic(expected = "lists of different lengths")]
fn lists_of_different_lengths_are_misuse() {
    let mut place = [0; 3];
    Crc32c::new().copy_segments(&mut [SegmentMut::digested(&mut place)], &[Segment::digested(b"1234")]);
}
