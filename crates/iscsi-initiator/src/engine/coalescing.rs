//! Answer coalescing: the initiator waits for several answers before it looks at any.
//!
//! A target that answers one command at a time wakes the initiator for each answer and gets one more command each time,
//! so most of the CPU time goes into wake-ups and system calls. Such a target has the rest of the commands to work on,
//! so a later look costs no throughput: the initiator waits until half of the commands are answered. Network cards do
//! the same under the name *interrupt coalescing*.
//!
//! A target that works on all commands at once gets the next ones too late that way, and only the clock tells one kind
//! from the other. So answers are timed in stretches, held or free. Most stretches are of the kind that was faster
//! lately (held, if there is no difference), and one of [`PERIOD`] is of the other kind.
//!
//! Only a stream of answers to many commands, each of one PDU, is ever held. Anything else that follows a hold waits
//! for [`MAX_HOLD`] at most.

#[cfg(test)]
mod tests;

use std::time::Duration;

use lunette_session::Time;

/// The longest hold. epoll counts in milliseconds.
pub(super) const MAX_HOLD: Duration = Duration::from_millis(1);

/// The hold that is aimed at: well below [`MAX_HOLD`], which is for answers that do not come.
const USUAL_HOLD: Duration = Duration::from_micros(400);

/// With fewer commands under way nothing is held.
const MIN_COMMANDS: usize = 16;

/// Fewer answers are not worth the wait.
const MIN_ANSWERS: u64 = 4;

/// The most bytes to wait for: no more than the system has room for from the beginning (`net.ipv4.tcp_rmem`). Beyond
/// that it lowers the window of the connection to what is asked for.
const MAX_HELD_BYTES: u64 = 64 << 10;

/// The last PDU may have come in part.
const MAX_OPEN_PDUS: u64 = 1;

/// Answers that are timed together: many times what is under way, so that it does not matter how many had been asked
/// for before.
const STRETCH_ANSWERS: u32 = 256;

/// One of this many stretches is of the slower kind.
const PERIOD: u32 = 32;

/// The loss that is taken for noise: one part in this many. Where holding costs answers, it costs more.
const TOLERANCE: u32 = 32;

/// Holds of one stretch that may end without their answers.
const MAX_LATE_HOLDS: u32 = 2;

/// The arrivals of a batch or of a stretch.
#[derive(Default)]
struct Arrivals {
    answers: u32,
    bytes: u64,
    batches: u32,
    late_holds: u32,
}

/// The rule's state for a session with one connection. See the [module](self).
#[derive(Default)]
pub(super) struct Coalescing {
    /// PDUs that have begun and are no answers, as far as is known.
    open_pdus: u64,
    /// In this batch.
    batch: Arrivals,
    /// In this stretch, and since when.
    stretch: Arrivals,
    began: Time,
    /// Stretches that have ended.
    stretches: u32,
    /// The present stretch, when it is held: bytes of an answer, and the most answers to wait for.
    held: Option<(u64, u64)>,
    /// From one answer to the next in free stretches and in held ones, averaged; zero before the first.
    intervals: [Duration; 2],
}

impl Coalescing {
    /// Bytes have come.
    pub(super) fn received_bytes(&mut self, len: usize) {
        self.batch.bytes += len as u64;
    }

    /// PDUs that have begun in them.
    pub(super) fn received_pdus(&mut self, count: u64) {
        self.open_pdus += count;
    }

    /// Commands have been answered.
    pub(super) fn completed(&mut self, answers: u32) {
        self.batch.answers += answers;
    }

    /// A hold has ended, and there were fewer answers.
    pub(super) fn hold_ended(&mut self) {
        self.stretch.late_holds += 1;
    }

    /// All that came at `now` is dealt with, and `commands` are under way. Gives the bytes that should lie ready before
    /// the next look, if it should wait for several answers.
    pub(super) fn batch_end(&mut self, commands: usize, now: Time) -> Option<u32> {
        let batch = std::mem::take(&mut self.batch);
        self.stretch.answers += batch.answers;
        self.stretch.bytes += batch.bytes;
        self.stretch.batches += 1;
        let open = self.open_pdus.checked_sub(batch.answers.into()).filter(|open| *open <= MAX_OPEN_PDUS);
        self.open_pdus = open.unwrap_or_default();
        if open.is_none() || commands < MIN_COMMANDS {
            (self.stretch, self.began, self.held) = (Arrivals::default(), now, None);
        } else if self.stretch.answers >= STRETCH_ANSWERS {
            self.end_stretch(now);
        }
        let (answer_bytes, max_answers) = self.held.filter(|_| self.stretch.late_holds <= MAX_LATE_HOLDS)?;
        // The target keeps at least as many commands to work on.
        Some((max_answers.min(commands as u64 / 2) * answer_bytes) as u32)
    }

    fn end_stretch(&mut self, now: Time) {
        let Arrivals { answers, bytes, batches, .. } = std::mem::take(&mut self.stretch);
        let interval = ((now - self.began) / answers).max(Duration::from_nanos(1));
        self.began = now;
        self.stretches = self.stretches.wrapping_add(1);
        let was_held = self.held.is_some();
        let average = &mut self.intervals[usize::from(was_held)];
        *average = if average.is_zero() { interval } else { (*average * 3 + interval) / 4 };
        let [free, held] = self.intervals;
        let holds = (held <= free + free / TOLERANCE) != self.stretches.is_multiple_of(PERIOD);
        // Held answers do not tell; free ones come in groups by themselves when there is one batch for more than two.
        let one_by_one = was_held || batches >= answers / 2;
        let answer_bytes = (bytes / u64::from(answers)).max(1);
        let in_time = (USUAL_HOLD.as_nanos() / interval.as_nanos()) as u64;
        let max_answers = in_time.min(MAX_HELD_BYTES / answer_bytes);
        self.held = (holds && one_by_one && max_answers >= MIN_ANSWERS).then_some((answer_bytes, max_answers));
    }
}
