//! Rates, times and shares as people write them: `155M`, `80ms`, `0.05%`.

use std::fmt;
use std::time::Duration;

/// The longest round trip that is taken for one, in seconds.
const MAX_ROUND_TRIP_S: f64 = 60.0;

/// Splits a number from its unit.
fn number(text: &str) -> Option<(f64, &str)> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit() && c != '.');
    let number = digits.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
    Some((number, &text[digits.len()..]))
}

/// Reads a rate in bits per second, and gives it in bytes.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let parsed = number(text).and_then(|(number, unit)| {
        let factor = match unit.to_ascii_lowercase().trim_end_matches("bit/s").trim_end_matches("b/s") {
            "" => 1.0,
            "k" => 1e3,
            "m" => 1e6,
            "g" => 1e9,
            _ => return None,
        };
        Some(number * factor / 8.0).filter(|rate| *rate >= 1.0)
    });
    parsed.ok_or_else(|| format!("{text:?} is not a rate; write bits per second, such as 155M or 10G"))
}

/// Reads a time with its unit.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let parsed = number(text).and_then(|(number, unit)| {
        let factor = match unit {
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            _ => return None,
        };
        Some(number * factor).filter(|seconds| *seconds <= MAX_ROUND_TRIP_S)
    });
    let seconds = parsed.ok_or_else(|| format!("{text:?} is not a time up to a minute; write 80ms, 250us or 1.5s"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads a share in percent.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let parsed = number(text).filter(|(number, unit)| matches!(*unit, "" | "%") && *number < 100.0);
    parsed.map(|(number, _)| number / 100.0).ok_or_else(|| format!("{text:?} is not a share; write 0.05%"))
}

/// A rate in bytes per second, printed with a decimal unit.
pub(super) struct Rate(pub(super) f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            rate if rate >= 1e9 => (rate / 1e9, "GB/s"),
            rate if rate >= 1e6 => (rate / 1e6, "MB/s"),
            rate => (rate / 1e3, "kB/s"),
        };
        let digits = usize::from(value < 100.0) + usize::from(value < 10.0);
        write!(f, "{value:.digits$} {unit}")
    }
}

/// Bytes per second without the digits that mean nothing.
pub(super) fn rounded(rate: f64) -> f64 {
    rate.round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bits_and_decimal() {
        for (text, bytes) in
            [("8", 1.0), ("155M", 19_375_000.0), ("1g", 125e6), ("2.5Gbit/s", 312.5e6), ("1Mb/s", 125e3)]
        {
            assert_eq!(rate(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "M", "-1M", "1X", "infG"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units_and_an_end() {
        for (text, us) in [("80ms", 80_000), ("1.5s", 1_500_000), ("250us", 250), ("0ms", 0)] {
            assert_eq!(time(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for text in ["", "80", "61s", "ms", "-1ms"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_below_one() {
        assert_eq!(percent("0.05%"), Ok(0.0005));
        assert_eq!(percent("1"), Ok(0.01));
        for text in ["", "100%", "-1%", "1s"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_printed_with_three_digits() {
        for (bytes, text) in [
            (1_310_000.0, "1.31 MB/s"),
            (19.3e6, "19.3 MB/s"),
            (119e6, "119 MB/s"),
            (1.25e9, "1.25 GB/s"),
            (900.0, "0.90 kB/s"),
        ] {
            assert_eq!(Rate(bytes).to_string(), text);
        }
    }
}
