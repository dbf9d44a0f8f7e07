//! A stream with a time limit for a whole exchange, whatever number of calls it takes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A socket whose reads and writes fail once a time is over.
#[derive(Debug)]
pub(crate) struct Limited {
    stream: TcpStream,
    until: Instant,
}

impl Limited {
    /// Wraps a socket; calls fail when `limit` from now is over.
    pub(crate) fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, until: Instant::now() + limit }
    }

    /// Starts another limit from now.
    pub(crate) fn start(&mut self, limit: Duration) {
        self.until = Instant::now() + limit;
    }

    /// Sets the time that is left as the timeout of the next call.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(io::Error::new(io::ErrorKind::TimedOut, "the other side takes too long")),
        }
    }
}

/// A timeout of the socket is reported as `WouldBlock` on Linux.
fn named(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return io::Error::new(io::ErrorKind::TimedOut, "the other side takes too long");
    }
    error
}

impl Read for Limited {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into).map_err(named)
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
