//! The versions that a writer gives its quanta.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that gives each request a version higher than all that the writer knows.
///
/// A version is the time in nanoseconds since 1970, or one more than the highest version that the writer has given or
/// has seen in an authentic quantum, whichever is higher. So the versions of one client rise even when its clock goes
/// back, and so do those of several clients that read what the others write.
#[derive(Debug, Default)]
pub(crate) struct Versions(AtomicU64);

impl Versions {
    pub(crate) fn next(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        self.next_at(u64::try_from(now).unwrap_or(u64::MAX))
    }

    fn next_at(&self, now_ns: u64) -> u64 {
        let after = |last: u64| now_ns.max(last.saturating_add(1));
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
        after(last.unwrap_or_else(|last| last))
    }

    /// Takes note of a version that someone has given.
    pub(crate) fn saw(&self, version: u64) {
        if self.0.load(Ordering::Relaxed) < version {
            self.0.fetch_max(version, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rise_whatever_the_clock_does() {
        let versions = Versions::default();
        assert_eq!(versions.next_at(100), 100);
        assert_eq!(versions.next_at(100), 101);
        assert_eq!(versions.next_at(50), 102);
        assert_eq!(versions.next_at(500), 500);
        versions.saw(900);
        versions.saw(3);
        assert_eq!(versions.next_at(501), 901);
        versions.saw(u64::MAX);
        assert_eq!(versions.next_at(1), u64::MAX, "it does not wrap");
    }

    #[test]
    fn the_system_clock_counts_nanoseconds() {
        const YEAR_2024_NS: u64 = 1_704_067_200_000_000_000;
        let versions = Versions::default();
        let first = versions.next();
        assert!(first > YEAR_2024_NS && versions.next() > first);
    }
}
