//! The log: lines on standard error, of which peers cannot cause more than a bounded number in each second.

use std::io::{self, IsTerminal, Stderr, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::OptionalWriter;

/// Lines about peers that are written at once, at most: a thousand initiators may log in together.
const BURST_LINES: u32 = 1000;

/// Lines about peers that are written in each second after such a burst.
const LINES_PER_SECOND: u32 = 20;

/// Logs to standard error; `RUST_LOG` chooses what (default: `info`).
pub(crate) fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(LimitedStderr(Mutex::new(Allowance::new(Instant::now()))))
        .init();
}

/// Standard error, which leaves out lines about peers when there are too many of them.
struct LimitedStderr(Mutex<Allowance>);

impl LimitedStderr {
    fn line(&self) -> OptionalWriter<Stderr> {
        let left_out = self.0.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        let Some(left_out) = left_out else { return OptionalWriter::none() };
        let mut stderr = io::stderr();
        if left_out > 0 {
            // There is no other place to tell of an error.
            let _ = writeln!(stderr, "{left_out} lines were left out: more than {LINES_PER_SECOND} a second came");
        }
        OptionalWriter::some(stderr)
    }
}

impl<'a> MakeWriter<'a> for LimitedStderr {
    type Writer = OptionalWriter<Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        self.line()
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> Self::Writer {
        if may_be_left_out(line) { self.line() } else { OptionalWriter::some(io::stderr()) }
    }
}

/// Whether a peer may cause such lines. What this command itself says answers its user, an error needs its user, and
/// `RUST_LOG` asks for lines below `info`.
fn may_be_left_out(line: &Metadata<'_>) -> bool {
    let is_own = line.target() == "lunette" || line.target().starts_with("lunette::");
    !is_own && matches!(*line.level(), Level::WARN | Level::INFO)
}

/// How many lines may be written: a token bucket.
struct Allowance {
    /// When the bucket is full again.
    full_at: Instant,
    left_out: u64,
}

impl Allowance {
    const REFILL: Duration = Duration::from_nanos(1_000_000_000 / LINES_PER_SECOND as u64);

    fn new(now: Instant) -> Self {
        Self { full_at: now, left_out: 0 }
    }

    /// Takes a line. Gives how many were left out before it; `None`: this one is left out, too.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let full_at = self.full_at.max(now) + Self::REFILL;
        if full_at - now > Self::REFILL * BURST_LINES {
            self.left_out += 1;
            return None;
        }
        self.full_at = full_at;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(allowance: &mut Allowance, now: Instant, lines: u32) -> u32 {
        (0..lines).map(|_| u32::from(allowance.take(now).is_some())).sum()
    }

    #[test]
    fn a_burst_is_written_and_then_so_many_lines_a_second() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        assert_eq!(written(&mut allowance, start, 10 * BURST_LINES), BURST_LINES);
        for second in 1..10 {
            let now = start + Duration::from_secs(second);
            assert_eq!(written(&mut allowance, now, BURST_LINES), LINES_PER_SECOND);
        }
        let later = start + Duration::from_hours(1);
        assert_eq!(written(&mut allowance, later, 10 * BURST_LINES), BURST_LINES);
    }

    #[test]
    fn the_next_line_tells_how_many_were_left_out() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        written(&mut allowance, start, BURST_LINES + 7);
        let later = start + Duration::from_secs(1);
        assert_eq!((allowance.take(later), allowance.take(later)), (Some(7), Some(0)));
    }
}
