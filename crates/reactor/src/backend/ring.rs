//! Completions by io_uring.
//!
//! Listeners accept and connections receive by requests that stay armed (multishot); bytes land in [`Buffers`], which
//! the system takes when it has something to put there. Deferred task running makes both happen inside of our own calls
//! and nowhere else.
//!
//! # Memory that the system may touch
//!
//! No request outlives the memory that it names, though the handler's slices are only borrowed:
//!
//! - **Receives** that stay armed name no memory; the buffers are the ring's own. A slice of the handler
//!   ([`Handler::direct`](crate::Handler::direct)) would have to lie untouched until a completion that may never come,
//!   which a borrow cannot promise. So while a connection has such slices it is polled by the ring, and then received
//!   from by plain calls that do not wait. Beside the copy of 16 KiB and more these calls do not count.
//! - **Sends** name slices of the handler, and are asked not to wait (`MSG_DONTWAIT`): the system completes them, in
//!   part if the socket is full, before the call that hands them in returns. [`Ring::send`] keeps the borrow until it
//!   has seen every completion.
//! - **Requests on files** own their memory; see [`files`].
//!
//! # Time
//!
//! The next timeout goes along with the wait, in the one call that also hands in the batch (`IORING_ENTER_EXT_ARG`). A
//! timer as a request of its own would have to be armed and taken back in nearly every batch.

#![expect(unsafe_code, reason = "requests name memory and descriptors")]

mod sends;

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rustix::io::Errno;

use super::buffers::{BUFFERS, Buffers, Chunk, Memory};
use super::files::{self, Files, UnderWay};
use super::{Event, Poll};
use crate::counters::Counters;
use crate::datagram::{DatagramSocket, Ready};
use crate::files::FileRequest;
use crate::slab::Key;
use crate::sockets::Connection;
use crate::waker::Waker;

/// How long the queues of a ring are; powers of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLens {
    /// Requests handed in at once; more cost another call.
    pub(crate) submissions: u32,
    /// Completions that fit. When they do not, armed requests end and are armed again.
    pub(crate) completions: u32,
}

impl QueueLens {
    pub(super) const USUAL: Self = Self { submissions: 256, completions: 4096 };
}

/// The group of the ring's buffers; there is one.
const BUFFER_GROUP: u16 = 0;

/// The owner of a completion, as it is packed into the 64 bits that the ring keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Ignored,
    Waker,
    Accept(Key),
    Receive(Key),
    Poll(Poll, Key),
    Send(u32),
    File(Key),
    Datagrams(Poll, Key),
}

impl Token {
    const KIND_SHIFT: u32 = 28;
    const INDEX: u32 = (1 << Self::KIND_SHIFT) - 1;

    fn pack(self) -> u64 {
        let (kind, key) = match self {
            Self::Ignored => (0, Key { index: 0, generation: 0 }),
            Self::Waker => (1, Key { index: 0, generation: 0 }),
            Self::Accept(key) => (2, key),
            Self::Receive(key) => (3, key),
            Self::Poll(Poll::In, key) => (4, key),
            Self::Poll(Poll::Out, key) => (5, key),
            Self::Poll(Poll::Failure, key) => (6, key),
            Self::Send(index) => (7, Key { index, generation: 0 }),
            Self::File(key) => (8, key),
            Self::Datagrams(Poll::Out, key) => (10, key),
            Self::Datagrams(_, key) => (9, key),
        };
        // A process has far fewer descriptors than that.
        debug_assert!(key.index <= Self::INDEX);
        u64::from(key.generation) << 32 | u64::from(kind << Self::KIND_SHIFT | key.index)
    }

    fn unpack(bits: u64) -> Self {
        let low = bits as u32;
        let key = Key { index: low & Self::INDEX, generation: (bits >> 32) as u32 };
        match low >> Self::KIND_SHIFT {
            1 => Self::Waker,
            2 => Self::Accept(key),
            3 => Self::Receive(key),
            4 => Self::Poll(Poll::In, key),
            5 => Self::Poll(Poll::Out, key),
            6 => Self::Poll(Poll::Failure, key),
            7 => Self::Send(key.index),
            8 => Self::File(key),
            9 => Self::Datagrams(Poll::In, key),
            10 => Self::Datagrams(Poll::Out, key),
            _ => Self::Ignored,
        }
    }
}

/// Requests of a connection that the system has.
#[derive(Debug, Default)]
pub(crate) struct Armed {
    pub(crate) receiving: Receiving,
    poll_in: bool,
    poll_out: bool,
    poll_failure: bool,
}

