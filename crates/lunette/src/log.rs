//! The log: lines on standard error. Peers can cause only a bounded number of them in each second.

mod journal;
mod stderr;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lunette_initiator::redacted;
use lunette_pdu::text::printable;
use tracing::field::Field;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

pub(crate) use stderr::Stderr;

/// The most lines about peers that are written in a burst: a thousand initiators may log in together.
const BURST_LINES: u32 = 1000;

/// The rate of lines about peers after such a burst.
const LINES_PER_SECOND: u32 = 20;

/// Logs to standard error; `RUST_LOG` chooses what (default: `info`). Where standard error is the journal of systemd,
/// it gets fields instead of lines.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::registry().with(filter);
    let limit = Limit(Mutex::new(Allowance::new(Instant::now())));
    match journal::journal() {
        Some(journal) => log.with(journal.with_filter(limit)).init(),
        None => log.with(lines().with_filter(limit)).init(),
    }
}

fn lines<S: Subscriber + for<'span> LookupSpan<'span>>() -> impl Layer<S> {
    tracing_subscriber::fmt::layer()
        .with_target(false)
        .fmt_fields(fields())
        .with_ansi(io::stderr().is_terminal())
        .with_writer(|| Stderr)
}

/// Writes fields so that text from a peer in them (names, values of keys) cannot control the terminal that shows the
/// log, and without passwords of URLs.
fn fields() -> impl for<'writer> FormatFields<'writer> {
    let field = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = format!("{value:?}");
        let value = redacted(&value);
        let value = printable(&value);
        if field.name() == "message" { write!(writer, "{value}") } else { write!(writer, "{}={value}", field.name()) }
    };
    format::debug_fn(field).delimited(" ")
}

/// Leaves out events about peers when there are too many.
struct Limit(Mutex<Allowance>);

impl<S> Filter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        if !may_be_left_out(event.metadata()) {
            return true;
        }
        let left_out = self.0.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        if let Some(left_out @ 1..) = left_out {
            // A failure to write cannot be reported anywhere.
            let _ = writeln!(Stderr, "{left_out} lines were left out: more than {LINES_PER_SECOND} a second came");
        }
        left_out.is_some()
    }
}

/// Whether a peer may cause such lines. This command's own lines answer its user, errors need the user's attention, and
/// lines below `info` are there because `RUST_LOG` asks for them.
fn may_be_left_out(line: &Metadata<'_>) -> bool {
    let is_own = line.target() == "lunette" || line.target().starts_with("lunette::");
    !is_own && matches!(*line.level(), Level::WARN | Level::INFO)
}

/// A token bucket of lines.
struct Allowance {
    /// The time at which the bucket is full again.
    full_at: Instant,
    left_out: u64,
}

impl Allowance {
    const REFILL: Duration = Duration::from_nanos(1_000_000_000 / LINES_PER_SECOND as u64);

    fn new(now: Instant) -> Self {
        Self { full_at: now, left_out: 0 }
    }

    /// Takes a line. Returns the number of lines dropped before it, or `None` when this one must be dropped too.
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
    fn text_from_a_peer_in_the_log_does_not_control_the_terminal() {
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

    #[test]
    fn a_flood_about_peers_is_cut_and_own_lines_are_not() {
        let log = Log::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let limit = Limit(Mutex::new(Allowance::new(Instant::now())));
        let subscriber = tracing_subscriber::registry().with(lines.with_filter(limit));
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..2 * BURST_LINES {
                tracing::warn!(target: "lunette_target::core", "from a peer");
                tracing::warn!(target: "lunette::serve", "own");
            }
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let (peers, own) = (log.matches("from a peer").count(), log.matches("own").count());
        assert!((BURST_LINES as usize..2 * BURST_LINES as usize).contains(&peers), "{peers}");
        assert_eq!(own, 2 * BURST_LINES as usize);
    }

    fn written(allowance: &mut Allowance, now: Instant, lines: u32) -> u32 {
        (0..lines).map(|_| u32::from(allowance.take(now).is_some())).sum()
    }

    #[test]
    fn a_burst_is_written_and_then_a_bounded_number_a_second() {
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
    fn the_next_line_reports_how_many_were_left_out() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        written(&mut allowance, start, BURST_LINES + 7);
        let later = start + Duration::from_secs(1);
        assert_eq!((allowance.take(later), allowance.take(later)), (Some(7), Some(0)));
    }
}
