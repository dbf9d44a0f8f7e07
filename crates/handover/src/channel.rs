//! The way between a server and its successor: messages and descriptors over a pair of Unix sockets.
//!
//! | step | predecessor | successor |
//! |---|---|---|
//! | 1 | starts the successor | reads its configuration; says [`Ready`](Message::Ready) or [`Refused`](Message::Refused) |
//! | 2 | comes to a standstill; sends [`State`](Message::State) with descriptors | opens everything; says [`Taken`](Message::Taken) or [`Refused`](Message::Refused) |
//! | 3 | ends when it reads [`Taken`](Message::Taken) | goes on from the moment at which it was written |
//!
//! The word *taken* is one byte in a socket, and the kernel delivers it or not. A predecessor that does not want to
//! wait any longer [closes its way in](Channel::refuse_more): then it finds the byte, or the successor's write fails.
//! So one of the two owns the sessions, and never both.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Descriptors that one system call carries: Linux takes 253.
const DESCRIPTORS_PER_CALL: usize = 250;

/// The most descriptors of a state: more than a server may have connections, listeners and disks.
pub const MAX_DESCRIPTORS: usize = 1 << 17;

/// The longest state, in bytes.
pub const MAX_STATE_BYTES: usize = 1 << 30;

/// The longest reason of a refusal, in bytes.
pub const MAX_REASON_BYTES: usize = 4096;

/// Bytes before the content of a message: its kind, the length of its content, the number of its descriptors.
const HEADER_BYTES: usize = 1 + 4 + 4;

const READY: u8 = b'R';
const STATE: u8 = b'S';
const TAKEN: u8 = b'T';
const REFUSED: u8 = b'N';

/// A message.
#[derive(Debug)]
pub enum Message {
    /// The successor can take the state.
    Ready,
    /// The state, and the descriptors that it names by their places.
    State {
        /// The encoded [`Handover`](crate::Handover).
        bytes: Vec<u8>,
        /// The descriptors.
        descriptors: Vec<OwnedFd>,
    },
    /// The successor owns the sessions from now on.
    Taken,
    /// The successor cannot go on with the sessions, for this reason.
    Refused(String),
}

/// Why the channel gave no message.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side has ended.
    #[error("the other process has ended")]
    Ended,
    /// The other side has said nothing in time.
    #[error("the other process has not answered in time")]
    Late,
    /// Bytes that are no message.
    #[error("the other process says what is no message of a handover: {0}")]
    Malformed(&'static str),
    /// The system failed.
    #[error("the way to the other process failed: {0}")]
    System(#[source] io::Error),
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Ended,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Late,
            _ => Self::System(error),
        }
    }
}

impl From<rustix::io::Errno> for ChannelError {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// One end of the way.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl From<UnixStream> for Channel {
    fn from(stream: UnixStream) -> Self {
        Self(stream)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Channel {
    /// A channel, by its two ends.
    ///
    /// # Errors
    ///
    /// When the system has no socket.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self(one), Self(other)))
    }

    /// How long to wait for the other side in each call; `None`: without an end.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|time| time.max(Duration::from_millis(1)));
        self.0.set_read_timeout(timeout)?;
        self.0.set_write_timeout(timeout)
    }

    /// Says that the successor is ready.
    ///
    /// # Errors
    ///
    /// [`ChannelError`].
    pub fn send_ready(&self) -> Result<(), ChannelError> {
        self.send(READY, &[], &[])
    }

    /// Sends the state. The descriptors stay open here, too.
    ///
    /// # Errors
    ///
    /// [`ChannelError`].
    pub fn send_state(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        if bytes.len() > MAX_STATE_BYTES || descriptors.len() > MAX_DESCRIPTORS {
            return Err(ChannelError::Malformed("a state beyond the limits"));
        }
        self.send(STATE, bytes, descriptors)
    }

