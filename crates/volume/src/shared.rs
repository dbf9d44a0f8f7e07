//! The state that the parts of an open volume share.

use std::ops::Range;
use std::sync::Arc;

use lunette_quanta::{Codec, Native, OpenError, QuantumSize};
use lunette_store::{FileIo, Store};

use crate::awaited::AwaitedKeys;
use crate::buffers::Buffers;
use crate::counts::Tally;
use crate::header::OpenHeader;
use crate::mailbox::{Job, Mailbox};
use crate::packed::{Packed, Try};
use crate::parity::ParityUnit;
use crate::ranges::{ClaimId, RangeClaims};
use crate::request::{Request, What};
use crate::seals::Seals;
use crate::together::Together;

/// An open volume, which its handle and its requests hold.
pub(crate) struct Shared {
    pub(crate) inner: Arc<dyn Store>,
    /// The unit with parity, if it has one; it is `inner` then.
    pub(crate) parity: Option<Arc<ParityUnit>>,
    pub(crate) place: Place,
    pub(crate) size: QuantumSize,
    pub(crate) quanta: u64,
    pub(crate) read_only: bool,
    pub(crate) seals: Arc<Seals>,
    pub(crate) header: OpenHeader,
    pub(crate) buffers: Buffers,
    pub(crate) claims: RangeClaims<Job>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) tally: Arc<Tally>,
    /// Reads that wait for keys.
    pub(crate) awaited: AwaitedKeys,
    /// Short requests that wait for others.
    pub(crate) together: Together,
}

pub(crate) enum Place {
    Native(Native),
    Packed(Box<Packed>),
}

impl Shared {
    /// Begins a request. One that changes the volume first claims its range.
    pub(crate) fn begin(&self, request: &Arc<Request>, io: &dyn FileIo) {
        if !request.alone && request.what != What::Read {
            let later = |id| Job::Claimed(Arc::clone(request), id);
            // With an anchor, no others: the versions of overlapping writes must rise in the order in which the medium
            // gets them.
            let alone = self.seals.anchor().is_some();
            let Some(id) = self.claims.claim(request.range.clone(), alone, later) else { return };
            request.set_claim(id);
        }
        self.go(request, io);
    }

    /// Makes the requests of the unit, or lets the request wait for buffers.
    pub(crate) fn go(&self, request: &Arc<Request>, io: &dyn FileIo) {
        let first = request.range.start;
        if let (Place::Packed(packed), true) = (&self.place, request.what != What::Read) {
            packed.enqueue(request);
            packed.write_records(self, io);
            return;
        }
        let lacking = if self.buffers.are_awaited() { Err(first) } else { self.pieces_from(request, first, io) };
        if let Err(next) = lacking {
            self.buffers.one_waits();
            self.mailbox.push(Job::Go(Arc::clone(request), next));
        }
    }

    /// Makes the requests of the unit for all pieces from quantum `next` on. `Err` says at which quantum buffers are
    /// lacking.
    pub(crate) fn pieces_from(&self, request: &Arc<Request>, mut next: u64, io: &dyn FileIo) -> Result<(), u64> {
        while next < request.range.end {
            let piece = next..request.range.end.min(next + self.piece_quanta(request));
            let (end, made) = (piece.end, self.piece(request, piece, io));
            if !made {
                return Err(next);
            }
            next = end;
        }
        Ok(())
    }

    fn piece(&self, request: &Arc<Request>, piece: Range<u64>, io: &dyn FileIo) -> bool {
        match &self.place {
            Place::Native(native) => self.native_piece(*native, request, piece, io),
            Place::Packed(packed) => packed.read_piece(self, request, piece, Try::First, io),
        }
    }

    /// Quanta of the pieces of a request, which have about the same length.
    pub(crate) fn piece_quanta(&self, request: &Request) -> u64 {
        let most = (crate::limits::MAX_PIECE_BYTES / self.size.edu_len()) as u64;
        let quanta = request.range.end - request.range.start;
        match request.what {
            What::Holes { .. } => quanta,
            _ => quanta.div_ceil(quanta.div_ceil(most)),
        }
    }

    /// Gives up a claim. Requests that waited for it go on by the volume's thread.
    pub(crate) fn release(&self, claim: ClaimId) {
        self.claims.release(claim, |job| self.mailbox.push(job));
    }

    /// Has a piece read a second time, when a write that was under way can explain what the first read met: when all
    /// such have ended.
    pub(crate) fn try_again(&self, request: &Request, piece: &Range<u64>) {
        let request = request.me();
        let again = |claim| Job::ReadAgain(Arc::clone(&request), piece.clone(), claim);
        if request.alone {
            self.mailbox.push(again(None));
        } else if let Some(id) = self.claims.claim(piece.clone(), true, |id| again(Some(id))) {
            self.mailbox.push(again(Some(id)));
        }
    }

    /// Lets a piece that could not be opened wait for its key. False when it is to be refused at once.
    pub(crate) fn waits_for_key(&self, request: &Request, piece: &Range<u64>, error: OpenError) -> bool {
        let waits = self.awaited.add(request, piece, error);
        if waits {
            // The key may have come since the quantum was opened.
            let codec = self.seals.codec().clone();
            self.key_came(&codec);
        }
        waits
    }

    /// Reads what a key of `codec` can open.
    pub(crate) fn key_came(&self, codec: &Codec) {
        for (request, piece) in self.awaited.take_known(codec) {
            self.try_again(&request, &piece);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.mailbox.stop();
    }
}
