//! The space of a thin logical unit, and the threshold at which its initiators are told (SBC-4 4.7.3.8).

use std::sync::{Mutex, PoisonError};

use lunette_store::Space;

/// Bytes of a threshold set, which thresholds and resources are counted in.
const SET_BYTES: u64 = 1 << 20;

/// What was last seen.
#[derive(Default)]
pub(crate) struct SpaceMonitor(Mutex<ObservedSpace>);

#[derive(Default)]
struct ObservedSpace {
    space: Option<Space>,
    /// The initiators were told, and there has not been more space since.
    told: bool,
}

impl SpaceMonitor {
    /// What was last seen, if anything was.
    pub(crate) fn last(&self) -> Option<Space> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).space
    }

    /// Takes note of `space`. True when the initiators are to be told: `reports` says that they want to hear of the threshold,
    /// and the free space has come down to it since it was last above, or since they were last told.
    pub(crate) fn update(&self, space: Option<Space>, threshold_bytes: Option<u64>, reports: bool) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Whole threshold sets in so many bytes.
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
    fn a_threshold_is_told_of_once_each_time_it_is_reached() {
        let watch = SpaceMonitor::default();
        let update = |free, reports| {
            watch.update(Some(Space { used_bytes: 0, free_bytes: free * MIB }), Some(10 * MIB), reports)
        };
        let told =
            [(11, true), (10, true), (9, true), (11, true), (0, true)].map(|(free, reports)| update(free, reports));
        assert_eq!(told, [false, true, false, false, true]);
        assert!(!update(11, true) && !update(9, false), "nobody wants to hear");
        assert!(update(9, true), "until somebody does");
    }

    #[test]
    fn without_a_threshold_or_a_number_nobody_is_told() {
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
