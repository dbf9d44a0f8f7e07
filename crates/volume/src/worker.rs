//! The thread of an open volume, for all that cannot go on at once.
//!
//! A request that a caller submits goes on by the [`FileIo`](lunette_store::FileIo) of that caller. What follows from
//! the end of a request has none, and must not block the thread that ends it. So it comes here: requests that found no
//! buffer or whose range was claimed, second reads, records that waited for others, and checkpoints. The thread waits
//! for the unit where it has to.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use crate::ranges::ClaimId;
use crate::request::Request;
use crate::shared::Shared;

/// The work for the thread.
pub(crate) enum Job {
    /// Go on with a request at this quantum.
    Go(Arc<Request>, u64),
    /// Begin a request whose claim was granted.
    Claimed(Arc<Request>, ClaimId),
    /// Read these quanta of a request once more; the claim on them ends with that.
    ReadAgain(Arc<Request>, Range<u64>, Option<ClaimId>),
    /// Write a note of what was flushed.
    Note,
    /// Tell another thread that its claim was granted.
    Tell(Sender<ClaimId>, ClaimId),
}

/// The way to the thread.
#[derive(Default)]
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    changed: Condvar,
}

#[derive(Default)]
struct Mail {
    jobs: VecDeque<Job>,
    /// Look whether records can be written, or a checkpoint is due.
    awake: bool,
    /// Buffers have returned to the pool.
    returned: bool,
    stop: bool,
}

enum Next {
    Job(Job),
    Look,
}

impl Mailbox {
    pub(crate) fn push(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.changed.notify_all();
    }

    /// Lets the thread look for records to write and checkpoints to make.
    pub(crate) fn wake(&self) {
        self.lock().awake = true;
        self.changed.notify_all();
    }

    /// Buffers that were awaited have returned.
    pub(crate) fn buffers_returned(&self) {
        let mut mail = self.lock();
        (mail.returned, mail.awake) = (true, true);
        drop(mail);
        self.changed.notify_all();
    }

    /// Waits until buffers have returned since the last call.
    pub(crate) fn wait_for_buffers(&self) {
        let waiting = self.changed.wait_while(self.lock(), |mail| !mail.returned);
        waiting.unwrap_or_else(PoisonError::into_inner).returned = false;
    }

    /// Ends the thread. Nothing may be left to do.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Next> {
        let idle = |mail: &mut Mail| mail.jobs.is_empty() && !mail.awake && !mail.stop;
        let mut mail = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = mail.jobs.pop_front() {
            return Some(Next::Job(job));
        }
        std::mem::take(&mut mail.awake).then_some(Next::Look)
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread. It ends when the volume is closed and its last request has ended: until then, one of them holds
/// `shared`.
pub(crate) fn start(mailbox: Arc<Mailbox>, shared: Weak<Shared>) -> io::Result<()> {
    let run = move || {
        while let Some(next) = mailbox.next() {
            let Some(shared) = shared.upgrade() else { return };
            match next {
                Next::Job(job) => shared.run(job),
                Next::Look => shared.look(),
            }
        }
    };
    thread::Builder::new().name("volume".to_owned()).spawn(run).map(drop)
}
