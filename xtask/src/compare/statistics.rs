//! Medians and their spread.

/// The median of a figure over all rounds, with the lowest and highest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// The spread of the values; `None` when there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let upper = values[values.len() / 2];
        let median =
            if values.len().is_multiple_of(2) { f64::midpoint(values[values.len() / 2 - 1], upper) } else { upper };
        Some(Self { median, low, high })
    }

    /// The ratio of the medians of two figures that were measured in the same rounds, and the lowest and highest ratio
    /// within one round. `None` when a figure is missing or the divisor is zero.
    pub(crate) fn of_ratio(over: &[f64], under: &[f64]) -> Option<Self> {
        if under.iter().any(|under| *under <= 0.0) {
            return None;
        }
        let rounds = Self::of(over.iter().zip(under).map(|(over, under)| over / under))?;
        let median = Self::of(over.iter().copied())?.median / Self::of(under.iter().copied())?.median;
        Some(Self { median, ..rounds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 9.0]), Some(Spread { median: 3.0, low: 1.0, high: 9.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 9.0]), Some(Spread { median: 3.0, low: 1.0, high: 9.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn one_disturbed_round_moves_the_spread_and_not_the_ratio() {
        let ratio = Spread::of_ratio(&[10.0, 10.0, 1.0], &[2.0, 2.0, 2.0]);
        assert_eq!(ratio, Some(Spread { median: 5.0, low: 0.5, high: 5.0 }));
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(Spread::of_ratio(&[1.0, 1.0], &[1.0, 0.0]), None);
        assert_eq!(Spread::of_ratio(&[], &[]), None);
    }
}
