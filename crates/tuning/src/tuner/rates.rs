//! The result of a trial.

/// Bytes of data per second that a candidate carried.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// The rate of reads alone.
    pub read: f64,
    /// Writes alone; `None` when nothing may be written.
    pub write: Option<f64>,
}

impl Rates {
    /// The factor by which these rates are greater: of both directions, the geometric mean.
    pub fn gain_over(&self, other: &Self) -> f64 {
        let read = ratio(self.read, other.read);
        match (self.write, other.write) {
            (Some(write), Some(other)) => (read * ratio(write, other)).sqrt(),
            _ => read,
        }
    }

    /// Whether neither direction is slower.
    pub fn is_no_slower_than(&self, other: &Self) -> bool {
        self.read >= other.read && self.write.unwrap_or(0.0) >= other.write.unwrap_or(0.0)
    }

    /// The greater of the two directions.
    pub(super) fn most(&self) -> f64 {
        self.read.max(self.write.unwrap_or(0.0))
    }

    /// The mean of each direction; `None` without rates.
    pub(super) fn mean(all: &[Self]) -> Option<Self> {
        let count = all.len() as f64;
        let mean = |of: &dyn Fn(&Self) -> Option<f64>| {
            let sum: Option<f64> = all.iter().map(of).sum();
            sum.filter(|_| !all.is_empty()).map(|sum| sum / count)
        };
        Some(Self { read: mean(&|rates| Some(rates.read))?, write: mean(&|rates| rates.write) })
    }
}

/// How often `other` goes into `rate`. A standstill is taken for a byte per second.
fn ratio(rate: f64, other: f64) -> f64 {
    rate.max(1.0) / other.max(1.0)
}
