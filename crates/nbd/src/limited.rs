//! Time limits for a whole exchange with a peer.

use std::io::{self, IoSlice, Read, Write};
use std::time::{Duration, Instant};

/// A stream with a time limit for all that is read or written from [`start`](Self::start) on, however many calls it
/// takes: with a limit for each call, a peer could continue for ever with one byte at a time.
///
/// The inner stream must return from time to time, with `WouldBlock` or `TimedOut`, as a socket with a timeout does.
pub(crate) struct Limited<S> {
    stream: S,
    now: fn() -> Instant,
    until: Option<Instant>,
}

impl<S> Limited<S> {
    /// Wraps a stream, without a limit at first.
    pub(crate) fn new(stream: S) -> Self {
        Self::with_clock(stream, Instant::now)
    }

    pub(crate) fn with_clock(stream: S, now: fn() -> Instant) -> Self {
        Self { stream, now, until: None }
    }

    /// Makes calls fail with `TimedOut` once `limit` is over, counted from now.
    pub(crate) fn start(&mut self, limit: Duration) {
        self.until = Some((self.now)() + limit);
    }

    /// Counts the limit from now, if there is one.
    pub(crate) fn restart(&mut self, limit: Duration) {
        if self.until.is_some() {
            self.start(limit);
        }
    }

    /// Lifts the limit: calls wait as long as the stream does, and return when its own timeout passes.
    pub(crate) fn stop(&mut self) {
        self.until = None;
    }

    /// Another stream around this one, with the same limit.
    pub(crate) fn map<T>(self, wrap: impl FnOnce(S) -> T) -> Limited<T> {
        let Self { stream, now, until } = self;
        Limited { stream: wrap(stream), now, until }
    }

    /// The stream alone.
    pub(crate) fn into_inner(self) -> S {
        self.stream
    }

    /// The stream without its limit, for calls that do not wait.
    pub(crate) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    fn within_limit(&mut self, mut call: impl FnMut(&mut S) -> io::Result<usize>) -> io::Result<usize> {
        let Some(until) = self.until else { return call(&mut self.stream) };
        loop {
            if (self.now)() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes too long"));
            }
            match call(&mut self.stream) {
                Err(error) if looked_up(&error) => {}
                outcome => return outcome,
            }
        }
    }
}

/// Whether a call ended because the stream's own timeout passed.
pub(crate) fn looked_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl<S: Read> Read for Limited<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.within_limit(|stream| stream.read(into))
    }
}

impl<S: Write> Write for Limited<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.within_limit(|stream| stream.write(bytes))
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.within_limit(|stream| stream.write_vectored(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A clock that stands still until a test moves it, and streams that move it.
#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use super::*;

    thread_local! {
        static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(crate) fn now() -> Instant {
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now) + PASSED.get()
    }

    pub(crate) fn pass(time: Duration) {
        PASSED.set(PASSED.get() + time);
    }

    /// A stream that gives one byte every two seconds, then nothing, and times out as often.
    pub(crate) struct Slow<'a>(pub(crate) &'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            pass(Duration::from_secs(2));
            let Some((first, rest)) = self.0.split_first() else { return Err(io::ErrorKind::WouldBlock.into()) };
            into[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    /// A stream that takes nothing, and times out every two seconds.
    pub(crate) struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            pass(Duration::from_secs(2));
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
