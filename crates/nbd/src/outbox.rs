//! Replies on their way to the client.
//!
//! Replies gather in the [`Outbox`] of their connection until a thread sends all that are there, with one system call
//! for many of them. The reading thread sends before it waits for anything, as far as the socket takes them at once:
//! what it has answered by itself needs no other thread. The writing thread sends what other threads have ended, and
//! what the socket did not take; it is woken at the end of the [turn](lunette_reactor::Turn) of the thread that ends
//! the requests.

use std::io::{self, IoSlice, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use lunette_reactor::{TurnEnd, at_turn_end};

use crate::limited::Limited;
use crate::limits::REPLY_TIMEOUT;
use crate::reply::{Head, Reply};
use crate::stream::Output;
use crate::window::Window;

/// Replies that are sent by one system call.
const MAX_GATHER: usize = 64;

/// Pieces that are sent by one system call. Lent bytes may be many pieces; what has no room goes out by the next call.
const MAX_SLICES: usize = 2 * MAX_GATHER;

/// Bytes of requests whose replies the reading thread sends before it answers more: their buffers are still in the
/// processor's cache then, and the client has something to do.
const MAX_READY_BYTES: usize = 64 << 10;

/// The replies of one connection, and the room that their requests hold.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) window: Window,
    state: Mutex<State>,
    /// The signal that the writing thread has work.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order of their coming.
    ready: Vec<Reply>,
    /// Bytes of the window that they hold.
    ready_bytes: usize,
    /// The socket takes no more of what is being sent.
    stuck: bool,
    /// No reply will come any more.
    ended: bool,
}

/// The sending half of a connection, for one thread at a time.
pub(crate) struct Sending<W> {
    writer: Limited<W>,
    replies: Vec<Reply>,
    /// Bytes of the first one that are sent.
    sent: usize,
    /// After a failure nothing more is sent.
    result: io::Result<()>,
}

impl Outbox {
    /// Takes a reply. The writing thread hears of it at the end of this thread's turn at the latest, if it has not been
    /// sent by then.
    pub(crate) fn add(self: &Arc<Self>, reply: Reply) {
        let mut state = self.state();
        state.ready_bytes += reply.held_bytes;
        state.ready.push(reply);
        let is_first = state.ready.len() == 1;
        drop(state);
        if is_first {
            at_turn_end(Arc::<Self>::clone(self));
        }
    }

    /// Whether so much is ready that it should be sent before more requests are answered.
    pub(crate) fn has_much(&self) -> bool {
        let state = self.state();
        state.ready_bytes >= MAX_READY_BYTES || state.ready.len() >= MAX_GATHER
    }

    /// No reply will come any more. The writing thread ends when all are sent.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// Sends what is ready as far as the socket takes it without a wait, and leaves the rest to the writing thread.
    pub(crate) fn send_now(&self, sending: &Mutex<Sending<impl Output>>) {
        // The thread that has it looks for more before it waits.
        let Ok(mut sending) = sending.try_lock() else { return };
        if self.take_ready(&mut sending)
            && !self.send_all(&mut sending, |writer, bytes| writer.stream().write_now(bytes))
        {
            self.state().stuck = true;
            self.changed.notify_all();
        }
    }

    /// Sends replies until the [end](Self::end). After a failure it goes on without sending, so that requests under way
    /// come to their end, and lets no more in.
    pub(crate) fn write_replies(&self, sending: &Mutex<Sending<impl Output>>) {
        while self.wait_for_replies() {
            let mut sending = sending.lock().unwrap_or_else(PoisonError::into_inner);
            if self.take_ready(&mut sending) {
                sending.writer.start(REPLY_TIMEOUT);
                self.send_all(&mut sending, Limited::write_vectored);
            }
        }
    }

    /// Waits until there may be something that no other thread sends. False at the end.
    fn wait_for_replies(&self) -> bool {
        let nothing = |state: &mut State| state.ready.is_empty() && !state.stuck && !state.ended;
        let mut state = self.changed.wait_while(self.state(), nothing).unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.stuck) || !state.ready.is_empty()
    }

    /// Takes the replies that are there. False when there are none, now or before.
    fn take_ready(&self, sending: &mut Sending<impl Output>) -> bool {
        let mut state = self.state();
        state.ready_bytes = 0;
        if sending.replies.is_empty() {
            std::mem::swap(&mut state.ready, &mut sending.replies);
        } else {
            sending.replies.append(&mut state.ready);
        }
        !sending.replies.is_empty()
    }

    /// Sends all replies. False when `write` would have to wait. After a failure they are dropped.
    fn send_all<W: Output>(
        &self,
        sending: &mut Sending<W>,
        mut write: impl FnMut(&mut Limited<W>, &[IoSlice<'_>]) -> io::Result<usize>,
    ) -> bool {
        while !sending.replies.is_empty() {
            let sent =
                if sending.result.is_ok() { sending.gather(&mut write) } else { Err(io::ErrorKind::Other.into()) };
            match sent {
                Ok(len) if len > 0 => {
                    let whole = self.discard(sending.sent(len));
                    // The time is that of one reply, however many writes it takes.
                    if whole > 0 {
                        sending.writer.restart(REPLY_TIMEOUT);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                failed => {
                    let error = failed.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                    sending.result = std::mem::replace(&mut sending.result, Ok(())).and(Err(error));
                    sending.sent = 0;
                    self.discard(sending.replies.drain(..));
                    self.window.close();
                }
            }
        }
        true
    }

    /// Gives the room of replies back, and counts them. Their buffers return to the pool before the window gives their
    /// bytes to other requests.
    fn discard(&self, replies: impl Iterator<Item = Reply>) -> usize {
        let (requests, bytes) =
            replies.fold((0, 0), |(requests, bytes), reply| (requests + 1, bytes + reply.held_bytes));
        if requests > 0 {
            self.window.leave(requests, bytes);
        }
        requests
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnEnd for Outbox {
    fn turn_ended(&self) {
        if !self.state().ready.is_empty() {
            self.changed.notify_all();
        }
    }
}

impl<W: Output> Sending<W> {
    pub(crate) fn new(writer: Limited<W>) -> Self {
        Self { writer, replies: Vec::new(), sent: 0, result: Ok(()) }
    }

    /// How the sending has ended.
    pub(crate) fn into_result(self) -> io::Result<()> {
        self.result
    }

    /// Gives the bytes of the first replies to `write`.
    fn gather(
        &mut self,
        write: impl FnOnce(&mut Limited<W>, &[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let replies = &self.replies[..self.replies.len().min(MAX_GATHER)];
        let heads: ArrayVec<Head, MAX_GATHER> = replies.iter().map(Reply::head).collect();
        let mut slices: ArrayVec<IoSlice<'_>, MAX_SLICES> = ArrayVec::new();
        let mut skip = self.sent;
        for (reply, head) in replies.iter().zip(&heads) {
            let len = head.len() + reply.payload_len();
            let mut at = skip.min(len);
            skip -= at;
            while at < len && !slices.is_full() {
                let bytes = if at < head.len() { &head[at..] } else { reply.payload_at(at - head.len()) };
                slices.push(IoSlice::new(bytes));
                at += bytes.len();
            }
        }
        write(&mut self.writer, &slices)
    }

    /// Takes note that `len` bytes more are sent, and gives the replies that are sent with them.
    fn sent(&mut self, len: usize) -> impl Iterator<Item = Reply> {
        let mut done = 0;
        self.sent += len;
        for reply in &self.replies {
            let len = reply.head().len() + reply.payload_len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            done += 1;
        }
        self.replies.drain(..done)
    }
}
