//! When answers leave before the batch ends.
//!
//! An initiator that gets the answers to all its commands at once sends as many new ones at once: then each side sleeps
//! while the other one works. When half of them leave early, both work. With 4 KiB reads, 8 to 32 under way, it is a
//! third to two thirds more of them (docs/measurements/2026-11-22-half-of-the-answers-first.md).

/// Fewer commands are not worth a send of their own.
const MIN_COMMANDS: usize = 4;

/// The commands that came in since answers last left.
#[derive(Default)]
pub(super) struct Pace {
    commands: usize,
    batches: u64,
}

/// How many commands of a connection are under way.
///
/// A stream shows all that came in a batch at once. Packets come one by one, and with the first of a batch hardly any
/// is under way; so the most of the batch before counts, too.
#[derive(Default)]
pub(in crate::core) struct UnderWay {
    now: usize,
    /// In this batch.
    most: usize,
    most_before: usize,
    batch: u64,
}

impl UnderWay {
    /// Notes the number of commands.
    pub(super) fn note(&mut self, commands: usize, pace: &Pace) {
        if self.batch != pace.batches {
            self.batch = pace.batches;
            self.most_before = std::mem::take(&mut self.most);
        }
        self.now = commands;
        self.most = self.most.max(commands);
    }

    /// The number as it was noted last.
    pub(super) fn now(&self) -> usize {
        self.now
    }

    fn most(&self) -> usize {
        self.most.max(self.most_before)
    }
}

impl Pace {
    /// Answers are about to leave.
    pub(super) fn begin(&mut self) {
        self.commands = 0;
        self.batches += 1;
    }

    /// A command has come.
    pub(super) fn count(&mut self) {
        self.commands += 1;
    }

    /// Whether the answers should leave now: half of what an initiator waits for, when it has these commands under way.
    pub(super) fn is_due(&self, under_way: &UnderWay) -> bool {
        self.commands >= (under_way.most() / 2).max(MIN_COMMANDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under_way(commands: usize, pace: &Pace) -> UnderWay {
        let mut under_way = UnderWay::default();
        under_way.note(commands, pace);
        under_way
    }

    fn commands_before_due(commands: usize) -> usize {
        let pace = |commands| Pace { commands, batches: 1 };
        let under_way = under_way(commands, &pace(0));
        (0..1000).find(|commands| pace(*commands).is_due(&under_way)).unwrap()
    }

    #[test]
    fn the_first_packets_of_a_batch_do_not_hide_what_is_under_way() {
        let mut pace = Pace::default();
        pace.begin();
        let mut under_way = under_way(32, &pace);
        pace.begin();
        for commands in 1..=15 {
            pace.count();
            under_way.note(commands, &pace);
            assert!(!pace.is_due(&under_way), "{commands}");
        }
        pace.count();
        assert!(pace.is_due(&under_way));
        // What was long ago does not count.
        pace.begin();
        under_way.note(1, &pace);
        pace.begin();
        under_way.note(1, &pace);
        (0..MIN_COMMANDS).for_each(|_| pace.count());
        assert!(pace.is_due(&under_way));
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
        let mut pace = Pace { commands: 16, batches: 0 };
        let under_way = under_way(32, &pace);
        assert!(pace.is_due(&under_way));
        pace.begin();
        assert!(!pace.is_due(&under_way));
    }
}
