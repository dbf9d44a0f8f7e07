use proptest::prelude::*;

use super::*;
use crate::recovery::ranges::Ranges;

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(numbers in prop::collection::vec(0..5000_u64, 1..300)) {
        let mut ranges = Ranges::default();
        for number in numbers {
            ranges.insert_one(number);
        }
        let mut payload = [0; MAX_ACK_PAYLOAD_LEN];
        let len = emit(ranges.newest_first(), &mut payload);
        let parsed = AckRanges::parse(&payload[..len], ranges.largest().expect("there are numbers"));
        let expected: Vec<Span> = ranges.newest_first().take(MAX_ACK_RANGES).collect();
        prop_assert_eq!(parsed.expect("what was emitted").iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_bytes_make_it_panic(payload in prop::collection::vec(any::<u8>(), 0..100), largest in any::<u64>()) {
        if let Ok(ranges) = AckRanges::parse(&payload, largest) {
            prop_assert!(ranges.iter().all(|span| span.first <= span.last && span.last <= largest));
        }
    }
}

#[test]
fn each_rule_of_the_payload_is_checked() {
    let parse = |spans: &[(u64, u64)], largest| {
        let mut payload = [0; MAX_ACK_PAYLOAD_LEN];
        let len = emit(spans.iter().map(|(first, last)| Span { first: *first, last: *last }), &mut payload);
        AckRanges::parse(&payload[..len], largest).map(|ranges| ranges.iter().count())
    };
    let order = |index, first, last, bound| Err(AckPayloadError::Order { index, first, last, bound });
    assert_eq!(parse(&[(5, 9), (0, 3)], 9), Ok(2));
    assert_eq!(parse(&[], 9), Ok(0));
    assert_eq!(parse(&[(0, u64::MAX)], u64::MAX), order(0, 0, u64::MAX, u64::MAX));
    assert_eq!(parse(&[(5, 10)], 9), order(0, 5, 10, 10), "beyond the header's largest number");
    assert_eq!(parse(&[(6, 5)], 9), order(0, 6, 5, 10), "ends before it begins");
    assert_eq!(parse(&[(5, 9), (0, 4)], 9), order(1, 0, 4, 4), "touches the one before");
    assert_eq!(parse(&[(1, 2), (4, 5)], 9), order(1, 4, 5, 0), "ascends");
    assert_eq!(parse(&[(0, 2), (0, 0)], 9), order(1, 0, 0, 0), "goes below the first packet");
    assert_eq!(AckRanges::parse(&[0; 15], 9).err(), Some(AckPayloadError::Length(15)));
    let long = [0; MAX_ACK_PAYLOAD_LEN + 16];
    assert_eq!(AckRanges::parse(&long, 9).err(), Some(AckPayloadError::Length(long.len())));
}
