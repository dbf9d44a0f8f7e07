//! The free space of a thin logical unit, and its soft threshold (SBC-4 4.7.3.8).

use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_store::Space;

/// Bytes of a threshold set, the unit of thresholds and resource counts.
const SET_BYTES: u64 = 1 << 20;

/// The space of the store as it was last observed.
#[derive(Default)]
pub(crate) struct SpaceMonitor(Mutex<ObservedSpace>);

#[derive(Default)]
struct ObservedSpace {
    space: Option<Space>,
    /// Whether the unit attention was raised since the space was last above the threshold.
    told: bool,
}

impl SpaceMonitor {
    /// The space that was last observed, if any.
    pub(crate) fn last(&self) -> Option<Space> {
        self.observed().space
    }

    /// Whether the unit attention was raised since the space was last above the threshold.
    pub(crate) fn told(&self) -> bool {
        self.observed().told
    }

    /// A predecessor has raised the unit attention.
    pub(crate) fn inherit_told(&self) {
        self.observed().told = true;
    }

    fn observed(&self) -> MutexGuard<'_, ObservedSpace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records `space`. True when the unit attention is due: `reports` (LBPERE) is set, the free space has fallen to
    /// the threshold, and no unit attention was raised since it was last above.
    pub(crate) fn update(&self, space: Option<Space>, threshold_bytes: Option<u64>, reports: bool) -> bool {
        let mut seen = self.observed();
        seen.space = space;
        let reached = match (space, threshold_bytes) {
            (Some(space), Some(threshold)) => sets(space.free_bytes) <= sets(threshold),
            _ => false,
        };
        let tell = reached && reports && !seen.told;
        seen.told = reached && (seen.told || tell);
        tell
    }
}

/// Whole threshold sets in `bytes`.
pub(crate) fn sets(bytes: u64) -> u32 {
    u32::try_from(bytes / SET_BYTES).unwrap_or(u32::MAX)
}

/// THRESHOLD EXPONENT for blocks of this size.
pub(crate) fn threshold_exponent(block_size: u32) -> u8 {
    (SET_BYTES / u64::from(block_size)).ilog2() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_threshold_is_reported_once_each_time_it_is_reached() {
        let watch = SpaceMonitor::default();
        let update = |free, reports| {
            watch.update(Some(Space { used_bytes: 0, free_bytes: free * MIB }), Some(10 * MIB), reports)
        };
        let told =
            [(11, true), (10, true), (9, true), (11, true), (0, true)].map(|(free, reports)| update(free, reports));
        assert_eq!(told, [false, true, false, false, true]);
        assert!(!update(11, true) && !update(9, false), "LBPERE is cleared");
        assert!(update(9, true), "LBPERE is set again");
    }

    #[test]
    fn without_a_threshold_or_known_space_no_attention_is_due() {
        let watch = SpaceMonitor::default();
        assert!(!watch.update(Some(Space { used_bytes: 1, free_bytes: 0 }), None, true));
        assert_eq!(watch.last(), Some(Space { used_bytes: 1, free_bytes: 0 }));
        assert!(!watch.update(None, Some(MIB), true));
        assert_eq!(watch.last(), None);
    }

    #[test]
    fn a_set_is_a_mebibyte_whatever_the_block() {
        assert_eq!((threshold_exponent(512), threshold_exponent(4096)), (11, 8));
        assert_eq!((sets(3 * MIB - 1), sets(u64::MAX)), (2, u32::MAX));
    }
}
