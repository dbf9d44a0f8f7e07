//! When answers leave before the batch ends.
//!
//! An initiator that gets the answers to all its commands at once sends as many new ones at once: then each side sleeps while
//! the other one works. When half of them leave early, both work. With 4 KiB reads, 8 to 32 under way, it is a third to two
//! thirds more of them (docs/measurements/2026-11-22-half-of-the-answers-first.md).

/// Fewer commands are not worth a send of their own.
const MIN_COMMANDS: usize = 4;

/// What came in since answers last left.
#[derive(Default)]
pub(super) struct Pace {
    commands: usize,
}

impl Pace {
    /// Answers are about to leave.
    pub(super) fn begin(&mut self) {
        self.commands = 0;
    }

    /// A command has come.
    pub(super) fn count(&mut self) {
        self.commands += 1;
    }

    /// Whether the answers should leave now: half of what an initiator waits for, when that is `under_way` commands.
    pub(super) fn is_due(&self, under_way: usize) -> bool {
        self.commands >= (under_way / 2).max(MIN_COMMANDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands_before_due(under_way: usize) -> usize {
        (0..1000).find(|commands| Pace { commands: *commands }.is_due(under_way)).unwrap()
    }

    #[test]
    fn half_of_what_is_under_way_leaves_early() {
        assert_eq!(commands_before_due(32), 16);
        assert_eq!(commands_before_due(129), 64);
    }

    #[test]
    fn a_few_wait_for_the_others() {
        for under_way in 0..=MIN_COMMANDS * 2 {
            assert_eq!(commands_before_due(under_way), MIN_COMMANDS);
        }
    }

    #[test]
    fn what_has_left_does_not_count() {
        let mut pace = Pace { commands: 16 };
        assert!(pace.is_due(32));
        pace.begin();
        assert!(!pace.is_due(32));
    }
}
