//! The claims of the requests to an open volume, and those that wait for one.

use std::ops::Range;
use std::sync::Arc;

use crate::mailbox::{Job, Mailbox};
use crate::ranges::{ClaimId, RangeClaims};
use crate::request::Request;

/// The claims of a volume. What waits for one goes on by the volume's thread.
pub(crate) struct Claims {
    ranges: RangeClaims<Job>,
    mailbox: Arc<Mailbox>,
}

impl Claims {
    pub(crate) fn new(mailbox: &Arc<Mailbox>) -> Self {
        Self { ranges: RangeClaims::new(), mailbox: Arc::clone(mailbox) }
    }

    /// Claims a range, for itself or with others. When it has to wait, this returns `None`, and the thread gets the job
    /// that `later` gives when the claim is granted.
    pub(crate) fn claim(&self, range: Range<u64>, alone: bool, later: impl FnOnce(ClaimId) -> Job) -> Option<ClaimId> {
        self.ranges.claim(range, alone, later)
    }

    /// Gives up a claim.
    pub(crate) fn release(&self, claim: ClaimId) {
        self.ranges.release(claim, |job| self.mailbox.push(job));
    }

    /// Has a piece read a second time, when a write that was under way can explain what the first read met: when all
    /// such have ended.
    pub(crate) fn try_again(&self, request: &Request, piece: &Range<u64>) {
        let request = request.me();
        let again = |claim| Job::ReadAgain(Arc::clone(&request), piece.clone(), claim);
        if request.alone {
            self.mailbox.push(again(None));
        } else if let Some(id) = self.claim(piece.clone(), true, |id| again(Some(id))) {
            self.mailbox.push(again(Some(id)));
        }
    }
}
