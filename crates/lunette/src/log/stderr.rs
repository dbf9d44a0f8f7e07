//! Standard error as the log needs it: a line is written, or left out, and nothing waits for whoever reads it.
//!
//! The log may lead into a pipe that is full because no process reads it, into a full disk, or nowhere. None of that
//! may hold an event loop up, or end it.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a reader may take before lines are left out. They are left out without waiting until there is room again.
const PATIENCE: Duration = Duration::from_millis(100);

/// Bytes that a pipe takes at once when it takes any (PIPE_BUF, pipe(7)).
const PIECE_BYTES: usize = 4096;

/// Lines that were left out since there was room.
static LEFT_OUT: Mutex<u64> = Mutex::new(0);

/// Standard error. Its writes never fail, and wait for a moment at most.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut left_out = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
        write_line(&mut io::stderr(), has_room, line, &mut left_out);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line while there is room. What cannot be written cannot be reported anywhere either.
fn write_line(to: &mut impl Write, has_room: impl Fn(Duration) -> bool, line: &[u8], left_out: &mut u64) {
    let patience = if *left_out == 0 { PATIENCE } else { Duration::ZERO };
    if !has_room(patience) {
        *left_out += 1;
        return;
    }
    if *left_out > 0 {
        let _ = writeln!(to, "{left_out} lines were left out: the log was not read");
        *left_out = 0;
    }
    for piece in line.chunks(PIECE_BYTES) {
        if !has_room(PATIENCE) || to.write_all(piece).is_err() {
            return;
        }
    }
}

/// Whether standard error takes a piece by now, or within this time.
fn has_room(within: Duration) -> bool {
    let stderr = io::stderr();
    let mut waited = [PollFd::new(&stderr, PollFlags::OUT)];
    let within = Timespec::try_from(within).ok();
    // What cannot be polled is no pipe.
    poll(&mut waited, within.as_ref()).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_left_out_while_the_log_is_not_read_and_counted() {
        let (mut to, mut left_out) = (Vec::new(), 0);
        let full = |within: Duration| {
            assert!(within <= PATIENCE);
            false
        };
        write_line(&mut to, full, b"one\n", &mut left_out);
        let at_once = |within: Duration| {
            assert_eq!(within, Duration::ZERO, "the first line has waited for all");
            false
        };
        write_line(&mut to, at_once, b"two\n", &mut left_out);
        assert_eq!((to.as_slice(), left_out), (&[][..], 2));
        write_line(&mut to, |_| true, b"three\n", &mut left_out);
        assert_eq!(String::from_utf8(to).unwrap(), "2 lines were left out: the log was not read\nthree\n");
        assert_eq!(left_out, 0);
    }

    #[test]
    fn an_error_of_standard_error_is_no_failure() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let mut left_out = 0;
        write_line(&mut Full, |_| true, b"line\n", &mut left_out);
        assert_eq!(left_out, 0);
    }
}
