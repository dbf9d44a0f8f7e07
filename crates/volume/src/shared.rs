//! The state that the parts of an open volume share.

use std::ops::Range;
use std::sync::Arc;

use lunette_quanta::Native;
use lunette_store::{FileIo, Outcome};

use crate::header::OpenHeader;
use crate::limits::MAX_PIECE_BYTES;
use crate::mailbox::Job;
use crate::owners::Owners;
use crate::packed::Packed;
use crate::packed::read::Try;
use crate::parity::ParityUnit;
use crate::ranges::ClaimId;
use crate::request::{OpenVolume, Request, What};
use crate::together::Together;

/// An open volume, which its handle and its requests hold.
pub(crate) struct Shared {
    pub(crate) owners: Owners,
    /// The unit with parity, if it has one; it is [`Owners::inner`] then.
    pub(crate) parity: Option<Arc<ParityUnit>>,
    pub(crate) place: Place,
    pub(crate) quanta: u64,
    pub(crate) read_only: bool,
    pub(crate) header: OpenHeader,
    /// Short requests that wait for others.
    pub(crate) together: Together,
}

pub(crate) enum Place {
    Native(Native),
    Packed(Arc<Packed>),
}

impl Shared {
    /// Begins a request. One that changes the volume first claims its range.
    pub(crate) fn begin(&self, request: &Arc<Request>, io: &dyn FileIo) {
        if !request.alone && request.what != What::Read {
            let later = |id| Job::Claimed(Arc::clone(request), id);
            // With an anchor, no others: the versions of overlapping writes must rise in the order in which the medium
            // gets them.
            let alone = self.owners.seals.anchor().is_some();
            let Some(id) = self.owners.claims.claim(request.range.clone(), alone, later) else { return };
            request.set_claim(id);
        }
        self.go(request, io);
    }

    /// Makes the requests of the unit, or lets the request wait for buffers.
    pub(crate) fn go(&self, request: &Arc<Request>, io: &dyn FileIo) {
        let first = request.range.start;
        if let (Place::Packed(packed), true) = (&self.place, request.what != What::Read) {
            packed.enqueue(request);
            packed.write_records(io);
            return;
        }
        let lacking = if self.owners.buffers.are_awaited() { Err(first) } else { self.pieces_from(request, first, io) };
        if let Err(next) = lacking {
            self.owners.buffers.one_waits();
            self.owners.mailbox.push(Job::Go(Arc::clone(request), next));
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
            Place::Packed(packed) => packed.read_piece(request, piece, Try::First, io),
        }
    }

    /// Quanta of the pieces of a request, which have about the same length.
    pub(crate) fn piece_quanta(&self, request: &Request) -> u64 {
        let most = (MAX_PIECE_BYTES / self.owners.size.edu_len()) as u64;
        let quanta = request.range.end - request.range.start;
        match request.what {
            What::Holes { .. } => quanta,
            _ => quanta.div_ceil(quanta.div_ceil(most)),
        }
    }
}

impl OpenVolume for Shared {
    fn release(&self, claim: ClaimId) {
        self.owners.claims.release(claim);
    }

    fn piece_ended(&self, request: &Request, first: u64, outcome: Outcome) {
        self.native_ended(request, first, outcome);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.owners.mailbox.stop();
    }
}
