//! Lets several answers come before it looks at them.
//!
//! A target that answers one request at a time wakes us for each answer, and is asked for one more each time: most of the CPU
//! time goes into wake-ups and system calls. While such a target is the limit itself, nobody loses when we look later: it has the
//! rest of our commands to work on. So answers are let come until as many are there as half of what is waited for; network cards
//! call the same *interrupt coalescing*.
//!
//! Whether the target is the limit, only the clock tells. So it is tried: the answers are timed in stretches, with and without. When
//! they come more slowly with, it is given up for a time, which doubles with each trial in vain.
//!
//! What is not a stream of answers to many commands, each of one PDU, is never held up; what follows a hold unexpectedly waits for
//! [`MAX_HOLD`] at most.

#[cfg(test)]
mod tests;

use std::time::Duration;

use lunette_session::Time;

/// How long answers are let come at most. epoll counts in milliseconds.
pub(super) const MAX_HOLD: Duration = Duration::from_millis(1);

/// How long they should be let come: well below [`MAX_HOLD`], which is for answers that do not come. It leaves slow targets
/// alone, of which nobody feels the wake-ups.
const USUAL_HOLD: Duration = Duration::from_micros(400);

/// Fewer commands under way are answered too soon after one another to gain by it, or are somebody's only ones.
const MIN_COMMANDS: usize = 16;

/// Fewer answers are not worth the wait.
const MIN_ANSWERS: u64 = 4;

/// More on average, and the target answers in groups by itself.
const MAX_ANSWERS_PER_BATCH: u32 = 2;

/// The last one may have come in part.
const MAX_OPEN_PDUS: u64 = 1;

/// Bytes that are let come: no more than the system has room for from the beginning (`net.ipv4.tcp_rmem`), for it lowers the window
/// of the connection to what is asked for beyond that.
const MAX_HELD_BYTES: u64 = 64 << 10;

/// Answers that are timed together: many times what is under way, so that it does not matter how many of those that are
/// counted had been asked for before.
const STRETCH_ANSWERS: u32 = 256;

/// Stretches of each kind in a trial. The median of an odd number is one of them.
const TRIALS: usize = 5;

/// The loss that is taken for noise: one part in this many.
const TOLERANCE: u32 = 32;

/// Holds of one stretch that may end without the answers.
const MAX_HOLDS_IN_VAIN: u32 = 2;

/// Stretches between a trial that went well and the next.
const TRUST: u32 = 256;

/// Stretches between a trial that did not and the next, at first. It doubles up to [`MAX_REST`].
const FIRST_REST: u32 = 64;
const MAX_REST: u32 = 4096;

/// What is done in the present stretch.
enum Phase {
    /// Nothing is held, for so many stretches.
    Resting(u32),
    /// Whether it costs answers.
    Trying(Trial),
    /// Answers are let come, for so many stretches.
    Holding(u32),
}

/// Held stretches and free ones by turns.
#[derive(Default)]
struct Trial {
    /// Of one answer, in the held stretches and in the free ones.
    intervals: [[Duration; TRIALS]; 2],
    stretches: usize,
}

impl Trial {
    fn is_held(&self) -> bool {
        self.stretches.is_multiple_of(2)
    }

    /// Takes the next interval. Tells at the end whether the answers came as fast in the held stretches.
    fn add(&mut self, interval: Duration) -> Option<bool> {
        self.intervals[self.stretches % 2][self.stretches / 2] = interval;
        self.stretches += 1;
        if self.stretches < 2 * TRIALS {
            return None;
        }
        let [held, free] = self.intervals.each_mut().map(|intervals| {
            intervals.sort_unstable();
            intervals[TRIALS / 2]
        });
        Some(held <= free + free / TOLERANCE)
    }
}

/// What has come.
#[derive(Default)]
struct Arrivals {
    answers: u32,
    bytes: u64,
}

/// Of one connection. See the [module](self).
pub(super) struct Coalescing {
    phase: Phase,
    /// After the next trial in vain.
    rest: u32,
    /// PDUs that have begun and are no answers, as far as is known.
    open_pdus: u64,
    /// In this batch.
    batch: Arrivals,
    /// In this stretch.
    stretch: Arrivals,
    batches: u32,
    holds_in_vain: u32,
    began: Time,
    /// Of one answer, in the last stretch.
    interval: Duration,
    answer_bytes: u64,
}

