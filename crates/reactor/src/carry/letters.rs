//! What owners and carriers write to each other.

use std::fmt;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Block, Parcel};
use crate::{Closed, ConnectionId, Waker};

/// One thing that happened to a connection. `line` is the carrier's name for it, `owned` that of its owner.
pub(crate) enum Letter {
    // From the owner.
    /// Carry this.
    Carry { stream: TcpStream, owner: Carrier, owned: ConnectionId },
    /// Send this behind what came before.
    Send { line: ConnectionId, parcel: Parcel },
    /// The bytes of this block were dealt with.
    Read { line: ConnectionId, block: Block },
    /// Nothing comes any more: send what you have, and close.
    CloseAfterSend { line: ConnectionId },
    /// Close, whatever you have.
    Close { line: ConnectionId },

    // From the carrier.
    /// The connection is carried by that name.
    Adopted { owned: ConnectionId, line: ConnectionId, carrier: Carrier },
    /// These bytes came.
    Received { owned: ConnectionId, block: Block },
    /// No more will come. The connection still sends.
    PeerClosed { owned: ConnectionId },
    /// This has left.
    Sent { owned: ConnectionId, parcel: Parcel },
    /// The connection is gone.
    Ended { owned: ConnectionId, why: Closed },
}

/// A reactor that carries connections of other reactors: see [`Context::adopt_carried`](crate::Context::adopt_carried).
///
/// Clones name the same reactor. It carries while it runs.
#[derive(Clone)]
pub struct Carrier(Arc<Mailbox>);

struct Mailbox {
    /// All that the reactor reads while there is no letter.
    waiting: AtomicBool,
    /// `None` when the reactor is gone.
    letters: Mutex<Option<Vec<Letter>>>,
    waker: Waker,
}

impl Mailbox {
    fn letters(&self) -> MutexGuard<'_, Option<Vec<Letter>>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carrier {
    /// Wakes the reader.
    pub(super) fn send(&self, letter: Letter) {
        self.post(letter);
        self.0.waker.nudge();
    }

    /// Is read when the reader is awake for another reason.
    pub(super) fn post(&self, letter: Letter) {
        if let Some(letters) = &mut *self.0.letters() {
            letters.push(letter);
            self.0.waiting.store(true, Ordering::Release);
        }
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Carrier").field(&Arc::as_ptr(&self.0)).finish()
    }
}

/// The reading end of a reactor's letters.
pub(crate) struct Inbox {
    carrier: Carrier,
    /// Empty: the memory for the next letters.
    spare: Vec<Letter>,
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Self {
        let mailbox = Mailbox { waiting: AtomicBool::new(false), letters: Mutex::new(Some(Vec::new())), waker };
        Self { carrier: Carrier(Arc::new(mailbox)), spare: Vec::new() }
    }

    /// Where others write to.
    pub(crate) fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    /// The letters that have come since the last call, in their order. Their memory is to be [kept](Self::keep).
    pub(crate) fn take(&mut self) -> Option<Vec<Letter>> {
        let mailbox = &self.carrier.0;
        if !mailbox.waiting.load(Ordering::Acquire) {
            return None;
        }
        let mut letters = mailbox.letters();
        mailbox.waiting.store(false, Ordering::Release);
        letters.as_mut().map(|letters| std::mem::replace(letters, std::mem::take(&mut self.spare)))
    }

    pub(crate) fn keep(&mut self, empty: Vec<Letter>) {
        self.spare = empty;
    }
}

impl Drop for Inbox {
    /// Nobody reads them any more: their sockets close, and what they hold is given back.
    fn drop(&mut self) {
        let letters = self.carrier.0.letters().take();
        drop(letters);
    }
}
