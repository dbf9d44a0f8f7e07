//! Bounds on what one turn of the event loop does: a counter, no clock.
//!
//! A turn settles in rounds, because what one connection does may let others go on. A round that moves something (a
//! completion of a store, an event of a connection) is work, and after many of them the turn yields to the other
//! sockets. Rounds that move nothing and still ask for another one are a fault of this program that some peer has
//! found.

/// Rounds of one turn. The rest is for the next turn, after all sockets had theirs. A command that is answered at once
/// takes two.
pub(super) const MAX_ROUNDS: u32 = 256;

/// Rounds in a row that may move nothing. Honest work was never seen to need more than a handful.
const MAX_IDLE_ROUNDS: u32 = 64;

/// Events that one connection may bring in one call. All PDUs of the longest receive (256 KiB) are a tenth of it.
pub(super) const MAX_EVENTS: u32 = 1 << 16;

/// The consequence of a round that has not settled everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Another round is allowed.
    GoOn,
    /// The next turn.
    Yield,
    /// Nothing moves, and it would go on for ever.
    Runaway,
}

/// The rounds of one turn.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    rounds: u32,
    idle: u32,
}

impl Watchdog {
    /// Whether many rounds have moved nothing, so that the connections they looked at are worth remembering.
    pub(super) fn is_suspicious(&self) -> bool {
        self.idle >= MAX_IDLE_ROUNDS / 2
    }

    /// Counts a round, which `moved` something or nothing.
    pub(super) fn count_round(&mut self, moved: bool) -> Verdict {
        self.rounds += 1;
        self.idle = if moved { 0 } else { self.idle + 1 };
        if self.idle >= MAX_IDLE_ROUNDS {
            Verdict::Runaway
        } else if self.rounds >= MAX_ROUNDS {
            Verdict::Yield
        } else {
            Verdict::GoOn
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_yields_after_many_rounds_and_idle_rounds_run_away() {
        let mut watchdog = Watchdog::default();
        for _ in 1..MAX_ROUNDS {
            assert_eq!(watchdog.count_round(true), Verdict::GoOn);
        }
        assert_eq!(watchdog.count_round(true), Verdict::Yield);

        let mut watchdog = Watchdog::default();
        for moved in [true, false] {
            watchdog.count_round(moved);
        }
        for _ in 2..MAX_IDLE_ROUNDS {
            assert_eq!(watchdog.count_round(false), Verdict::GoOn);
        }
        assert_eq!(watchdog.count_round(false), Verdict::Runaway);
    }
}
