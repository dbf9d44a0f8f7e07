//! The work for the thread of an open volume.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ranges::ClaimId;
use crate::request::Request;

/// The time after which the thread tries again to take a buffer though none has returned. Where the address space was
/// used up (`RLIMIT_AS`), others make room, and no buffer of this pool returns.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

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
    /// Records may be ready to be written, or a checkpoint may be due.
    journal_waits: bool,
    /// Buffers have returned to the pool.
    returned: bool,
    stop: bool,
}

/// The next thing that the thread does.
pub(crate) enum Next {
    Job(Job),
    /// Write the records that can be written, and make the checkpoint that is due.
    Journal,
}

impl Mailbox {
    pub(crate) fn push(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.changed.notify_all();
    }

    /// Lets the thread see to the journal: records to write and checkpoints to make.
    pub(crate) fn wake(&self) {
        self.lock().journal_waits = true;
        self.changed.notify_all();
    }

    /// Buffers that were awaited have returned.
    pub(crate) fn buffers_returned(&self) {
        let mut mail = self.lock();
        (mail.returned, mail.journal_waits) = (true, true);
        drop(mail);
        self.changed.notify_all();
    }

    /// Waits until buffers have returned since the last call, for [`LOOK_AGAIN`] at most.
    pub(crate) fn wait_for_buffers(&self) {
        let waiting = self.changed.wait_timeout_while(self.lock(), LOOK_AGAIN, |mail| !mail.returned);
        waiting.unwrap_or_else(PoisonError::into_inner).0.returned = false;
    }

    /// Ends the thread. Nothing may be left to do.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// Waits for the next thing to do; `None` when the volume is closed.
    pub(crate) fn next(&self) -> Option<Next> {
        let idle = |mail: &mut Mail| mail.jobs.is_empty() && !mail.journal_waits && !mail.stop;
        let mut mail = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = mail.jobs.pop_front() {
            return Some(Next::Job(job));
        }
        std::mem::take(&mut mail.journal_waits).then_some(Next::Journal)
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_buffers_ends_though_none_return() {
        Mailbox::default().wait_for_buffers();
    }
}
