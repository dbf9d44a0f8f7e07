//! The statements of the peer's headers about packets of this side.

use super::ranges::Span;
use crate::header::Acknowledged;

/// The newest acknowledgement that was heard.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heard {
    newest: Option<Acknowledged>,
    congestion_count: u32,
}

impl Heard {
    /// Whether the same was heard before: the packets of a batch say the same.
    pub fn is_known(&self, said: &Acknowledged, congestion_count: u32) -> bool {
        let same = |newest: Acknowledged| newest.largest == said.largest && newest.bits == said.bits;
        self.congestion_count == congestion_count && self.newest.is_some_and(same)
    }

    /// Takes an acknowledgement. The answer is whether more packets were marked "congestion experienced" than before.
    /// Only headers that do not come late count for that (RFC 9000 section 13.4.2.1).
    pub fn hear(&mut self, said: &Acknowledged, congestion_count: u32) -> bool {
        if self.newest.is_some_and(|newest| said.largest < newest.largest) {
            return false;
        }
        self.newest = Some(*said);
        let is_marked = is_after(congestion_count, self.congestion_count);
        if is_marked {
            self.congestion_count = congestion_count;
        }
        is_marked
    }
}

/// The numbers that a header acknowledges, the newest first.
pub fn spans(said: &Acknowledged) -> impl Iterator<Item = Span> + use<> {
    let Acknowledged { largest, bits, .. } = *said;
    // Bit 0 is the largest number.
    let mut rest = u128::from(bits) << 1 | 1;
    let mut next = Some(largest);
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let gap = rest.trailing_zeros();
        rest >>= gap;
        let run = rest.trailing_ones();
        rest >>= run;
        let last = next?.checked_sub(u64::from(gap))?;
        let first = last.checked_sub(u64::from(run - 1))?;
        next = first.checked_sub(1);
        Some(Span { first, last })
    })
}

/// Whether one count of a header is after another, modulo 2³².
const fn is_after(count: u32, before: u32) -> bool {
    let distance = count.wrapping_sub(before);
    distance != 0 && distance < 1 << 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_header_is_read_as_the_numbers_that_it_says(largest in 0..200_u64, bits in any::<u64>(), sparse in any::<u64>()) {
            for bits in [bits, bits & sparse, bits | sparse] {
                // The header's parser refuses bits before packet 0.
                let bits = if largest < 64 { bits & ((1 << largest) - 1) } else { bits };
                let expected: Vec<u64> = std::iter::once(largest)
                    .chain((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| largest - 1 - bit))
                    .collect();
                let read: Vec<Span> = spans(&Acknowledged { largest, bits, delay_us: 0 }).collect();
                prop_assert_eq!(read.iter().flat_map(|span| (span.first..=span.last).rev()).collect::<Vec<_>>(), expected);
                prop_assert!(read.windows(2).all(|pair| pair[1].last + 1 < pair[0].first));
            }
        }

        #[test]
        fn no_header_makes_it_panic(largest in prop_oneof![0..3_u64, any::<u64>()], bits in any::<u64>()) {
            let said = Acknowledged { largest, bits, delay_us: 0 };
            prop_assert!(spans(&said).all(|span| span.first <= span.last && span.last <= largest));
        }
    }

    #[test]
    fn counts_of_marks_wrap() {
        assert!(is_after(1, 0) && is_after(0, u32::MAX) && is_after(5, u32::MAX - 5));
        assert!(!is_after(0, 0) && !is_after(0, 1) && !is_after(u32::MAX, 0));
    }

    #[test]
    fn a_late_header_brings_no_mark() {
        let said = |largest| Acknowledged { largest, bits: 0, delay_us: 0 };
        let mut heard = Heard::default();
        assert!(heard.hear(&said(7), 2));
        assert!(!heard.hear(&said(8), 2));
        assert!(!heard.hear(&said(6), 3));
        assert!(heard.is_known(&Acknowledged { delay_us: 9, ..said(8) }, 2));
        assert!(!heard.is_known(&said(8), 3) && !heard.is_known(&said(9), 2));
    }
}
