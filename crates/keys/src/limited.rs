//! A stream with a time limit for a whole exchange, whatever number of calls it takes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The most bytes that are discarded at the end of a connection.
const MAX_DISCARDED_BYTES: u64 = 64 << 10;

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

    /// Sends nothing more, and discards what still comes for at most `limit`. A socket that is closed while bytes are
    /// unread is reset, and then the other side can lose what was sent last.
    pub(crate) fn finish(&mut self, limit: Duration) {
        self.start(limit);
        // The socket may be closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = io::copy(&mut self.take(MAX_DISCARDED_BYTES), &mut io::sink());
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn calls_fail_once_the_time_is_over_and_work_again_after_a_new_start() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = Limited::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), Duration::ZERO);
        let (mut other, _) = listener.accept().unwrap();
        other.write_all(b"a").unwrap();
        assert_eq!(one.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(one.write(b"b").unwrap_err().kind(), io::ErrorKind::TimedOut);
        one.start(Duration::from_mins(1));
        assert_eq!(one.read(&mut [0]).unwrap(), 1);
        assert_eq!(one.write(b"b").unwrap(), 1);
        one.start(Duration::from_millis(1));
        assert_eq!(one.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut, "a silent peer");
    }
}
