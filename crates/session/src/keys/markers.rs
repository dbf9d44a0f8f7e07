//! The keys of RFC 3720 appendix A: fixed interval markers.

use lunette_pdu::text;

use super::{MARKER_INTERVAL, Parameters};
use crate::limits::MIN_MARKER_INTERVAL_WORDS;

/// Which markers a connection has: bytes of PDUs from the end of a marker to the beginning of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MarkerIntervals {
    /// From the initiator to the target.
    pub(crate) out: Option<u32>,
    /// From the target to the initiator.
    pub(crate) in_: Option<u32>,
}

impl Parameters {
    pub(crate) fn marker_intervals(&self) -> MarkerIntervals {
        let bytes = |on: bool, words: u32| (on && words > 0).then_some(words * 4);
        MarkerIntervals { out: bytes(self.of_marker, self.of_mark_int), in_: bytes(self.if_marker, self.if_mark_int) }
    }
}

/// The interval that answers an offer of one number or of a range, in 4-byte words: as near to `best` as the offer and
/// our limit let it be. `None` without a `best`, when the offer is none, or when it lies below our limit.
pub(super) fn interval_within(offer: &str, best: u32) -> Option<u32> {
    let number = |value: &str| {
        let number = text::parse_number(value).ok().and_then(|number| u32::try_from(number).ok());
        number.filter(|number| MARKER_INTERVAL.contains(number))
    };
    let (low, high) = offer.split_once('~').unwrap_or((offer, offer));
    let (low, high) = (number(low)?, number(high)?);
    let low_for_us = low.max(MIN_MARKER_INTERVAL_WORDS);
    (best > 0 && low <= high && low_for_us <= high).then(|| best.clamp(low_for_us, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_answered_with_the_number_that_is_nearest_to_the_best() {
        for (offer, best, expected) in [
            ("2048", 2048, Some(2048)),
            ("2048", 100, Some(2048)),
            ("1~65535", 2048, Some(2048)),
            ("512~1024", 2048, Some(1024)),
            ("0x1000~8192", 2048, Some(4096)),
            ("1~80", 2, Some(64)),
            ("64", 2048, Some(64)),
            ("1~64", 2048, Some(64)),
        ] {
            assert_eq!(interval_within(offer, best), expected, "{offer}, {best}");
        }
    }

    #[test]
    fn what_is_no_range_or_lies_below_our_limit_is_rejected() {
        for offer in
            ["", "~", "0", "0~100", "100~", "~100", "8~4", "200~100", "1~65536", "65536", "-1", "1~2~3", "63", "1~63"]
        {
            assert_eq!(interval_within(offer, 2048), None, "{offer:?}");
        }
        assert_eq!(interval_within("2048", 0), None, "markers are off");
    }
}
