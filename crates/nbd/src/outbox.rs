//! Replies on their way to the client.
//!
//! Replies gather in the [`Outbox`] of their connection until its writing thread sends all that are there, with one system call for many of
//! them. The thread is woken at the end of the [turn](lunette_reactor::Turn) of the thread that ends the requests.

use std::io::{self, IoSlice, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use lunette_reactor::{TurnEnd, at_turn_end};

use crate::limited::Limited;
use crate::limits::REPLY_TIMEOUT;
use crate::reply::{Head, Reply};
use crate::window::Window;

/// Replies that are sent by one system call.
const MAX_GATHER: usize = 64;

/// The replies of one connection, and the room that their requests hold.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) window: Window,
    state: Mutex<State>,
    /// There is something for the writing thread.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order of their coming.
    ready: Vec<Reply>,
    /// No reply will come any more.
    ended: bool,
}

impl Outbox {
    /// Takes a reply. The writing thread hears of it at the end of this thread's turn at the latest.
    pub(crate) fn add(self: &Arc<Self>, reply: Reply) {
        let mut state = self.state();
        state.ready.push(reply);
        let is_first = state.ready.len() == 1;
        drop(state);
        if is_first {
            at_turn_end(Arc::<Self>::clone(self));
        }
    }

    /// No reply will come any more. The writing thread ends when all are sent.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// Sends replies until the [end](Self::end). After a failure it goes on without sending, so that requests under way come to their end, and lets
    /// no more in.
    pub(crate) fn write_replies(&self, mut writer: Limited<impl Write>) -> io::Result<()> {
        let mut result = Ok(());
        let mut sending = Sending::default();
        while self.wait_for_replies(&mut sending) {
            if result.is_ok() {
                result = self.write_all(&mut sending, &mut writer);
            }
            if result.is_err() {
                self.discard(sending.replies.drain(..));
                self.window.close();
            }
        }
        result
    }

    /// Takes the replies that are there into `sending`, which has none. False at the end.
    fn wait_for_replies(&self, sending: &mut Sending) -> bool {
        let nothing = |state: &mut State| state.ready.is_empty() && !state.ended;
        let mut state = self.changed.wait_while(self.state(), nothing).unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.ready, &mut sending.replies);
        sending.sent = 0;
        !sending.replies.is_empty()
    }

    fn write_all(&self, sending: &mut Sending, writer: &mut Limited<impl Write>) -> io::Result<()> {
        while !sending.replies.is_empty() {
            writer.start(REPLY_TIMEOUT);
            let left = sending.replies.len();
            // The time is that of one reply, however many writes it takes.
            while sending.replies.len() == left {
                match sending.gather(|bytes| writer.write_vectored(bytes)) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(len) => self.discard(sending.sent(len)),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        writer.flush()
    }

    /// Gives the room of replies back. Their buffers return to the pool before the window gives their bytes to other requests.
    fn discard(&self, replies: impl Iterator<Item = Reply>) {
        let (requests, bytes) =
            replies.fold((0, 0), |(requests, bytes), reply| (requests + 1, bytes + reply.held_bytes));
        if requests > 0 {
            self.window.leave(requests, bytes);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnEnd for Outbox {
    fn turn_ended(&self) {
        self.changed.notify_all();
    }
}

/// Replies that are being sent.
#[derive(Default)]
struct Sending {
    replies: Vec<Reply>,
    /// Bytes of the first one that are sent.
    sent: usize,
}

impl Sending {
    /// Gives the bytes of the first replies to `send`.
    fn gather(&self, send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<usize> {
        let replies = &self.replies[..self.replies.len().min(MAX_GATHER)];
        let heads: ArrayVec<Head, MAX_GATHER> = replies.iter().map(Reply::head).collect();
        let mut slices: ArrayVec<IoSlice<'_>, { 2 * MAX_GATHER }> = ArrayVec::new();
        let mut skip = self.sent;
        for bytes in replies.iter().zip(&heads).flat_map(|(reply, head)| [&head[..], reply.payload()]) {
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            if skipped < bytes.len() {
                slices.push(IoSlice::new(&bytes[skipped..]));
            }
        }
        send(&slices)
    }

    /// Takes note that `len` bytes more are sent, and gives the replies that are sent with them.
    fn sent(&mut self, len: usize) -> impl Iterator<Item = Reply> {
        let mut done = 0;
        self.sent += len;
        for reply in &self.replies {
            let len = reply.head().len() + reply.payload().len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            done += 1;
        }
        self.replies.drain(..done)
    }
}
