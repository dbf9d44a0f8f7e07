//! The thread of an open volume, for all that cannot go on at once.
//!
//! A request that a caller submits goes on by the [`FileIo`](lunette_store::FileIo) of that caller. What follows from
//! the end of a request has none, and must not block the thread that ends it. So it comes here: requests that found no
//! buffer or whose range was claimed, second reads, records that waited for others, and checkpoints. The thread waits
//! for the unit where it has to.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread;

use lunette_store::InlineIo;

use crate::counts::Tally;
use crate::mailbox::{Job, Mailbox, Next};
use crate::packed::read::Try;
use crate::ranges::ClaimId;
use crate::request::Request;
use crate::shared::{Place, Shared};

/// Starts the thread. It ends when the volume is closed and its last request has ended: until then, one of them holds
/// `shared`.
pub(crate) fn start(mailbox: Arc<Mailbox>, shared: Weak<Shared>) -> io::Result<()> {
    let run = move || {
        while let Some(next) = mailbox.next() {
            let Some(shared) = shared.upgrade() else { return };
            match (next, &shared.place) {
                (Next::Job(job), _) => run(&shared, job),
                (Next::Journal, Place::Packed(packed)) => packed.see_to_journal(),
                (Next::Journal, Place::Native(_)) => {}
            }
        }
    };
    thread::Builder::new().name("volume".to_owned()).spawn(run).map(drop)
}

fn run(shared: &Arc<Shared>, job: Job) {
    match job {
        Job::Go(request, mut next) => {
            while let Err(at) = shared.pieces_from(&request, next, &InlineIo) {
                next = at;
                shared.owners.mailbox.wait_for_buffers();
            }
            shared.owners.buffers.one_goes_on();
        }
        Job::Claimed(request, claim) => {
            request.set_claim(claim);
            shared.go(&request, &InlineIo);
        }
        Job::ReadAgain(request, piece, claim) => read_again(shared, &request, &piece, claim),
        Job::Note => {
            if let Place::Packed(packed) = &shared.place {
                packed.note();
            }
        }
        // A receiver that is gone has given up.
        Job::Tell(to, claim) => {
            if to.send(claim).is_err() {
                shared.owners.claims.release(claim);
            }
        }
    }
}

fn read_again(shared: &Arc<Shared>, request: &Arc<Request>, piece: &Range<u64>, claim: Option<ClaimId>) {
    Tally::add(&shared.owners.tally.read_again, 1);
    match &shared.place {
        Place::Native(_) => {
            shared.native_read_again(request, piece.clone());
            if let Some(claim) = claim {
                shared.owners.claims.release(claim);
            }
        }
        Place::Packed(packed) => {
            while !packed.read_piece(request, piece.clone(), Try::Last(claim), &InlineIo) {
                shared.owners.mailbox.wait_for_buffers();
            }
        }
    }
}
