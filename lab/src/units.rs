//! Rates, times, shares and lengths as people write them.

use std::str::FromStr;

use crate::limits::{MAX_QUEUE_BYTES, MAX_SECONDS, RATES};
use crate::link::{LossModel, Nanos, Share};

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate(pub(crate) u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
        let rate = number_of(text, &units).filter(|rate| RATES.contains(rate));
        rate.map(|rate| Self(whole(rate))).ok_or_else(|| "write bits per second from 64k to 1T, like 155M or 1G".into())
    }
}

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Time(pub(crate) Nanos);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("ns", 1e-9), ("s", 1.0)];
        let seconds = if text == "0" { Some(0.0) } else { number_with_unit(text, &units) };
        let seconds = seconds.filter(|seconds| *seconds <= MAX_SECONDS);
        seconds.map(|seconds| Self(whole(seconds * 1e9))).ok_or_else(|| "write a time up to 60s, like 50ms or 0".into())
    }
}

/// A share of the packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Percent(pub(crate) Share);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = if text == "0" { Some(0.0) } else { number_with_unit(text, &[("%", 1.0)]) };
        let percent = percent.filter(|percent| *percent <= 100.0);
        percent.map(|percent| Self(percent / 100.0)).ok_or_else(|| "write a percentage, like 0.1%".into())
    }
}

/// The length of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Queue {
    Bytes(u64),
    /// A queue of what the line sends in that time.
    Time(Time),
}

impl FromStr for Queue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.ends_with('s') {
            return text.parse().map(Self::Time);
        }
        let units = [("K", 1024.0), ("M", 1024.0 * 1024.0), ("G", 1024.0 * 1024.0 * 1024.0)];
        let bytes = number_of(text, &units).filter(|bytes| *bytes <= MAX_QUEUE_BYTES);
        bytes
            .map(|bytes| Self::Bytes(whole(bytes)))
            .ok_or_else(|| "write bytes up to 1G, like 256K, or a time, like 20ms".into())
    }
}

/// A value for each direction: one for both, or two with a slash between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EachWay<T> {
    pub(crate) there: T,
    pub(crate) back: T,
}

impl<T> EachWay<T> {
    pub(crate) fn map<U>(self, change: impl Fn(T) -> U) -> EachWay<U> {
        EachWay { there: change(self.there), back: change(self.back) }
    }
}

impl<T: Copy> EachWay<T> {
    pub(crate) fn both(value: T) -> Self {
        Self { there: value, back: value }
    }
}

impl<T: FromStr + Copy> FromStr for EachWay<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        match text.split_once('/') {
            Some((there, back)) => Ok(Self { there: there.parse()?, back: back.parse()? }),
            None => text.parse().map(Self::both),
        }
    }
}

impl FromStr for LossModel {
    type Err = String;

    /// `P,R[,BAD[,GOOD]]` in percent: the turns to bad and to good, and what each state loses.
    fn from_str(text: &str) -> Result<Self, String> {
        let shares: Result<Vec<Share>, String> =
            text.split(',').map(|part| part.parse::<Percent>().map(|percent| percent.0)).collect();
        let (good_to_bad, bad_to_good, lost_in_bad, lost_in_good) = match shares?[..] {
            [p, r] => (p, r, 1.0, 0.0),
            [p, r, bad] => (p, r, bad, 0.0),
            [p, r, bad, good] => (p, r, bad, good),
            _ => return Err("write two to four percentages, like 1%,25% or 1%,25%,50%,0.1%".into()),
        };
        Ok(Self { good_to_bad, bad_to_good, lost_in_bad, lost_in_good })
    }
}

/// A number with one of the units behind it, or none.
fn number_of(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    number_with_unit(text, units).or_else(|| number(text))
}

fn number_with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(unit, scale)| text.strip_suffix(unit).and_then(number).map(|number| number * scale))
}

fn number(text: &str) -> Option<f64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| digits)
}

/// The next whole number to one that is not negative.
#[expect(clippy::cast_sign_loss, reason = "numbers are parsed without a sign")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        for (text, bits) in [("155M", 155_000_000), ("1G", 1_000_000_000), ("96.5k", 96_500), ("10000000", 10_000_000)]
        {
            assert_eq!(text.parse(), Ok(Rate(bits)), "{text}");
        }
        for (text, nanos) in [("50ms", 50_000_000), ("0.5s", 500_000_000), ("120us", 120_000), ("7ns", 7), ("0", 0)] {
            assert_eq!(text.parse(), Ok(Time(nanos)), "{text}");
        }
        assert_eq!("0.1%".parse(), Ok(Percent(0.001)));
        assert_eq!("256K".parse(), Ok(Queue::Bytes(256 * 1024)));
        assert_eq!("3000".parse(), Ok(Queue::Bytes(3000)));
        assert_eq!("20ms".parse(), Ok(Queue::Time(Time(20_000_000))));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "M", "-1M", "1e9", "9.6k", "inf", "NaN", "1", "2T", "155 M", "155Mb"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["", "50", "s", "-1s", "61s", "1h", "infs"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        for text in ["", "0.1", "101%", "%", "-1%"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
        for text in ["", "2G", "100s", "x"] {
            assert!(text.parse::<Queue>().is_err(), "{text}");
        }
        for text in ["", "1%", "1%,2%,3%,4%,5%", "1,2"] {
            assert!(text.parse::<LossModel>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_slash_parts_the_directions() {
        assert_eq!("1G".parse(), Ok(EachWay::both(Rate(1_000_000_000))));
        assert_eq!("20M/1M".parse(), Ok(EachWay { there: Rate(20_000_000), back: Rate(1_000_000) }));
        assert!("1M/2M/3M".parse::<EachWay<Rate>>().is_err());
    }

    #[test]
    fn a_model_of_losses_has_defaults_for_its_states() {
        let model = LossModel { good_to_bad: 0.01, bad_to_good: 0.25, lost_in_bad: 1.0, lost_in_good: 0.0 };
        assert_eq!("1%,25%".parse(), Ok(model));
        assert_eq!("1%,25%,50%".parse(), Ok(LossModel { lost_in_bad: 0.5, ..model }));
        assert_eq!("1%,25%,50%,10%".parse(), Ok(LossModel { lost_in_bad: 0.5, lost_in_good: 0.1, ..model }));
    }
}
