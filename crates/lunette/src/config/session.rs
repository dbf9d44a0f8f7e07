//! The values that sessions of a target may agree to: keys of RFC 7143 chapter 13 that differ from the defaults.

use std::ops::RangeInclusive;

use lunette_session::keys::{DATA_LENGTH, Offer};
use lunette_session::limits::MAX_OUTSTANDING_R2T;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::size::Size;

/// The table `session` of a target. A missing key has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionKeys {
    initial_r2t: Option<bool>,
    immediate_data: Option<bool>,
    #[schema(value_type = Option<String>, example = "1M")]
    max_recv_data_segment_length: Option<Size>,
    #[schema(value_type = Option<String>, example = "1M")]
    max_burst_length: Option<Size>,
    #[schema(value_type = Option<String>, example = "1M")]
    first_burst_length: Option<Size>,
    max_outstanding_r2t: Option<u32>,
    data_pdu_in_order: Option<bool>,
    data_sequence_in_order: Option<bool>,
    #[schema(maximum = 2)]
    error_recovery_level: Option<u32>,
    #[schema(maximum = 3600)]
    default_time2wait: Option<u32>,
    #[schema(maximum = 3600)]
    default_time2retain: Option<u32>,
    #[schema(maximum = 3600)]
    max_time2wait: Option<u32>,
}

/// The default of `DefaultTime2Retain` when connections are recovered, in seconds: that of RFC 7143 section 13.16.
const TIME2RETAIN_S: u32 = 20;

/// The range of times, in seconds (RFC 7143 sections 13.15 and 13.16).
const TIME: RangeInclusive<u32> = 0..=3600;

impl SessionKeys {
    /// Reports the first value that is outside the range of its key, with that range.
    pub(crate) fn check(&self) -> Result<(), String> {
        let bytes = |size: &Option<Size>| size.as_ref().map(|size| size.0);
        let numbers = [
            ("max_recv_data_segment_length", bytes(&self.max_recv_data_segment_length), DATA_LENGTH),
            ("max_burst_length", bytes(&self.max_burst_length), DATA_LENGTH),
            ("first_burst_length", bytes(&self.first_burst_length), DATA_LENGTH),
            ("max_outstanding_r2t", self.max_outstanding_r2t.map(u64::from), 1..=MAX_OUTSTANDING_R2T),
            ("error_recovery_level", self.error_recovery_level.map(u64::from), 0..=2),
            ("default_time2wait", self.default_time2wait.map(u64::from), TIME),
            ("default_time2retain", self.default_time2retain.map(u64::from), TIME),
            ("max_time2wait", self.max_time2wait.map(u64::from), TIME),
        ];
        for (key, number, range) in numbers {
            check(key, number, &range)?;
        }
        Ok(())
    }

    /// The values that a target with these keys, which have been checked, agrees to.
    pub(crate) fn offer(&self) -> Offer {
        let defaults = Offer::default();
        let error_recovery_level = self.error_recovery_level.unwrap_or(defaults.error_recovery_level);
        let time2retain_s = if self.error_recovery_level == Some(2) { TIME2RETAIN_S } else { defaults.time2retain_s };
        let bytes =
            |size: &Option<Size>, default| size.as_ref().and_then(|size| u32::try_from(size.0).ok()).unwrap_or(default);
        Offer {
            initial_r2t: self.initial_r2t.unwrap_or(defaults.initial_r2t),
            immediate_data: self.immediate_data.unwrap_or(defaults.immediate_data),
            recv_data_segment_len: bytes(&self.max_recv_data_segment_length, defaults.recv_data_segment_len),
            max_burst_len: bytes(&self.max_burst_length, defaults.max_burst_len),
            first_burst_len: bytes(&self.first_burst_length, defaults.first_burst_len),
            max_outstanding_r2t: self.max_outstanding_r2t.unwrap_or(defaults.max_outstanding_r2t),
            data_pdu_in_order: self.data_pdu_in_order.unwrap_or(defaults.data_pdu_in_order),
            data_sequence_in_order: self.data_sequence_in_order.unwrap_or(defaults.data_sequence_in_order),
            error_recovery_level,
            time2wait_s: self.default_time2wait.unwrap_or(defaults.time2wait_s),
            time2retain_s: self.default_time2retain.unwrap_or(time2retain_s),
            max_time2wait_s: self.max_time2wait.unwrap_or(defaults.max_time2wait_s),
            ..defaults
        }
    }
}

fn check(key: &str, number: Option<u64>, range: &RangeInclusive<u32>) -> Result<(), String> {
    let (least, most) = (*range.start(), *range.end());
    match number {
        Some(number) if !(u64::from(least)..=u64::from(most)).contains(&number) => {
            Err(format!("{key} = {number}: write {least} to {most}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> SessionKeys {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_missing_key_has_its_default() {
        assert_eq!(keys("").offer(), Offer::default());
        let one = keys("max_burst_length = \"4M\"");
        assert_eq!(one.offer(), Offer { max_burst_len: 4 << 20, ..Offer::default() });
    }

    #[test]
    fn every_key_takes_effect() {
        let all = keys(
            "initial_r2t = true\nimmediate_data = false\nmax_recv_data_segment_length = \"512\"\n\
             max_burst_length = \"16777215\"\nfirst_burst_length = \"64K\"\nmax_outstanding_r2t = 65535\n\
             data_pdu_in_order = false\ndata_sequence_in_order = false\nerror_recovery_level = 2\n\
             default_time2wait = 3\ndefault_time2retain = 3600\nmax_time2wait = 90",
        );
        assert_eq!(all.check(), Ok(()));
        let expected = Offer {
            initial_r2t: true,
            immediate_data: false,
            recv_data_segment_len: 512,
            max_burst_len: 0x00ff_ffff,
            first_burst_len: 65_536,
            max_outstanding_r2t: 65_535,
            data_pdu_in_order: false,
            data_sequence_in_order: false,
            error_recovery_level: 2,
            time2wait_s: 3,
            time2retain_s: 3600,
            max_time2wait_s: 90,
            ..Offer::default()
        };
        assert_eq!(all.offer(), expected);
    }

    #[test]
    fn recovery_of_connections_keeps_tasks() {
        for (level, time2retain_s) in [(0, 0), (1, 0), (2, TIME2RETAIN_S)] {
            let offer = keys(&format!("error_recovery_level = {level}")).offer();
            assert_eq!((offer.error_recovery_level, offer.time2retain_s), (level, time2retain_s));
        }
        assert_eq!(keys("error_recovery_level = 2\ndefault_time2retain = 0").offer().time2retain_s, 0);
    }

    #[test]
    fn numbers_outside_the_range_of_their_key_are_refused() {
        for (text, expected) in [
            ("max_recv_data_segment_length = \"511\"", "max_recv_data_segment_length = 511: write 512 to 16777215"),
            ("max_burst_length = \"16M\"", "max_burst_length = 16777216: write 512 to 16777215"),
            ("first_burst_length = \"5G\"", "first_burst_length = 5368709120: write 512 to 16777215"),
            ("max_outstanding_r2t = 0", "max_outstanding_r2t = 0: write 1 to 65535"),
            ("max_outstanding_r2t = 65536", "max_outstanding_r2t = 65536: write 1 to 65535"),
            ("error_recovery_level = 3", "error_recovery_level = 3: write 0 to 2"),
            ("default_time2retain = 3601", "default_time2retain = 3601: write 0 to 3600"),
        ] {
            assert_eq!(keys(text).check(), Err(expected.into()));
        }
    }
}
