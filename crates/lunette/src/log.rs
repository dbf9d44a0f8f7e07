//! The log: lines on standard error, of which peers cannot cause more than a bounded number in each second.

use std::fmt;
use std::io::{self, IsTerminal, Stderr, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lunette_pdu::text::printable;
use tracing::field::Field;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::fmt::writer::OptionalWriter;
use tracing_subscriber::fmt::{FormatFields, MakeWriter};

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
        .fmt_fields(fields())
        .with_ansi(io::stderr().is_terminal())
        .with_writer(LimitedStderr(Mutex::new(Allowance::new(Instant::now()))))
        .init();
}

/// Writes fields so that words of a peer in them (names, values of keys) cannot steer the terminal that shows the log.
fn fields() -> impl for<'writer> FormatFields<'writer> {
    let field = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = format!("{value:?}");
        let value = printable(&value);
        if field.name() == "message" { write!(writer, "{value}") } else { write!(writer, "{}={value}", field.name()) }
    };
    format::debug_fn(field).delimited(" ")
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
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn words_of_a_peer_in_the_log_do_not_steer_the_terminal() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .fmt_fields(fields())
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.finish(), || {
            let (initiator, reason) = ("iqn.a\u{202e}b", "key \u{1b}[2J\u{2066}\n");
            tracing::warn!(initiator, %reason, count = 3, "ended {initiator}");
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let line =
            "ended iqn.a\u{fffd}b initiator=\"iqn.a\\u{202e}b\" reason=key \u{fffd}[2J\u{fffd}\u{fffd} count=3\n";
        assert!(log.contains("WARN") && log.ends_with(line), "{log:?}");
    }

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