impl Default for Coalescing {
    fn default() -> Self {
        Self {
            phase: Phase::Resting(1),
            rest: FIRST_REST,
            open_pdus: 0,
            batch: Arrivals::default(),
            stretch: Arrivals::default(),
            batches: 0,
            holds_in_vain: 0,
            began: Time::default(),
            interval: Duration::ZERO,
            answer_bytes: 0,
        }
    }
}

impl Coalescing {
    /// Bytes have come.
    pub(super) fn received_bytes(&mut self, len: usize) {
        self.batch.bytes += len as u64;
    }

    /// So many PDUs have begun in them.
    pub(super) fn received_pdus(&mut self, count: u64) {
        self.open_pdus += count;
    }

    /// A command has been answered.
    pub(super) fn completed(&mut self) {
        self.batch.answers += 1;
    }

    /// All that came at `now` is dealt with, and so many commands are under way. Gives the bytes that should lie ready before
    /// the next look, if it should wait for several answers.
    pub(super) fn batch_end(&mut self, commands: usize, now: Time) -> Option<u32> {
        let batch = std::mem::take(&mut self.batch);
        self.stretch.answers += batch.answers;
        self.stretch.bytes += batch.bytes;
        self.batches += 1;
        let open = self.open_pdus.checked_sub(batch.answers.into());
        self.open_pdus = open.unwrap_or_default();
        if open.is_none_or(|open| open > MAX_OPEN_PDUS) || commands < MIN_COMMANDS {
            self.open_pdus = 0;
            self.disturbed();
            self.begin_stretch(now);
            return None;
        }
        if self.stretch.answers >= STRETCH_ANSWERS {
            self.end_stretch(now);
        }
        self.low_water(commands)
    }

    /// A hold has ended, and there were fewer answers.
    pub(super) fn hold_ended(&mut self) {
        self.holds_in_vain += 1;
        if self.holds_in_vain > MAX_HOLDS_IN_VAIN {
            self.give_up();
        }
    }

    /// Something else has come, or there is little to do.
    fn disturbed(&mut self) {
        match self.phase {
            Phase::Resting(_) => {}
            // Else there might be one trial after the other, and never a result.
            Phase::Trying(_) => self.give_up(),
            Phase::Holding(_) => self.phase = Phase::Resting(1),
        }
    }

    fn give_up(&mut self) {
        self.phase = Phase::Resting(self.rest);
        self.rest = (self.rest * 2).min(MAX_REST);
    }

    fn begin_stretch(&mut self, now: Time) {
        self.stretch = Arrivals::default();
        (self.batches, self.holds_in_vain, self.began) = (0, 0, now);
    }

    fn end_stretch(&mut self, now: Time) {
        let Arrivals { answers, bytes, .. } = self.stretch;
        self.interval = (now - self.began) / answers;
        self.answer_bytes = bytes / u64::from(answers);
        let one_by_one = self.batches.saturating_mul(MAX_ANSWERS_PER_BATCH) >= answers;
        match &mut self.phase {
            Phase::Resting(stretches) | Phase::Holding(stretches) if *stretches > 1 => *stretches -= 1,
            Phase::Resting(_) if !one_by_one => {}
            Phase::Resting(_) | Phase::Holding(_) => self.phase = Phase::Trying(Trial::default()),
            Phase::Trying(trial) => match trial.add(self.interval) {
                Some(true) => (self.phase, self.rest) = (Phase::Holding(TRUST), FIRST_REST),
                Some(false) => self.give_up(),
                None => {}
            },
        }
        self.begin_stretch(now);
    }

    fn low_water(&self, commands: usize) -> Option<u32> {
        let holds = match &self.phase {
            Phase::Resting(_) => false,
            Phase::Trying(trial) => trial.is_held(),
            Phase::Holding(_) => true,
        };
        if !holds || self.interval.is_zero() || self.answer_bytes == 0 {
            return None;
        }
        // The target keeps at least as many commands to work on.
        let answers = (commands as u64 / 2)
            .min((USUAL_HOLD.as_nanos() / self.interval.as_nanos()) as u64)
            .min(MAX_HELD_BYTES / self.answer_bytes);
        (answers >= MIN_ANSWERS).then(|| (answers * self.answer_bytes) as u32)
    }
}
