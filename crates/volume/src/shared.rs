//! The state that the parts of an open volume share.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use lunette_buffer::{Buffer, Pool};
use lunette_quanta::{Codec, Header, Holes, Native, OpenError, QuantumSize, SLOT_LEN, Sealing, Slot};
use lunette_store::{FileIo, InlineIo, Store, StoreError};

use crate::anchor::Keeper;
use crate::awaited::AwaitedKeys;
use crate::counts::Tally;
use crate::find::random_seed;
use crate::packed::{Packed, Try};
use crate::parity::ParityUnit;
use crate::ranges::{ClaimId, RangeClaims};
use crate::request::{Request, What};
use crate::together::Together;
use crate::versions::Versions;
use crate::worker::{Job, Mailbox};

/// Bytes of zeroes that are sealed at once.
static ZEROES: [u8; 16 << 10] = [0; 16 << 10];

/// An open volume, which its handle and its requests hold.
pub(crate) struct Shared {
    pub(crate) inner: Arc<dyn Store>,
    /// The unit with parity, if it has one; it is `inner` then.
    pub(crate) parity: Option<Arc<ParityUnit>>,
    pub(crate) place: Place,
    pub(crate) size: QuantumSize,
    pub(crate) quanta: u64,
    pub(crate) read_only: bool,
    pub(crate) codec: RwLock<Codec>,
    pub(crate) holes: Holes,
    pub(crate) header: Mutex<Header>,
    /// Held while header and keys are changed, which takes writes to the unit.
    pub(crate) changing: Mutex<()>,
    pub(crate) pool: Pool,
    /// Buffers of records and notes.
    pub(crate) records: Pool,
    pub(crate) claims: RangeClaims<Job>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Requests that wait for buffers. Later ones wait behind them.
    pub(crate) starved: AtomicUsize,
    pub(crate) versions: Versions,
    pub(crate) tally: Tally,
    /// Whether reads wait for keys that are not known.
    pub(crate) await_keys: bool,
    pub(crate) awaited: AwaitedKeys,
    /// Short requests that wait for others.
    pub(crate) together: Together,
    /// The anchor, when the volume was opened with one.
    pub(crate) keeper: Option<Keeper>,
}

pub(crate) enum Place {
    Native(Native),
    Packed(Box<Packed>),
}

impl Shared {
    /// Whether requests may make holes. With an anchor they may not: a hole has no version.
    pub(crate) fn makes_holes(&self) -> bool {
        self.holes == Holes::Allowed && self.keeper.is_none()
    }

    /// The codec with the present keys. Hold it no longer than sealing or opening takes.
    pub(crate) fn codec(&self) -> RwLockReadGuard<'_, Codec> {
        self.codec.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn header(&self) -> MutexGuard<'_, Header> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request. One that changes the volume first claims its range.
    pub(crate) fn begin(&self, request: &Arc<Request>, io: &dyn FileIo) {
        if !request.alone && request.what != What::Read {
            let later = |id| Job::Claimed(Arc::clone(request), id);
            // With an anchor, no others: the versions of overlapping writes must rise in the order in which the medium
            // gets them.
            let alone = self.keeper.is_some();
            let Some(id) = self.claims.claim(request.range.clone(), alone, later) else { return };
            request.set_claim(id);
        }
        self.go(request, io);
    }

    fn go(&self, request: &Arc<Request>, io: &dyn FileIo) {
        let first = request.range.start;
        if let (Place::Packed(packed), true) = (&self.place, request.what != What::Read) {
            packed.enqueue(request);
            packed.write_records(self, io);
            return;
        }
        if self.starved.load(Ordering::Acquire) > 0 {
            self.starve(Arc::clone(request), first);
            return;
        }
        if let Err(next) = self.pieces_from(request, first, io) {
            self.starve(Arc::clone(request), next);
        }
    }

    fn starve(&self, request: Arc<Request>, next: u64) {
        self.starved.fetch_add(1, Ordering::AcqRel);
        self.mailbox.push(Job::Go(request, next));
    }

