//! Unit attention conditions of one `I_T` nexus on one logical unit (SAM-5 5.14).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_scsi::AdditionalSense;

use crate::limits::MAX_UNIT_ATTENTIONS;

/// The unit attention conditions pending for one initiator, each once, in a bounded queue.
///
/// Commands read one word while nothing is pending.
#[derive(Debug, Default)]
pub(crate) struct UnitAttentions {
    pending: AtomicUsize,
    queue: Mutex<VecDeque<AdditionalSense>>,
}

impl UnitAttentions {
    /// Adds a condition after those of its precedence. A condition that is already pending keeps its place.
    pub(crate) fn raise(&self, code: AdditionalSense) {
        self.change(|queue| {
            if !queue.contains(&code) && queue.len() < MAX_UNIT_ATTENTIONS {
                let before = queue.iter().take_while(|waiting| precedence(**waiting) <= precedence(code)).count();
                queue.insert(before, code);
            }
        });
    }

    /// Raises a reset condition, which replaces all others (SAM-5 6.3: a reset clears older conditions), since the
    /// initiator has to check the whole state anyway. A pending power on condition stays instead: its code covers every
    /// reset.
    pub(crate) fn reset(&self, code: AdditionalSense) {
        self.change(|queue| {
            let code = queue.front().copied().filter(|first| precedence(*first) < precedence(code)).unwrap_or(code);
            queue.clear();
            queue.push_back(code);
        });
    }

    /// Takes the next condition, which thereby counts as reported.
    pub(crate) fn take(&self) -> Option<AdditionalSense> {
        if self.pending.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.change(VecDeque::pop_front)
    }

    /// The next condition, which stays pending, and the number of pending conditions.
    pub(crate) fn peek(&self) -> Option<(AdditionalSense, usize)> {
        if self.is_empty() {
            return None;
        }
        self.change(|queue| queue.front().map(|first| (*first, queue.len())))
    }

    /// The pending conditions, in the order in which they are reported.
    pub(crate) fn pending(&self) -> Vec<AdditionalSense> {
        self.change(|queue| queue.iter().copied().collect())
    }

    /// Takes over the pending conditions of a predecessor in their order, instead of that of a new nexus. What was
    /// raised since the nexus came stays.
    pub(crate) fn inherit(&self, pending: impl IntoIterator<Item = AdditionalSense>) {
        const OF_NEW_NEXUS: [AdditionalSense; 2] =
            [AdditionalSense::POWER_ON_OR_RESET, AdditionalSense::I_T_NEXUS_LOSS];
        let raised = self.change(|queue| {
            let pending = pending.into_iter().take(MAX_UNIT_ATTENTIONS).collect();
            std::mem::replace(queue, pending)
        });
        raised.into_iter().filter(|code| !OF_NEW_NEXUS.contains(code)).for_each(|code| self.raise(code));
    }

    /// Whether nothing is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Removes a condition that the initiator has learnt of in another way.
    pub(crate) fn clear(&self, code: AdditionalSense) {
        if self.pending.load(Ordering::Acquire) != 0 {
            self.change(|queue| queue.retain(|waiting| *waiting != code));
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<AdditionalSense>) -> T) -> T {
        let mut queue: MutexGuard<'_, _> = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut queue);
        self.pending.store(queue.len(), Ordering::Release);
        result
    }
}

/// The order in which conditions are reported (SAM-5 5.14.4): power on, then other resets, then all others.
fn precedence(code: AdditionalSense) -> u8 {
    match code {
        AdditionalSense::POWER_ON_OR_RESET => 0,
        reset if reset.is_reset() => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_reported_once_and_in_order() {
        let attentions = UnitAttentions::default();
        assert_eq!(attentions.take(), None);
        attentions.raise(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
        attentions.raise(AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR);
        attentions.raise(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
        assert_eq!(attentions.take(), Some(AdditionalSense::REPORTED_LUNS_DATA_CHANGED));
        assert_eq!(attentions.take(), Some(AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR));
        assert_eq!(attentions.take(), None);
    }

    #[test]
    fn a_reset_replaces_pending_conditions() {
        let attentions = UnitAttentions::default();
        attentions.raise(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
        attentions.reset(AdditionalSense::BUS_DEVICE_RESET);
        assert_eq!(attentions.take(), Some(AdditionalSense::BUS_DEVICE_RESET));
        assert_eq!(attentions.take(), None);
    }

    #[test]
    fn a_power_on_is_reported_first_and_covers_a_reset() {
        let attentions = UnitAttentions::default();
        attentions.raise(AdditionalSense::MODE_PARAMETERS_CHANGED);
        attentions.raise(AdditionalSense::BUS_DEVICE_RESET);
        attentions.raise(AdditionalSense::POWER_ON_OR_RESET);
        attentions.raise(AdditionalSense::LOG_PARAMETERS_CHANGED);
        assert_eq!(attentions.take(), Some(AdditionalSense::POWER_ON_OR_RESET));
        assert_eq!(attentions.take(), Some(AdditionalSense::BUS_DEVICE_RESET));
        assert_eq!(attentions.take(), Some(AdditionalSense::MODE_PARAMETERS_CHANGED));
        attentions.raise(AdditionalSense::POWER_ON_OR_RESET);
        attentions.reset(AdditionalSense::BUS_DEVICE_RESET);
        assert_eq!(attentions.take(), Some(AdditionalSense::POWER_ON_OR_RESET));
        assert_eq!(attentions.take(), None);
    }

    #[test]
    fn the_queue_is_bounded() {
        let attentions = UnitAttentions::default();
        for ascq in 0..=255 {
            attentions.raise(AdditionalSense { asc: 0x2a, ascq });
        }
        assert_eq!(std::iter::from_fn(|| attentions.take()).count(), MAX_UNIT_ATTENTIONS);
    }

    #[test]
    fn a_cleared_condition_is_not_reported() {
        let attentions = UnitAttentions::default();
        attentions.raise(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
        attentions.clear(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
        assert_eq!(attentions.take(), None);
    }
}
