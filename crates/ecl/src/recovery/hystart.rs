//! When slow start ends before the first loss: HyStart++ (RFC 9406).

use std::time::Duration;

/// Samples of a round before it is judged (N_RTT_SAMPLE).
const SAMPLES: u32 = 8;

/// By how much a round must be slower than the one before: an eighth, within these bounds (MIN_RTT_THRESH,
/// MAX_RTT_THRESH).
const RISE_DIVISOR: u32 = 8;
const MIN_RISE: Duration = Duration::from_millis(4);
const MAX_RISE: Duration = Duration::from_millis(16);

/// Rounds of conservative slow start before congestion avoidance begins (CSS_ROUNDS).
const CONSERVATIVE_ROUNDS: u32 = 5;

/// How much slower conservative slow start is (CSS_GROWTH_DIVISOR).
const CONSERVATIVE_DIVISOR: u64 = 4;

/// Watches whether round trips become longer in slow start, which they do when a queue fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HyStart {
    /// The round ends when this number is acknowledged.
    round_end: u64,
    last_round_min: Option<Duration>,
    round_min: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Conservative {
    baseline: Duration,
    rounds: u32,
}

impl HyStart {
    /// Takes a sample. `acknowledged` is the largest number acknowledged and `next` the next one to be sent. The answer
    /// is whether slow start is over.
    pub fn on_sample(&mut self, rtt: Duration, acknowledged: u64, next: u64) -> bool {
        if acknowledged >= self.round_end {
            self.round_end = next;
            self.last_round_min = self.round_min.take();
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds >= CONSERVATIVE_ROUNDS {
                    return true;
                }
            }
        }
        let round_min = self.round_min.map_or(rtt, |min| min.min(rtt));
        self.round_min = Some(round_min);
        self.samples = self.samples.saturating_add(1);
        if self.samples < SAMPLES {
            return false;
        }
        match (self.conservative, self.last_round_min) {
            // The round trip is short again: there was no queue.
            (Some(Conservative { baseline, .. }), _) if round_min < baseline => self.conservative = None,
            (None, Some(last)) if round_min >= last + (last / RISE_DIVISOR).clamp(MIN_RISE, MAX_RISE) => {
                self.conservative = Some(Conservative { baseline: round_min, rounds: 0 });
            }
            _ => {}
        }
        false
    }

    /// By how much the window grows for `bytes` acknowledged.
    pub const fn growth(&self, bytes: u64) -> u64 {
        if self.conservative.is_some() { bytes / CONSERVATIVE_DIVISOR } else { bytes }
    }
}

#[cfg(test)]
mod tests;
