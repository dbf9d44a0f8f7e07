//! The originator's side of a negotiation: offers, and whether the answers keep to the rules (RFC 7143 section 6.2).

use lunette_pdu::text::{self, TextError, TextWriter};

use super::negotiate::{Answer, Negotiation, NegotiationError, first_of, number};
use super::table::{KEYS, Row, Rule, Scope, row};
use super::{MARKER_INTERVAL, Offer, Parameters, SAM5_PROTOCOL_LEVEL};
use crate::limits::{CONNECTION_RECOVERY_LEVEL, MAX_SESSION_CONNECTIONS, MIN_MARKER_INTERVAL_WORDS};

/// Keys that are younger than RFC 3720. Targets that do not know them are many, so they are offered only when they say
/// more than their default.
const YOUNG: [&str; 2] = ["TaskReporting", "iSCSIProtocolLevel"];

/// Why an answer cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The answer is none that the rule of its key allows.
    #[error("{key}={answer} is no answer to {key}={offer}")]
    OutsideTheRule {
        /// The key.
        key: &'static str,
        /// The value that we offered.
        offer: String,
        /// The value that came back.
        answer: String,
    },
    /// The peer takes none of our values, and we cannot do without.
    #[error("the peer takes none of our values of {0}")]
    Incompatible(&'static str),
    /// The peer broke a rule with an offer of its own.
    #[error(transparent)]
    Peer(#[from] NegotiationError),
    /// A key was answered twice.
    #[error("key {0} was answered twice")]
    Twice(&'static str),
}

/// The originator of a negotiation: it offers keys, and takes the responder's answers.
#[derive(Debug, Clone)]
pub struct Originator {
    /// Holds the offer, and answers keys that the peer offers.
    negotiation: Negotiation,
    /// Bit `n`: we offer the n-th row.
    ours: u32,
    /// Bit `n`: the n-th row has been answered.
    answered: u32,
}

/// The offer as far as this version can keep it, whatever its user would agree to.
fn within_reach(offer: &Offer) -> Offer {
    // RFC 7143 section 13.19: of sequences in order, only the last one may be asked for again.
    let one_by_one = offer.error_recovery_level > 0 && offer.data_sequence_in_order;
    Offer {
        max_outstanding_r2t: if one_by_one { 1 } else { offer.max_outstanding_r2t },
        max_connections: offer.max_connections.min(MAX_SESSION_CONNECTIONS),
        error_recovery_level: offer.error_recovery_level.min(CONNECTION_RECOVERY_LEVEL),
        protocol_level: offer.protocol_level.min(SAM5_PROTOCOL_LEVEL),
        ..offer.clone()
    }
}

impl Originator {
    /// Offers the keys of a normal session's leading connection.
    pub fn leading(offer: &Offer) -> Self {
        Self::new(offer, true)
    }

    /// Offers the keys of a connection that joins a session, or of a discovery session, whose session-wide keys are
    /// irrelevant: only what holds for the connection.
    pub fn joining(offer: &Offer) -> Self {
        Self::new(offer, false)
    }

    fn new(offer: &Offer, leading: bool) -> Self {
        let negotiation = Negotiation::new(within_reach(offer), true);
        let defaults = Parameters::default();
        let offered = |row: &Row| match row.rule {
            Rule::Marker | Rule::MarkerInterval if (row.ours)(&negotiation.offer) == 0 => false,
            _ if !leading && row.scope == Scope::Session => false,
            Rule::FirstOf(_) if YOUNG.contains(&row.key) => (row.ours)(&negotiation.offer) != 0b001,
            _ if YOUNG.contains(&row.key) => (row.ours)(&negotiation.offer) != defaults.protocol_level,
            _ => true,
        };
        let rows = KEYS.iter().enumerate().filter(|(_, row)| offered(row));
        let ours = rows.fold(0, |set, (index, _)| set | 1 << index);
        Self { negotiation, ours, answered: 0 }
    }

    /// Writes all offers.
    ///
    /// # Errors
    ///
    /// None with the values that keys have.
    pub fn write(&self, list: &mut TextWriter) -> Result<(), TextError> {
        for (index, row) in KEYS.iter().enumerate() {
            if self.ours & (1 << index) != 0 {
                list.push(row.key, &self.offer(row))?;
            }
        }
        Ok(())
    }

    /// Takes `key=value` from the peer. Gives what must be sent for it, when it was an offer and not an answer.
    ///
    /// # Errors
    ///
    /// When the answer is outside what the rule of the key allows.
    pub fn take(&mut self, key: &str, value: &str) -> Result<Option<String>, OfferError> {
        if let Some((index, row)) = row(key).filter(|(index, _)| self.ours & (1 << index) != 0) {
            if self.answered & (1 << index) != 0 {
                return Err(OfferError::Twice(row.key));
            }
            self.answered |= 1 << index;
            self.answer(row, value)?;
            return Ok(None);
        }
        Ok(match self.negotiation.answer(key, value)? {
            Answer::Value(text) => Some(text),
            Answer::None => None,
        })
    }

    /// The agreement. A key that was offered and not answered keeps its default.
    ///
    /// # Errors
    ///
    /// [`OfferError::Incompatible`] when the default of such a key is none of our values.
    pub fn finish(&self) -> Result<Parameters, OfferError> {
        let open = self.ours & !self.answered;
        for (_, row) in KEYS.iter().enumerate().filter(|(index, _)| open & (1 << index) != 0) {
            self.check_default(row)?;
        }
        Ok(self.negotiation.agreed().clone())
    }

    fn answer(&mut self, row: &Row, value: &str) -> Result<(), OfferError> {
        match value {
            "Reject" | "NotUnderstood" | "Irrelevant" if row.rule.is_for_markers() => {
                (row.set)(&mut self.negotiation.agreed, 0);
                return Ok(());
            }
            "Reject" => return Err(OfferError::Incompatible(row.key)),
            "NotUnderstood" | "Irrelevant" => return self.check_default(row),
            _ => {}
        }
        let agreed = self.agreed(row, value).ok_or_else(|| OfferError::OutsideTheRule {
            key: row.key,
            offer: self.offer(row),
            answer: value.into(),
        })?;
        (row.set)(&mut self.negotiation.agreed, agreed);
        Ok(())
    }

    /// The value that an answer stands for, when the rule allows it.
    fn agreed(&self, row: &Row, value: &str) -> Option<u32> {
        let ours = self.ours(row);
        let boolean = || text::parse_boolean(value).ok().map(u32::from);
        match &row.rule {
            Rule::And => boolean().filter(|theirs| *theirs <= ours),
            Rule::Or => boolean().filter(|theirs| *theirs >= ours),
            Rule::Minimum(range) => number(value, range, |n| n).map(|(n, _)| n).filter(|theirs| *theirs <= ours),
            Rule::Maximum(range) => number(value, range, |n| n).map(|(n, _)| n).filter(|theirs| *theirs >= ours),
            Rule::Declared(range) => number(value, range, |n| n).map(|(n, _)| n),
            // One value, not a list.
            Rule::FirstOf(choices) if !value.contains(',') => first_of(value, choices, ours).map(|(index, _)| index),
            Rule::FirstOf(_) => None,
            Rule::Marker => boolean(),
            Rule::MarkerInterval => number(value, &MARKER_INTERVAL, |n| n).map(|(n, _)| n).filter(|n| *n == ours),
        }
    }

    /// Only lists have a default that we may be unwilling to live with.
    fn check_default(&self, row: &Row) -> Result<(), OfferError> {
        let default_is_ours = !matches!(row.rule, Rule::FirstOf(_)) || self.ours(row) & 1 != 0;
        if default_is_ours { Ok(()) } else { Err(OfferError::Incompatible(row.key)) }
    }

    fn offer(&self, row: &Row) -> String {
        let ours = self.ours(row);
        match &row.rule {
            Rule::And | Rule::Or | Rule::Marker => text::format_boolean(ours == 1).into(),
            Rule::FirstOf(choices) => {
                // What comes later in the row does more: CRC32C before None.
                let taken = choices.iter().enumerate().rev().filter(|(index, _)| ours & (1 << index) != 0);
                taken.map(|(_, choice)| *choice).collect::<Vec<_>>().join(",")
            }
            _ => ours.to_string(),
        }
    }

    /// Our value, inside the range of its key.
    fn ours(&self, row: &Row) -> u32 {
        let ours = (row.ours)(&self.negotiation.offer);
        match &row.rule {
            Rule::Minimum(range) | Rule::Maximum(range) | Rule::Declared(range) => {
                ours.clamp(*range.start(), *range.end())
            }
            Rule::MarkerInterval if ours > 0 => ours.clamp(MIN_MARKER_INTERVAL_WORDS, *MARKER_INTERVAL.end()),
            _ => ours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Choices, Digest};

    fn originator() -> Originator {
        Originator::leading(&Offer::default())
    }

    #[test]
    fn everything_is_offered_once_and_what_is_out_of_reach_is_not() {
        let offer = Offer { error_recovery_level: 2, ..Offer::default() };
        let mut list = TextWriter::new();
        Originator::leading(&offer).write(&mut list).unwrap();
        let pairs: Vec<_> = text::pairs(list.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(
            pairs,
            [
                ("HeaderDigest", "CRC32C,None"),
                ("DataDigest", "CRC32C,None"),
                ("MaxConnections", "8"),
                ("InitialR2T", "No"),
                ("ImmediateData", "Yes"),
                ("MaxRecvDataSegmentLength", "262144"),
                ("MaxBurstLength", "1048576"),
                ("FirstBurstLength", "262144"),
                ("DefaultTime2Wait", "0"),
                ("DefaultTime2Retain", "0"),
                ("MaxOutstandingR2T", "1"),
                ("DataPDUInOrder", "Yes"),
                ("DataSequenceInOrder", "Yes"),
                ("ErrorRecoveryLevel", "2"),
                ("TaskReporting", "FastAbort,ResponseFence,RFC3720"),
                ("iSCSIProtocolLevel", "2"),
            ]
        );
    }

    #[test]
    fn every_order_and_number_of_r2ts_may_be_offered() {
        let offer = Offer {
            max_outstanding_r2t: 65_535,
            data_pdu_in_order: false,
            data_sequence_in_order: false,
            ..Offer::default()
        };
        let mut originator = Originator::leading(&offer);
        let mut list = TextWriter::new();
        originator.write(&mut list).unwrap();
        for key in ["MaxOutstandingR2T=65535", "DataPDUInOrder=No", "DataSequenceInOrder=No"] {
            let pairs = text::pairs(list.as_bytes()).map(Result::unwrap);
            assert!(pairs.map(|(name, value)| format!("{name}={value}")).any(|pair| pair == key), "{key}");
        }
        for (key, value) in [("DataPDUInOrder", "No"), ("DataSequenceInOrder", "Yes"), ("MaxOutstandingR2T", "65535")] {
            assert_eq!(originator.take(key, value), Ok(None), "{key}={value}");
        }
        let agreed = originator.finish().unwrap();
        assert_eq!((agreed.data_pdu_in_order, agreed.data_sequence_in_order), (false, true));
        assert_eq!(agreed.effective_max_outstanding_r2t(), 65_535);
        let recovers = Parameters { error_recovery_level: 1, ..agreed.clone() };
        assert_eq!(recovers.effective_max_outstanding_r2t(), 1, "only the last sequence can be asked for again");
        let any_order = Parameters { data_sequence_in_order: false, ..recovers };
        assert_eq!(any_order.effective_max_outstanding_r2t(), 65_535);
    }

    #[test]
    fn one_r2t_is_offered_where_ordered_sequences_may_be_asked_for_again() {
        for (level, in_order, expected) in [(0, true, 8), (1, false, 8), (1, true, 1)] {
            let offer = Offer { error_recovery_level: level, data_sequence_in_order: in_order, ..Offer::default() };
            assert_eq!(within_reach(&offer).max_outstanding_r2t, expected);
        }
    }

    #[test]
    fn a_discovery_session_offers_what_holds_for_the_connection() {
        let mut list = TextWriter::new();
        Originator::joining(&Offer::default()).write(&mut list).unwrap();
        let keys: Vec<_> = text::pairs(list.as_bytes()).map(|pair| pair.unwrap().0).collect();
        assert_eq!(keys, ["HeaderDigest", "DataDigest", "MaxRecvDataSegmentLength"]);
    }

    #[test]
    fn answers_within_the_rule_are_agreed() {
        let mut originator = originator();
        for (key, value) in [
            ("HeaderDigest", "None"),
            ("DataDigest", "CRC32C"),
            ("InitialR2T", "Yes"),
            ("ImmediateData", "No"),
            ("MaxRecvDataSegmentLength", "512"),
            ("MaxBurstLength", "0x10000"),
            ("FirstBurstLength", "65536"),
            ("DefaultTime2Wait", "5"),
            ("MaxOutstandingR2T", "NotUnderstood"),
            ("DataPDUInOrder", "Irrelevant"),
        ] {
            assert_eq!(originator.take(key, value), Ok(None), "{key}={value}");
        }
        let agreed = originator.finish().unwrap();
        let expected = Parameters {
            data_digest: Digest::Crc32c,
            recv_data_segment_len: 262_144,
            send_data_segment_len: 512,
            immediate_data: false,
            max_burst_len: 65_536,
            time2wait_s: 5,
            ..Parameters::default()
        };
        assert_eq!(agreed, expected);
    }

    #[test]
    fn answers_outside_the_rule_are_refused() {
        for (key, value) in [
            ("HeaderDigest", "CRC32"),
            ("HeaderDigest", "CRC32C,None"),
            ("DataPDUInOrder", "No"),
            ("InitialR2T", "maybe"),
            ("MaxBurstLength", "1048577"),
            ("MaxBurstLength", "511"),
            ("MaxOutstandingR2T", "9"),
            ("MaxOutstandingR2T", "0"),
            ("MaxConnections", "9"),
            ("ErrorRecoveryLevel", "2"),
            ("MaxRecvDataSegmentLength", "16777216"),
            ("DefaultTime2Wait", "3601"),
        ] {
            let refused = originator().take(key, value);
            assert!(matches!(refused, Err(OfferError::OutsideTheRule { .. })), "{key}={value}: {refused:?}");
        }
        let no_immediate = Offer { immediate_data: false, initial_r2t: true, time2wait_s: 3, ..Offer::default() };
        for (key, value) in [("ImmediateData", "Yes"), ("InitialR2T", "No"), ("DefaultTime2Wait", "2")] {
            assert!(Originator::leading(&no_immediate).take(key, value).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn a_list_without_common_value_is_incompatible() {
        let offer = Offer { data_digest: Choices(0b10), ..Offer::default() };
        for value in ["Reject", "NotUnderstood"] {
            let refused = Originator::leading(&offer).take("DataDigest", value);
            assert_eq!(refused, Err(OfferError::Incompatible("DataDigest")));
        }
        assert_eq!(Originator::leading(&offer).finish(), Err(OfferError::Incompatible("DataDigest")));
        assert_eq!(originator().finish().unwrap().data_digest, Digest::None);
    }

    fn with_markers() -> Originator {
        Originator::joining(&Offer { marker_interval: Some(512), ..Offer::default() })
    }

    #[test]
    fn markers_are_offered_for_each_connection_when_they_are_wanted() {
        let mut list = TextWriter::new();
        with_markers().write(&mut list).unwrap();
        let pairs: Vec<_> = text::pairs(list.as_bytes()).map(Result::unwrap).skip(3).collect();
        assert_eq!(pairs, [("IFMarker", "Yes"), ("OFMarker", "Yes"), ("IFMarkInt", "512"), ("OFMarkInt", "512")]);
    }

    #[test]
    fn each_direction_has_markers_when_both_of_its_answers_agree() {
        for (answers, of, if_) in [
            (
                &[("OFMarker", "Yes"), ("OFMarkInt", "512"), ("IFMarker", "No"), ("IFMarkInt", "Irrelevant")][..],
                true,
                false,
            ),
            (&[("OFMarkInt", "512"), ("OFMarker", "Yes"), ("IFMarkInt", "512"), ("IFMarker", "Yes")], true, true),
            (&[("OFMarker", "Yes"), ("OFMarkInt", "Reject"), ("IFMarker", "Yes"), ("IFMarkInt", "512")], false, true),
            (&[("OFMarker", "Reject"), ("IFMarker", "NotUnderstood")], false, false),
            (&[("OFMarker", "No"), ("OFMarkInt", "Reject"), ("IFMarker", "No"), ("IFMarkInt", "Reject")], false, false),
            (&[], false, false),
        ] {
            let mut originator = with_markers();
            for (key, value) in answers {
                assert_eq!(originator.take(key, value), Ok(None), "{key}={value}");
            }
            let intervals = originator.finish().unwrap().marker_intervals();
            assert_eq!((intervals.out, intervals.in_), (of.then_some(2048), if_.then_some(2048)), "{answers:?}");
        }
    }

    #[test]
    fn other_answers_to_marker_offers_are_refused() {
        for (key, value) in [
            ("OFMarkInt", "511"),
            ("OFMarkInt", "1~512"),
            ("IFMarkInt", "0"),
            ("IFMarkInt", "Yes"),
            ("IFMarker", "yes"),
        ] {
            let refused = with_markers().take(key, value);
            assert!(matches!(refused, Err(OfferError::OutsideTheRule { .. })), "{key}={value}: {refused:?}");
        }
    }

    #[test]
    fn an_interval_below_our_limit_is_not_offered() {
        let originator = Originator::joining(&Offer { marker_interval: Some(1), ..Offer::default() });
        let (_, row) = row("OFMarkInt").unwrap();
        assert_eq!(originator.offer(row), "64");
    }

    #[test]
    fn the_peer_may_offer_what_we_did_not() {
        let mut originator = Originator::leading(&Offer { task_reporting: Choices(0b011), ..Offer::initiator() });
        assert_eq!(originator.take("TaskReporting", "ResponseFence"), Ok(None));
        let mut originator = Originator::leading(&Offer::initiator());
        assert_eq!(originator.take("TaskReporting", "FastAbort,RFC3720"), Ok(Some("RFC3720".into())));
        assert_eq!(originator.take("X-org.example.speed", "9"), Ok(Some("NotUnderstood".into())));
        assert_eq!(originator.take("IFMarker", "Yes"), Ok(Some("No".into())));
        assert!(matches!(originator.take("IFMarker", "Yes"), Err(OfferError::Peer(_))));
        assert_eq!(originator.take("InitialR2T", "No"), Ok(None));
        assert_eq!(originator.take("InitialR2T", "No"), Err(OfferError::Twice("InitialR2T")));
    }
}