/// How far the armed receive of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Receiving {
    /// No receive is armed, and none of its bytes is under way to us.
    #[default]
    No,
    /// The receive brings bytes as they come.
    Yes,
    /// The receive was asked to end; bytes that it took before may still come.
    Ending,
}

impl Armed {
    /// The system holds the socket open, whatever we do with our descriptor.
    pub(crate) fn any(&self) -> bool {
        self.receiving != Receiving::No || self.poll_in || self.poll_out || self.poll_failure
    }

    pub(crate) fn poll_ended(&mut self, what: Poll) {
        match what {
            Poll::In => self.poll_in = false,
            Poll::Out => self.poll_out = false,
            Poll::Failure => self.poll_failure = false,
        }
    }
}

pub(crate) struct Ring {
    uring: IoUring,
    waker: Waker,
    /// Completions taken from the ring and not yet told.
    completed: Vec<cqueue::Entry>,
    enabled: bool,
    counters: Arc<Counters>,
    /// Requests on files. After the ring: what the system still has of them is given up only then.
    files: Files,
    /// After the ring: it must not be freed earlier.
    _memory: Arc<Memory>,
}

impl Ring {
    /// Opens a ring that receives into `buffers`. It belongs to the thread that first waits or sends.
    ///
    /// # Errors
    ///
    /// When the system has no such ring, or forbids it.
    pub(super) fn new(
        waker: Waker,
        buffers: &Buffers,
        counters: Arc<Counters>,
        queue_lens: QueueLens,
    ) -> io::Result<Self> {
        let uring: IoUring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(queue_lens.completions)
            .build(queue_lens.submissions)?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::AcceptMulti::CODE,
            opcode::RecvMulti::CODE,
            opcode::SendMsg::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel::CODE,
        ];
        if !needed.iter().chain(&files::NEEDED).all(|&code| probe.is_supported(code))
            || !uring.params().is_feature_ext_arg()
        {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let memory = buffers.memory();
        // SAFETY: the entries are page-aligned and there are as many; the ring keeps the memory alive, and is dropped
        // before. After that nothing is received any more: with deferred task running the system only does so in our
        // calls.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(memory.entries() as u64, BUFFERS, BUFFER_GROUP, 0)?;
        }
        let mut ring = Self {
            uring,
            waker,
            completed: Vec::with_capacity(queue_lens.completions as usize),
            enabled: false,
            counters,
            files: Files::new(),
            _memory: memory,
        };
        ring.arm_waker()?;
        Ok(ring)
    }

    pub(super) fn has_completions(&mut self) -> bool {
        self.collect();
        !self.completed.is_empty()
    }

    /// Hands in what was armed, waits, and translates completions.
    ///
    /// After it no request is queued here: a queued request names a descriptor, which an event's handler may close.
    pub(super) fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.collect();
        let sleeps = self.completed.is_empty() && timeout != Some(Duration::ZERO);
        if sleeps || self.has_work() {
            self.enter(usize::from(sleeps), timeout)?;
        }
        while !self.uring.submission().is_empty() {
            self.enter(0, None)?;
        }
        let mut completed = std::mem::take(&mut self.completed);
        for entry in completed.drain(..) {
            events.extend(self.translate(&entry)?);
        }
        self.completed = completed;
        Ok(())
    }

    /// Requests are queued, or the system has something to do for us.
    fn has_work(&mut self) -> bool {
        let queue = self.uring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn free_submissions(&mut self) -> usize {
        let queue = self.uring.submission();
        queue.capacity() - queue.len()
    }

    /// One call: hands in what is queued, and waits for `want` completions.
    fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        if !self.enabled {
            // Here and not in `new`, for it binds the ring to this thread.
            self.uring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        self.counters.system_calls.add(1);
        let submitter = self.uring.submitter();
        let entered = match timeout.filter(|_| want > 0) {
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                submitter.submit_with_args(want, &SubmitArgs::new().timespec(&timeout))
            }
            None => submitter.submit_and_wait(want),
        };
        self.collect();
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                // Over, interrupted, or short of something that taking completions or trying again gives back.
                Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    fn collect(&mut self) {
        self.completed.extend(self.uring.completion());
    }

    fn translate(&mut self, entry: &cqueue::Entry) -> io::Result<Option<Event>> {
        let result = match entry.result() {
            result @ 0.. => Ok(result.unsigned_abs()),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        };
        let ends = !cqueue::more(entry.flags());
        Ok(match Token::unpack(entry.user_data()) {
            Token::Ignored | Token::Send(_) => None,
            Token::Waker => {
                if ends {
                    self.arm_waker()?;
                }
                None
            }
            Token::Accept(listener) => {
                // SAFETY: the system made this descriptor for us, and tells of it once.
                let result = result.map(|fd| unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) });
                let backlog_empty = !cqueue::sock_nonempty(entry.flags());
                Some(Event::Accepted { listener, result, ends, backlog_empty })
            }
            Token::Receive(connection) => {
                let chunk = |len: u32| {
                    let buffer = cqueue::buffer_select(entry.flags())?;
                    // SAFETY: this is the completion of a receive, and it is translated once.
                    unsafe { Chunk::new(buffer, len as usize) }
                };
                Some(Event::Received { connection, result: result.map(chunk), ends })
            }
            Token::File(key) => {
                let result = result.map(|len| len as usize);
                self.files.remove(key).map(|UnderWay { tag, request }| Event::FileDone { tag, request, result })
            }
            Token::Datagrams(what, socket) => {
                let ready = Ready { readable: what == Poll::In, writable: what == Poll::Out, ended: Some(what) };
                Some(Event::Datagrams { socket, ready })
            }
            Token::Poll(what, connection) => {
                // A poll that was cancelled says so by an error; what it would have told is then told otherwise.
                let ready = result.unwrap_or(0).cast_signed();
                let has = |mask: i16| ready & i32::from(mask) != 0;
                Some(Event::Ready {
                    connection,
                    readable: what == Poll::In,
                    writable: has(libc::POLLOUT),
                    failed: has(libc::POLLERR | libc::POLLHUP),
                    ended: ends.then_some(what),
                })
            }
        })
    }

    // Requests that stay armed.

    /// Queues a request.
    ///
    /// # Safety
    ///
    /// The memory that the request points at is valid until it completes, and its descriptor until it is handed in.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: promised by the caller.
        while unsafe { self.uring.submission().push(entry) }.is_err() {
            self.enter(0, None)?;
        }
        Ok(())
    }

    /// Wake-ups come as edges, so the descriptor never has to be read.
    fn arm_waker(&mut self) -> io::Result<()> {
        let entry = opcode::PollAdd::new(Fd(self.waker.as_fd().as_raw_fd()), u32::from(libc::POLLIN.cast_unsigned()))
            .multi(true);
        // SAFETY: it points at nothing, and the waker is ours.
        unsafe { self.push(&entry.build().user_data(Token::Waker.pack())) }
    }

    pub(crate) fn arm_listener(&mut self, key: Key, listener: impl AsFd) -> io::Result<()> {
        let entry = opcode::AcceptMulti::new(Fd(listener.as_fd().as_raw_fd())).flags(libc::SOCK_CLOEXEC);
        // SAFETY: it points at nothing, and listeners are armed right before the wait, which hands it in.
        unsafe { self.push(&entry.build().user_data(Token::Accept(key).pack())) }
    }

    pub(super) fn remove_listener(&mut self, key: Key) {
        // Without it, connections that are accepted are closed.
        let _ = self.cancel(Token::Accept(key));
    }

    /// Called right before the wait.
    pub(super) fn update_connection(&mut self, key: Key, connection: &mut Connection) -> io::Result<()> {
        if connection.leaving {
            return self.let_go(key, connection);
        }
        let receives = connection.receives();
        let stays_armed = receives && !connection.is_direct();
        match connection.armed.receiving {
            Receiving::No if stays_armed => {
                let entry = opcode::RecvMulti::new(raw(connection), BUFFER_GROUP).build();
                // SAFETY: it points at nothing, and the connection lives until the wait, which hands it in.
                unsafe { self.push(&entry.user_data(Token::Receive(key).pack()))? };
                connection.armed.receiving = Receiving::Yes;
            }
            Receiving::Yes if !stays_armed => {
                self.cancel(Token::Receive(key))?;
                connection.armed.receiving = Receiving::Ending;
            }
            Receiving::No if receives => self.poll(key, Poll::In, connection)?,
            // A failure has no one to be reported to.
            Receiving::No => self.poll(key, Poll::Failure, connection)?,
            Receiving::Yes | Receiving::Ending => {}
        }
        if connection.blocked {
            self.poll(key, Poll::Out, connection)?;
        }
        Ok(())
    }

    /// Ends all that the system has of the socket: a request holds it open, and the next owner of the stream could not
    /// close it.
    fn let_go(&mut self, key: Key, connection: &mut Connection) -> io::Result<()> {
        let armed = &mut connection.armed;
        if armed.receiving == Receiving::Yes {
            self.cancel(Token::Receive(key))?;
            armed.receiving = Receiving::Ending;
        }
        let polls = [(armed.poll_in, Poll::In), (armed.poll_out, Poll::Out), (armed.poll_failure, Poll::Failure)];
        for (_, what) in polls.into_iter().filter(|(is_armed, _)| *is_armed) {
            self.cancel(Token::Poll(what, key))?;
        }
        Ok(())
    }

    fn cancel(&mut self, request: Token) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(request.pack()).build();
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(Token::Ignored.pack());
        // SAFETY: it points at nothing and names no descriptor.
        unsafe { self.push(&entry) }
    }

    fn poll(&mut self, key: Key, what: Poll, connection: &mut Connection) -> io::Result<()> {
        let fd = raw(connection);
        let armed = &mut connection.armed;
        // Failures are reported whatever one asks for, and so is that the peer closed its side. That may be so for
        // long, hence polls for something else tell of changes alone.
        let (armed, mask, changes) = match what {
            Poll::In => (&mut armed.poll_in, libc::POLLIN, false),
            Poll::Out => (&mut armed.poll_out, libc::POLLOUT, true),
            Poll::Failure => (&mut armed.poll_failure, libc::POLLERR, true),
        };
        if !std::mem::replace(armed, true) {
            let entry = opcode::PollAdd::new(fd, u32::from(mask.cast_unsigned())).multi(changes).build();
            let entry = entry.user_data(Token::Poll(what, key).pack());
            // SAFETY: it points at nothing, and the connection lives until the wait, which hands it in.
            unsafe { self.push(&entry)? };
        }
        Ok(())
    }

    /// Called right before the wait. Datagrams are received and sent by calls, each of which moves many: these polls
    /// alone were left to save.
    pub(super) fn update_datagrams(&mut self, key: Key, socket: &mut DatagramSocket) -> io::Result<()> {
        self.poll_datagrams(key, Poll::In, socket)?;
        if socket.blocked {
            self.poll_datagrams(key, Poll::Out, socket)?;
        }
        Ok(())
    }

    /// Ends the polls, which would keep the socket open. The next wait hands this in.
    pub(super) fn remove_datagrams(&mut self, key: Key, socket: &DatagramSocket) {
        let polls = [(socket.armed.poll_in, Poll::In), (socket.armed.poll_out, Poll::Out)];
        for (_, what) in polls.into_iter().filter(|(is_armed, _)| *is_armed) {
            // Without room for the request the wait fails, too, and says so.
            let _ = self.cancel(Token::Datagrams(what, key));
        }
    }

    fn poll_datagrams(&mut self, key: Key, what: Poll, socket: &mut DatagramSocket) -> io::Result<()> {
        let fd = Fd(socket.as_fd().as_raw_fd());
        let (armed, mask) = match what {
            Poll::Out => (&mut socket.armed.poll_out, libc::POLLOUT),
            Poll::In | Poll::Failure => (&mut socket.armed.poll_in, libc::POLLIN),
        };
        if !std::mem::replace(armed, true) {
            let entry = opcode::PollAdd::new(fd, u32::from(mask.cast_unsigned())).build();
            let entry = entry.user_data(Token::Datagrams(what, key).pack());
            // SAFETY: it points at nothing, and the socket lives until the wait, which hands it in.
            unsafe { self.push(&entry)? };
        }
        Ok(())
    }

    /// Queues a request on a file, which is handed in with the batch.
    pub(super) fn submit_file(&mut self, tag: u64, mut request: FileRequest) -> Result<(), FileRequest> {
        // Before it is taken on: what fails here has told the system nothing.
        if !files::is_valid(&request) || (self.free_submissions() == 0 && self.enter(0, None).is_err()) {
            return Err(request);
        }
        let entry = files::entry(&mut request);
        let key = self.files.insert(tag, request);
        // SAFETY: file and buffer belong to `files` until the completion, and beyond it if there is none.
        if unsafe { self.push(&entry.user_data(Token::File(key).pack())) }.is_err() {
            return self.files.remove(key).map_or(Ok(()), |under_way| Err(under_way.request));
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.collect();
        for entry in self.completed.drain(..) {
            match (Token::unpack(entry.user_data()), entry.result()) {
                // SAFETY: the system made this descriptor for us, and nothing else knows of it.
                (Token::Accept(_), fd @ 0..) => drop(unsafe { OwnedFd::from_raw_fd(fd) }),
                (Token::File(key), _) => drop(self.files.remove(key)),
                _ => {}
            }
        }
    }
}

fn raw(connection: &Connection) -> Fd {
    Fd(connection.stream.as_raw_fd())
}

#[cfg(test)]
mod tests;