    /// Takes the sessions: from here on, with `Ok`, they belong to the caller.
    ///
    /// # Errors
    ///
    /// [`ChannelError`]; then they belong to the predecessor.
    pub fn send_taken(&self) -> Result<(), ChannelError> {
        // One byte, so that it is there as a whole or not at all.
        (&self.0).write_all(&[TAKEN]).map_err(ChannelError::from)
    }

    /// Says why the successor cannot go on with the sessions.
    ///
    /// # Errors
    ///
    /// [`ChannelError`].
    pub fn send_refused(&self, reason: &str) -> Result<(), ChannelError> {
        let mut end = reason.len().min(MAX_REASON_BYTES);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        self.send(REFUSED, &reason.as_bytes()[..end], &[])
    }

    /// Takes no more messages: the successor can say *taken* no more. What it has said before can still be
    /// [received](Self::receive).
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn refuse_more(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Read)
    }

    /// Waits for a message.
    ///
    /// # Errors
    ///
    /// [`ChannelError`].
    pub fn receive(&self) -> Result<Message, ChannelError> {
        let mut kind = [0];
        (&self.0).read_exact(&mut kind)?;
        if kind == [TAKEN] {
            return Ok(Message::Taken);
        }
        let mut header = [0; HEADER_BYTES - 1];
        (&self.0).read_exact(&mut header)?;
        let [len, descriptors] = [&header[..4], &header[4..]].map(|field| {
            usize::try_from(u32::from_be_bytes([field[0], field[1], field[2], field[3]])).unwrap_or(usize::MAX)
        });
        let most = match kind[0] {
            STATE => (MAX_STATE_BYTES, MAX_DESCRIPTORS),
            REFUSED => (MAX_REASON_BYTES, 0),
            READY => (0, 0),
            _ => return Err(ChannelError::Malformed("an unknown kind")),
        };
        if len > most.0 || descriptors > most.1 {
            return Err(ChannelError::Malformed("a length beyond the limits"));
        }
        let descriptors = self.receive_descriptors(descriptors)?;
        let mut bytes = Vec::new();
        (&self.0).take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() < len {
            return Err(ChannelError::Ended);
        }
        Ok(match kind[0] {
            STATE => Message::State { bytes, descriptors },
            REFUSED => Message::Refused(String::from_utf8_lossy(&bytes).into_owned()),
            _ => Message::Ready,
        })
    }

    fn send(&self, kind: u8, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let mut header = vec![kind];
        for len in [bytes.len(), descriptors.len()] {
            let len = u32::try_from(len).map_err(|_| ChannelError::Malformed("a length beyond the limits"))?;
            header.extend_from_slice(&len.to_be_bytes());
        }
        if descriptors.is_empty() {
            // At once, so that it is there as a whole or not at all.
            header.extend_from_slice(bytes);
            return Ok((&self.0).write_all(&header)?);
        }
        (&self.0).write_all(&header)?;
        for some in descriptors.chunks(DESCRIPTORS_PER_CALL) {
            self.send_descriptors(some)?;
        }
        Ok((&self.0).write_all(bytes)?)
    }

    /// Sends some descriptors with one byte of content: Linux carries none without.
    fn send_descriptors(&self, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_CALL))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(fits, "the space is that of the most descriptors");
        sendmsg(&self.0, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn receive_descriptors(&self, count: usize) -> Result<Vec<OwnedFd>, ChannelError> {
        let mut descriptors = Vec::new();
        while descriptors.len() < count {
            let before = descriptors.len();
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_CALL))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut content = [0];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut content)], &mut ancillary, flags)?;
            if received.bytes == 0 {
                return Err(ChannelError::Ended);
            }
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = message {
                    descriptors.extend(some);
                }
            }
            // The system leaves out those for which this process has no room.
            if descriptors.len() == before || descriptors.len() > count {
                return Err(ChannelError::Malformed("other descriptors than announced; see the limit of open files"));
            }
        }
        Ok(descriptors)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Seek;
    use std::os::unix::fs::MetadataExt;
    use std::thread;

    use super::*;

    #[test]
    fn a_state_comes_with_its_descriptors_in_their_order() {
        let (old, new) = Channel::pair().unwrap();
        let files: Vec<File> = (0..600).map(|_| File::open("/dev/null").unwrap()).collect();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        descriptors.push(reader.as_fd());
        let bytes = vec![7; 3 << 20];
        let received = thread::scope(|scope| {
            let received = scope.spawn(|| new.receive().unwrap());
            old.send_state(&bytes, &descriptors).unwrap();
            received.join().unwrap()
        });
        let Message::State { bytes: there, descriptors } = received else { panic!("{received:?}") };
        assert!(there == bytes && descriptors.len() == 601);
        drop(writer);
        let kinds: Vec<_> = descriptors.into_iter().map(|fd| File::from(fd).metadata().unwrap().mode() >> 12).collect();
        assert!(kinds[..600].iter().all(|kind| *kind == 2), "character devices");
        assert_eq!(kinds[600], 1, "the pipe");
    }

    #[test]
    fn the_file_itself_is_handed_over() {
        let (old, new) = Channel::pair().unwrap();
        let mut file = tempfile();
        file.write_all(b"0123456789").unwrap();
        old.send_state(b"", &[file.as_fd()]).unwrap();
        let Message::State { mut descriptors, .. } = new.receive().unwrap() else { panic!("no state") };
        let mut same = File::from(descriptors.pop().unwrap());
        assert_eq!(same.stream_position().unwrap(), 10, "it has the position of the other");
    }

    fn tempfile() -> File {
        let name = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        File::from(name)
    }

    #[test]
    fn all_that_both_can_say_arrives() {
        let (old, new) = Channel::pair().unwrap();
        new.send_ready().unwrap();
        assert!(matches!(old.receive().unwrap(), Message::Ready));
        new.send_refused(&"é".repeat(MAX_REASON_BYTES)).unwrap();
        let Message::Refused(reason) = old.receive().unwrap() else { panic!("no reason") };
        assert_eq!(reason.len(), MAX_REASON_BYTES);
        new.send_taken().unwrap();
        assert!(matches!(old.receive().unwrap(), Message::Taken));
    }

    #[test]
    fn a_word_that_comes_too_late_does_not_leave() {
        let (old, new) = Channel::pair().unwrap();
        old.refuse_more().unwrap();
        assert!(matches!(new.send_taken(), Err(ChannelError::Ended)));
        assert!(matches!(old.receive(), Err(ChannelError::Ended)));
    }

    #[test]
    fn a_word_that_came_in_time_is_found() {
        let (old, new) = Channel::pair().unwrap();
        new.send_taken().unwrap();
        drop(new);
        old.refuse_more().unwrap();
        assert!(matches!(old.receive(), Ok(Message::Taken)));
        assert!(matches!(old.receive(), Err(ChannelError::Ended)));
    }

    #[test]
    fn one_that_dies_or_is_slow_is_told_from_one_that_speaks() {
        let (old, new) = Channel::pair().unwrap();
        old.set_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!(matches!(old.receive(), Err(ChannelError::Late)));
        (&new.0).write_all(&[STATE, 0, 0]).unwrap();
        drop(new);
        assert!(matches!(old.receive(), Err(ChannelError::Ended)));
    }

    #[test]
    fn what_no_server_says_is_refused() {
        let huge = u32::MAX.to_be_bytes();
        let malformed = [
            [&[b'?'][..], &[0; 8]].concat(),
            [&[STATE][..], &huge, &[0; 4]].concat(),
            [&[STATE][..], &[0; 4], &huge].concat(),
            [&[READY][..], &[0, 0, 0, 1, 0, 0, 0, 0]].concat(),
            [&[STATE][..], &[0, 0, 0, 0, 0, 0, 0, 1], &[0]].concat(),
        ];
        for bytes in malformed {
            let (old, new) = Channel::pair().unwrap();
            (&new.0).write_all(&bytes).unwrap();
            assert!(matches!(old.receive(), Err(ChannelError::Malformed(_))), "{bytes:?}");
        }
    }
}