    /// Makes the requests of the unit for all pieces from quantum `next` on. `Err` says at which quantum buffers are
    /// lacking.
    fn pieces_from(&self, request: &Arc<Request>, mut next: u64, io: &dyn FileIo) -> Result<(), u64> {
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

    /// A buffer, or `None` and a wake-up when there may be one.
    pub(crate) fn take(&self, len: usize) -> Option<Buffer> {
        take_from(&self.pool, len)
    }

    /// A buffer for a record, or `None` and a wake-up when there may be one.
    pub(crate) fn take_for_record(&self, len: usize) -> Option<Buffer> {
        take_from(&self.records, len)
    }

    /// Room for buffers, or `None` and a wake-up when there may be room.
    pub(crate) fn room(&self, len: usize) -> Option<Buffer> {
        self.pool.reserve(len).or_else(|| {
            self.pool.await_return();
            self.pool.reserve(len)
        })
    }

    /// Gives up a claim. Requests that waited for it go on by the volume's thread.
    pub(crate) fn release(&self, claim: ClaimId) {
        self.claims.release(claim, |job| self.mailbox.push(job));
    }

    /// Does a job, on the volume's thread.
    pub(crate) fn run(self: &Arc<Self>, job: Job) {
        match job {
            Job::Go(request, mut next) => {
                while let Err(at) = self.pieces_from(&request, next, &InlineIo) {
                    next = at;
                    self.mailbox.wait_for_buffers();
                }
                self.starved.fetch_sub(1, Ordering::AcqRel);
            }
            Job::Claimed(request, claim) => {
                request.set_claim(claim);
                self.go(&request, &InlineIo);
            }
            Job::ReadAgain(request, piece, claim) => self.read_again(&request, &piece, claim),
            Job::Note => {
                if let Place::Packed(packed) = &self.place {
                    packed.note(self);
                }
            }
            // A receiver that is gone has given up.
            Job::Tell(to, claim) => {
                if to.send(claim).is_err() {
                    self.release(claim);
                }
            }
        }
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

    fn read_again(&self, request: &Arc<Request>, piece: &Range<u64>, claim: Option<ClaimId>) {
        Tally::add(&self.tally.read_again, 1);
        match &self.place {
            Place::Native(_) => {
                self.native_read_again(request, piece.clone());
                if let Some(claim) = claim {
                    self.release(claim);
                }
            }
            Place::Packed(packed) => {
                while !packed.read_piece(self, request, piece.clone(), Try::Last(claim), &InlineIo) {
                    self.mailbox.wait_for_buffers();
                }
            }
        }
    }

    /// Writes the records that wait and makes the checkpoint that is due, on the volume's thread.
    pub(crate) fn look(&self) {
        if let Place::Packed(packed) = &self.place {
            packed.look(self);
        }
    }

    /// The values to seal some quanta of a request with.
    pub(crate) fn sealing(&self, position: u64) -> Result<Sealing, StoreError> {
        let seed = random_seed().map_err(io::Error::other)?;
        Ok(Sealing { position, version: self.versions.next(), seed })
    }

    /// Takes note of the versions of quanta that were opened.
    pub(crate) fn saw<'a>(&self, slots: impl Iterator<Item = &'a [u8]>) {
        let version = |slot: &[u8]| slot.first_chunk::<SLOT_LEN>().map_or(0, |slot| Slot::decode(slot).version);
        self.versions.saw(slots.map(version).max().unwrap_or(0));
    }

    /// The failure of a request whose quantum was refused.
    pub(crate) fn refused(&self, error: OpenError) -> StoreError {
        self.tally.refused(error.reason);
        tracing::warn!(position = error.position, reason = %error.reason, "a quantum was refused");
        StoreError::Refused { offset: error.position * self.size.bytes() as u64, reason: error.into() }
    }

    /// Seals the plain text of some quanta of a request by `seal`, which gets it in one or more pieces, each with the
    /// number of its first quantum among them.
    pub(crate) fn seal_piece(
        &self,
        request: &Request,
        piece: &Range<u64>,
        mut seal: impl FnMut(&Codec, Sealing, usize, &[u8]),
    ) -> Result<(), StoreError> {
        let codec = self.codec();
        request.with_bytes(piece, |bytes| -> Result<(), StoreError> {
            if let Some(plain) = bytes {
                seal(&codec, self.sealing(piece.start)?, 0, plain);
                return Ok(());
            }
            let step = ZEROES.len() / self.size.bytes();
            for first in piece.clone().step_by(step) {
                let quanta = (piece.end - first).min(step as u64) as usize;
                let plain = &ZEROES[..quanta * self.size.bytes()];
                seal(&codec, self.sealing(first)?, (first - piece.start) as usize, plain);
            }
            Ok(())
        })?;
        Tally::add(&self.tally.sealed, piece.end - piece.start);
        Ok(())
    }
}

fn take_from(pool: &Pool, len: usize) -> Option<Buffer> {
    pool.take(len).or_else(|| {
        pool.await_return();
        pool.take(len)
    })
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.mailbox.stop();
    }
}
