//! The responder's side of a negotiation (RFC 7143 section 6.2.2).

use lunette_pdu::text;

use super::table::{KEYS, Row, Rule, Scope, TIME2RETAIN, row};
use super::{Offer, Parameters, markers};

/// The answer to one offered key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Send `key=value`.
    Value(String),
    /// The offer was a declaration; nothing goes back.
    None,
}

/// Why a negotiation cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationError {
    /// RFC 7143 section 6.2: a key is negotiated once.
    #[error("key {0} was offered twice")]
    Twice(&'static str),
    /// Session-wide keys belong to the leading connection.
    #[error("key {0} holds for the session and cannot be negotiated on a later connection")]
    NotLeading(&'static str),
}

/// The responder of a negotiation: its own offer, and what has been agreed so far.
#[derive(Debug, Clone)]
pub struct Negotiation {
    pub(super) offer: Offer,
    pub(super) agreed: Parameters,
    /// Bit `n`: the n-th row of the table has been offered.
    offered: u32,
    leading: bool,
}

impl Negotiation {
    /// Starts from the defaults of RFC 7143. `leading` is false on a connection that joins a session.
    pub fn new(offer: Offer, leading: bool) -> Self {
        let agreed = Parameters { recv_data_segment_len: offer.recv_data_segment_len, ..Parameters::default() };
        Self { offer, agreed, offered: 0, leading }
    }

    /// The agreement so far; keys that neither side offered have their defaults.
    pub fn agreed(&self) -> &Parameters {
        &self.agreed
    }

    /// Answers an offer. A key that is not in the table is `NotUnderstood`; a value that is out of its range is
    /// `Reject`, and the key keeps what it had.
    ///
    /// # Errors
    ///
    /// When the offer breaks the rules in a way that ends the login.
    pub fn answer(&mut self, key: &str, value: &str) -> Result<Answer, NegotiationError> {
        let Some((index, row)) = row(key) else {
            return Ok(Answer::Value("NotUnderstood".into()));
        };
        if self.offered & (1 << index) != 0 {
            return Err(NegotiationError::Twice(row.key));
        }
        self.offered |= 1 << index;
        if row.scope == Scope::Session && !self.leading {
            return Err(NegotiationError::NotLeading(row.key));
        }
        Ok(self.combine(row, value))
    }

    fn combine(&mut self, row: &Row, value: &str) -> Answer {
        let ours = match row.key {
            TIME2RETAIN if self.waits_too_long() => 0,
            _ => (row.ours)(&self.offer),
        };
        let (agreed, text) = match &row.rule {
            Rule::And | Rule::Marker => boolean(value, |theirs| theirs && ours == 1),
            Rule::Or => boolean(value, |theirs| theirs || ours == 1),
            Rule::Minimum(range) => number(value, range, |theirs| theirs.min(ours)),
            Rule::Maximum(range) => number(value, range, |theirs| theirs.max(ours)),
            Rule::Declared(range) => {
                let declared = number(value, range, |theirs| theirs);
                if let Some((theirs, _)) = declared {
                    (row.set)(&mut self.agreed, theirs);
                    return Answer::None;
                }
                declared
            }
            Rule::FirstOf(choices) => first_of(value, choices, ours),
            Rule::MarkerInterval => {
                // A rejected interval turns the markers of its direction off.
                let agreed = markers::interval_within(value, ours);
                Some((agreed.unwrap_or(0), agreed.map_or_else(|| "Reject".into(), |words| words.to_string())))
            }
        }
        .unzip();
        if let Some(agreed) = agreed {
            (row.set)(&mut self.agreed, agreed);
            // Time2Retain may have been answered before Time2Wait was known.
            if self.waits_too_long() {
                self.agreed.time2retain_s = 0;
            }
        }
        Answer::Value(text.unwrap_or_else(|| "Reject".into()))
    }
}

impl Negotiation {
    /// Whether the initiator's Time2Wait is more than tasks are kept over.
    fn waits_too_long(&self) -> bool {
        self.agreed.time2wait_s > self.offer.max_time2wait_s.max(self.offer.time2wait_s)
    }
}

fn boolean(value: &str, combine: impl FnOnce(bool) -> bool) -> Option<(u32, String)> {
    let agreed = combine(text::parse_boolean(value).ok()?);
    Some((u32::from(agreed), text::format_boolean(agreed).into()))
}

pub(super) fn number(
    value: &str,
    range: &std::ops::RangeInclusive<u32>,
    combine: impl FnOnce(u32) -> u32,
) -> Option<(u32, String)> {
    let theirs = u32::try_from(text::parse_number(value).ok()?).ok().filter(|n| range.contains(n))?;
    let agreed = combine(theirs);
    Some((agreed, agreed.to_string()))
}

pub(super) fn first_of(value: &str, choices: &[&str], allowed: u32) -> Option<(u32, String)> {
    let index = value.split(',').find_map(|offer| {
        choices.iter().position(|choice| *choice == offer).filter(|index| allowed & (1 << index) != 0)
    })?;
    Some((index as u32, choices[index].into()))
}

const _: () = assert!(KEYS.len() <= u32::BITS as usize, "the set of offered keys is a word of 32 bits");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Choices, Digest};

    fn negotiation() -> Negotiation {
        Negotiation::new(Offer::default(), true)
    }

    fn answer(key: &str, value: &str) -> String {
        match negotiation().answer(key, value).unwrap() {
            Answer::Value(text) => text,
            Answer::None => "(nothing)".into(),
        }
    }

    #[test]
    fn every_rule_combines_as_the_rfc_says() {
        for (key, offer, expected) in [
            ("InitialR2T", "Yes", "Yes"),
            ("InitialR2T", "No", "No"),
            ("ImmediateData", "Yes", "Yes"),
            ("ImmediateData", "No", "No"),
            ("DataPDUInOrder", "No", "Yes"),
            ("DataSequenceInOrder", "No", "Yes"),
            ("MaxBurstLength", "16776192", "1048576"),
            ("MaxBurstLength", "512", "512"),
            ("FirstBurstLength", "0x10000", "65536"),
            ("MaxOutstandingR2T", "65535", "8"),
            ("MaxConnections", "64", "8"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("DefaultTime2Wait", "7", "7"),
            ("DefaultTime2Retain", "20", "0"),
            ("HeaderDigest", "CRC32C,None", "CRC32C"),
            ("HeaderDigest", "None,CRC32C", "None"),
            ("DataDigest", "X-other,CRC32C", "CRC32C"),
            ("TaskReporting", "FastAbort,RFC3720", "FastAbort"),
            ("TaskReporting", "X-own,ResponseFence,RFC3720", "ResponseFence"),
            ("iSCSIProtocolLevel", "2", "2"),
            ("iSCSIProtocolLevel", "31", "2"),
            ("MaxRecvDataSegmentLength", "65536", "(nothing)"),
            ("IFMarker", "Yes", "No"),
            ("OFMarker", "No", "No"),
            ("IFMarkInt", "2048~8192", "Reject"),
            ("OFMarkInt", "2048", "Reject"),
            ("X-com.example.turbo", "Yes", "NotUnderstood"),
            ("NoSuchKey", "1", "NotUnderstood"),
        ] {
            assert_eq!(answer(key, offer), expected, "{key}={offer}");
        }
    }

    #[test]
    fn tasks_are_not_kept_over_a_longer_time2wait_than_ours() {
        let wait = |value: &'static str| ("DefaultTime2Wait", value);
        let retain = ("DefaultTime2Retain", "30");
        for (offers, answers, kept) in [
            ([wait("60"), retain], ["60", "20"], 20),
            ([wait("61"), retain], ["61", "0"], 0),
            ([wait("3600"), retain], ["3600", "0"], 0),
            ([retain, wait("3600")], ["20", "3600"], 0),
        ] {
            let mut negotiation = Negotiation::new(Offer { time2retain_s: 20, ..Offer::default() }, true);
            for ((key, value), answer) in offers.into_iter().zip(answers) {
                assert_eq!(negotiation.answer(key, value), Ok(Answer::Value(answer.into())), "{offers:?}");
            }
            assert_eq!(negotiation.agreed().time2retain_s, kept, "{offers:?}");
        }
        // The target's own wish is nothing that an initiator makes it keep.
        let own = Offer { time2wait_s: 600, time2retain_s: 20, ..Offer::default() };
        let mut negotiation = Negotiation::new(own, true);
        negotiation.answer("DefaultTime2Wait", "0").unwrap();
        assert_eq!(negotiation.agreed().time2retain_s, 20);
    }

    #[test]
    fn markers_are_agreed_on_for_each_direction_in_any_order_of_the_keys() {
        for (offers, out, in_) in [
            (&[("OFMarker", "Yes"), ("OFMarkInt", "100~200")][..], Some(800), None),
            (&[("IFMarkInt", "4096~8192"), ("IFMarker", "Yes")], None, Some(4 * 4096)),
            (&[("OFMarker", "Yes"), ("IFMarker", "Yes")], Some(4 * 2048), Some(4 * 2048)),
            (&[("OFMarker", "Yes"), ("OFMarkInt", "0")], None, None),
            (&[("IFMarkInt", "9~8"), ("IFMarker", "Yes")], None, None),
            (&[("OFMarker", "No"), ("OFMarkInt", "2048")], None, None),
        ] {
            let mut negotiation = Negotiation::new(Offer { marker_interval: Some(2048), ..Offer::default() }, false);
            for (key, value) in offers {
                negotiation.answer(key, value).unwrap();
            }
            let intervals = negotiation.agreed().marker_intervals();
            assert_eq!((intervals.out, intervals.in_), (out, in_), "{offers:?}");
        }
    }

    #[test]
    fn values_outside_their_range_are_rejected_and_change_nothing() {
        for (key, offer) in [
            ("MaxBurstLength", "511"),
            ("MaxBurstLength", "16777216"),
            ("MaxRecvDataSegmentLength", "0"),
            ("MaxRecvDataSegmentLength", "4294967808"),
            ("FirstBurstLength", "-1"),
            ("InitialR2T", "yes"),
            ("MaxConnections", "0"),
            ("ErrorRecoveryLevel", "3"),
            ("DefaultTime2Wait", "3601"),
            ("HeaderDigest", "CRC32"),
            ("HeaderDigest", ""),
        ] {
            let mut negotiation = negotiation();
            let before = negotiation.agreed().clone();
            assert_eq!(negotiation.answer(key, offer), Ok(Answer::Value("Reject".into())), "{key}={offer}");
            assert_eq!(*negotiation.agreed(), before, "{key}={offer}");
        }
    }

    #[test]
    fn agreed_values_reach_their_place() {
        let mut negotiation = negotiation();
        for (key, value) in [
            ("HeaderDigest", "CRC32C"),
            ("MaxRecvDataSegmentLength", "4096"),
            ("InitialR2T", "No"),
            ("MaxBurstLength", "8192"),
            ("FirstBurstLength", "65536"),
        ] {
            negotiation.answer(key, value).unwrap();
        }
        let agreed = negotiation.agreed();
        assert_eq!(agreed.header_digest, Digest::Crc32c);
        assert_eq!(agreed.data_digest, Digest::None);
        assert_eq!(agreed.send_data_segment_len, 4096);
        assert_eq!(agreed.recv_data_segment_len, Offer::default().recv_data_segment_len);
        assert!(!agreed.initial_r2t);
        assert_eq!(agreed.effective_first_burst_len(), 8192);
    }

    #[test]
    fn a_digest_that_is_not_allowed_is_passed_over() {
        let offer = Offer { data_digest: Choices(0b10), ..Offer::default() };
        let mut negotiation = Negotiation::new(offer, true);
        assert_eq!(negotiation.answer("DataDigest", "None,CRC32C"), Ok(Answer::Value("CRC32C".into())));
    }

    #[test]
    fn a_key_is_negotiated_once() {
        let mut negotiation = negotiation();
        negotiation.answer("InitialR2T", "No").unwrap();
        assert_eq!(negotiation.answer("InitialR2T", "Yes"), Err(NegotiationError::Twice("InitialR2T")));
    }

    #[test]
    fn session_wide_keys_belong_to_the_leading_connection() {
        let mut joining = Negotiation::new(Offer::default(), false);
        assert_eq!(joining.answer("MaxBurstLength", "512"), Err(NegotiationError::NotLeading("MaxBurstLength")));
        assert_eq!(joining.answer("HeaderDigest", "CRC32C"), Ok(Answer::Value("CRC32C".into())));
    }
}
