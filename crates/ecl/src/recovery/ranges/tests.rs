use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn new_numbers(ranges: &mut Ranges, span: Span) -> Vec<u64> {
    let mut new = Vec::new();
    ranges.insert(span, |part| new.extend(part.first..=part.last));
    new
}

proptest! {
    #[test]
    fn they_are_a_set_of_numbers(spans in prop::collection::vec((0..200_u64, 0..12_u64), 0..60)) {
        let mut ranges = Ranges::default();
        let mut model = BTreeSet::new();
        for (first, more) in spans {
            let span = Span { first, last: first + more };
            let expected: Vec<u64> = (span.first..=span.last).filter(|number| model.insert(*number)).collect();
            prop_assert_eq!(ranges.intersects(span), expected.len() as u64 <= more);
            prop_assert_eq!(new_numbers(&mut ranges, span), expected);
            prop_assert!(ranges.intersects(span));
            prop_assert_eq!(ranges.largest(), model.last().copied());
        }
        let known: Vec<Span> = ranges.newest_first().collect();
        for pair in known.windows(2) {
            prop_assert!(pair[1].last + 1 < pair[0].first, "ranges touch: {pair:?}");
        }
        let numbers: BTreeSet<u64> = known.iter().flat_map(|span| span.first..=span.last).collect();
        prop_assert_eq!(numbers, model);
    }

    #[test]
    fn no_number_is_new_twice_however_many_ranges_there_are(numbers in prop::collection::vec(0..2000_u64, 0..1500)) {
        let mut ranges = Ranges::default();
        let mut model = BTreeSet::new();
        for number in numbers {
            let is_new = ranges.insert_one(number);
            prop_assert!(!is_new || !model.contains(&number), "{number} was new twice");
            if is_new {
                model.insert(number);
            }
            prop_assert!(ranges.newest_first().count() <= MAX_RANGES);
        }
    }
}

#[test]
fn what_is_forgotten_counts_as_contained() {
    let mut ranges = Ranges::default();
    for number in 0..=MAX_RANGES as u64 {
        assert!(ranges.insert_one(10 + number * 2));
    }
    // The range of 10 was forgotten, and everything before it with it; the gap behind it was not.
    assert!(!ranges.insert_one(10));
    assert!(!ranges.insert_one(3));
    assert!(ranges.insert_one(11));
    assert!(!ranges.intersects(Span { first: 0, last: 10 }));
}

#[test]
fn the_ends_of_the_numbers_are_no_special_case() {
    let mut ranges = Ranges::default();
    assert!(ranges.insert_one(u64::MAX - 1));
    assert_eq!(
        new_numbers(&mut ranges, Span { first: u64::MAX - 3, last: u64::MAX }),
        [u64::MAX - 3, u64::MAX - 2, u64::MAX]
    );
    assert!(ranges.insert_one(0));
    assert!(!ranges.insert_one(0));
}
