//! The history of one register (a block, or the reservation) as initiators saw it, and the check whether one order
//! explains it.

use std::collections::BTreeMap;
use std::time::Duration;

/// A value that is written once; 0 is the one before the first write.
pub(super) type Written = u64;

/// Requests to one register. Times without an end are [`Duration::MAX`].
#[derive(Debug, Default)]
pub(super) struct History {
    writes: BTreeMap<Written, (Duration, Duration)>,
    reads: Vec<(Duration, Duration, Written)>,
}

/// The write of a value and its reads: from the first end to the last beginning all others lie before or behind them,
/// or, the other way round, one moment of that time is enough for all of them.
#[derive(Debug, Clone, Copy)]
struct Zone {
    first_end: Duration,
    last_begin: Duration,
}

impl History {
    /// A write has begun. Without an end, it may take effect at any later time.
    pub(super) fn begin_write(&mut self, value: Written, now: Duration) {
        self.writes.insert(value, (now, Duration::MAX));
    }

    /// A write was answered.
    pub(super) fn end_write(&mut self, value: Written, now: Duration) {
        if let Some((_, end)) = self.writes.get_mut(&value) {
            *end = now;
        }
    }

    /// A write was refused: its value may never be read.
    pub(super) fn refuse_write(&mut self, value: Written) {
        self.writes.remove(&value);
    }

    /// A read was answered.
    pub(super) fn read(&mut self, began: Duration, now: Duration, value: Written) {
        self.reads.push((began, now, value));
    }

    /// Whether one order explains all answers (linearizability of a register whose values are written once each:
    /// Gibbons and Korach, 1997).
    pub(super) fn check(&self) -> Result<(), String> {
        let mut zones = BTreeMap::from([(0, Zone { first_end: Duration::ZERO, last_begin: Duration::ZERO })]);
        for (value, (begin, end)) in &self.writes {
            zones.insert(*value, Zone { first_end: *end, last_begin: *begin });
        }
        for (begin, end, value) in &self.reads {
            let zone = zones.get_mut(value).ok_or_else(|| format!("{value} was read, whose write was refused"))?;
            if self.writes.get(value).is_some_and(|(written, _)| written > end) {
                return Err(format!("{value} was read before it was written"));
            }
            zone.first_end = zone.first_end.min(*end);
            zone.last_begin = zone.last_begin.max(*begin);
        }
        // A write that was neither answered nor read may never have been.
        zones.retain(|_, zone| zone.first_end < Duration::MAX);
        let mut forward: Vec<_> = zones.iter().filter(|(_, zone)| zone.first_end < zone.last_begin).collect();
        forward.sort_by_key(|(_, zone)| zone.first_end);
        for pair in forward.windows(2) {
            let ((one, first), (other, second)) = (pair[0], pair[1]);
            if second.first_end < first.last_begin {
                return Err(format!("{one} and {other} were each read after the other one"));
            }
        }
        for (value, zone) in zones.iter().filter(|(_, zone)| zone.first_end >= zone.last_begin) {
            let inside = |(_, other): &&(&Written, &Zone)| {
                other.first_end < zone.last_begin && zone.first_end < other.last_begin
            };
            if let Some((other, _)) = forward.iter().find(inside) {
                return Err(format!("{value} was written while {other} was read before and after it"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn written(writes: &[(Written, u64, u64)], reads: &[(u64, u64, Written)]) -> Result<(), String> {
        let mut history = History::default();
        for (value, begin, end) in writes {
            history.begin_write(*value, at(*begin));
            if *end > 0 {
                history.end_write(*value, at(*end));
            }
        }
        for (begin, end, value) in reads {
            history.read(at(*begin), at(*end), *value);
        }
        history.check()
    }

    #[test]
    fn what_one_order_explains_passes() {
        written(&[(1, 1, 2), (2, 3, 4)], &[(1, 1, 0), (2, 3, 1), (3, 5, 1), (5, 6, 2)]).unwrap();
        written(&[(1, 1, 0), (2, 2, 3)], &[(4, 5, 2), (6, 7, 1)]).unwrap();
        written(&[(1, 1, 9), (2, 1, 9)], &[(2, 3, 2), (4, 5, 1)]).unwrap();
    }

    #[test]
    fn what_no_order_explains_is_found() {
        for (writes, reads) in [
            (&[(1, 1, 2)][..], &[(3, 4, 0)][..]),
            (&[(1, 1, 2), (2, 3, 4)], &[(5, 6, 1)]),
            (&[(1, 1, 9), (2, 1, 9)], &[(2, 3, 2), (4, 5, 1), (6, 7, 2)]),
            (&[(1, 5, 6)], &[(2, 3, 1)]),
            (&[(1, 1, 2), (2, 3, 0)], &[(4, 5, 2), (6, 7, 1)]),
            (&[], &[(1, 2, 7)]),
        ] {
            assert!(written(writes, reads).is_err(), "{writes:?} {reads:?}");
        }
    }
}
