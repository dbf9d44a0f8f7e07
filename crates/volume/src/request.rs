//! A request to an open volume, from its submission to its end.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lunette_buffer::Buffer;
use lunette_quanta::{QuantumSize, SLOT_LEN, Slot};
use lunette_reactor::TurnEnd;
use lunette_store::{Completion, CompletionSink, Outcome, StoreError};

use crate::ranges::ClaimId;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    /// Seal what is in the buffer, or zeroes when there is none.
    Write {
        fua: bool,
    },
    /// The quanta become holes.
    Holes {
        fua: bool,
        /// Whether the unit is to free the space of a native volume by an unmap rather than zero it.
        unmap: bool,
        may_unmap: bool,
    },
}

impl What {
    pub(crate) fn fua(self) -> bool {
        matches!(self, Self::Write { fua: true } | Self::Holes { fua: true, .. })
    }
}

/// The volume of a request, as its requests know it.
pub(crate) trait OpenVolume: TurnEnd {
    /// Gives up the claim of a request that ends.
    fn release(&self, claim: ClaimId);

    /// The unit has ended the piece of a request that begins with quantum `first`. Only native volumes have such.
    fn piece_ended(&self, request: &Request, first: u64, outcome: Outcome);
}

/// A request that is made of the unit in pieces. It is the one allocation of a request that fits one piece: the
/// completions of the requests below refer to it by a count and a tag.
pub(crate) struct Request {
    pub(crate) me: Weak<Self>,
    pub(crate) volume: Arc<dyn OpenVolume>,
    size: QuantumSize,
    pub(crate) what: What,
    /// The quanta.
    pub(crate) range: Range<u64>,
    /// Whether its submitter has the range to itself, so that no claim must be made for it.
    pub(crate) alone: bool,
    /// The quanta that have not ended.
    left: AtomicU64,
    /// The oldest epoch of what was opened for the request. Only kept when it is `alone`.
    oldest_epoch: AtomicU32,
    body: Mutex<Body>,
}

struct Body {
    buffer: Option<Buffer>,
    failed: Option<StoreError>,
    claim: Option<ClaimId>,
    done: Option<Completion>,
}

impl Request {
    /// A request for at least one quantum.
    pub(crate) fn new(
        volume: Arc<dyn OpenVolume>,
        size: QuantumSize,
        what: What,
        range: Range<u64>,
        buffer: Option<Buffer>,
        alone: bool,
        done: Completion,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            volume,
            size,
            what,
            alone,
            oldest_epoch: AtomicU32::new(u32::MAX),
            left: AtomicU64::new(range.end - range.start),
            range,
            body: Mutex::new(Body { buffer, failed: None, claim: None, done: Some(done) }),
        })
    }

    pub(crate) fn me(&self) -> Arc<Self> {
        self.me.upgrade().expect("whoever calls holds it")
    }

    /// The claim that the request gives up at its end.
    pub(crate) fn set_claim(&self, claim: ClaimId) {
        self.body().claim = Some(claim);
    }

    /// Takes note of the slots of quanta that were opened for the request, holes among them.
    pub(crate) fn opened<'a>(&self, slots: impl Iterator<Item = &'a [u8]>) {
        if self.alone {
            let slots = slots.filter_map(|slot| slot.first_chunk::<SLOT_LEN>()).filter(|slot| **slot != [0; SLOT_LEN]);
            let oldest = slots.map(|slot| Slot::decode(slot).epoch).min();
            self.oldest_epoch.fetch_min(oldest.unwrap_or(u32::MAX), Ordering::AcqRel);
        }
    }

    /// The oldest epoch of the quanta that were opened; `u32::MAX` when there was none.
    pub(crate) fn oldest_epoch(&self) -> u32 {
        self.oldest_epoch.load(Ordering::Acquire)
    }

    /// How many quanta it is about.
    pub(crate) fn quanta(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Takes the buffer, for work on several requests at once. It has to be [put back](Self::put_back) before the
    /// request ends.
    pub(crate) fn take_buffer(&self) -> Option<Buffer> {
        self.body().buffer.take()
    }

    pub(crate) fn put_back(&self, buffer: Buffer) {
        self.body().buffer = Some(buffer);
    }

    /// Works on the bytes of some of the quanta; `None` for a write without a buffer, which is one of zeroes.
    pub(crate) fn with_bytes<T>(&self, range: &Range<u64>, work: impl FnOnce(Option<&mut [u8]>) -> T) -> T {
        let len = self.size.bytes();
        let from = (range.start - self.range.start) as usize * len;
        let until = (range.end - self.range.start) as usize * len;
        work(self.body().buffer.as_mut().map(|buffer| &mut buffer[from..until]))
    }

    /// Some of the quanta have ended. With the last of them the request ends.
    pub(crate) fn ended(&self, quanta: u64, result: Result<(), StoreError>) {
        if let Err(error) = result {
            let mut body = self.body();
            if is_first(body.failed.as_ref(), &error) {
                body.failed = Some(error);
            }
        }
        if self.left.fetch_sub(quanta, Ordering::AcqRel) == quanta {
            self.finish();
        }
    }

    fn finish(&self) {
        let (mut buffer, failed, claim, done) = {
            let mut body = self.body();
            (body.buffer.take(), body.failed.take(), body.claim.take(), body.done.take())
        };
        if let Some(claim) = claim {
            self.volume.release(claim);
        }
        let result = failed.map_or(Ok(()), |error| Err(of_unit(error)));
        if let Some(bytes) = buffer.as_mut().filter(|_| self.what == What::Read && result.is_err()) {
            // Pieces that were opened before another one failed are right, but nothing says which they are.
            bytes.fill(0);
        }
        if let Some(done) = done {
            done.complete(Outcome::new(result, buffer));
        }
    }

    fn body(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A failure of the unit, as the volume tells it. The request was checked, so what lies out of range is lost: the unit
/// has become shorter than the volume, whose own length is that of its header.
fn of_unit(error: StoreError) -> StoreError {
    match error {
        StoreError::OutOfRange { .. } => StoreError::Io(io::Error::other(error)),
        other => other.elsewhere(),
    }
}

/// Whether an error is to be told rather than the one that is there: of bytes that were refused, those that come first.
fn is_first(present: Option<&StoreError>, error: &StoreError) -> bool {
    match (present, error) {
        (None, _) => true,
        (Some(StoreError::Refused { offset: present, .. }), StoreError::Refused { offset, .. }) => offset < present,
        (Some(_), _) => false,
    }
}

impl CompletionSink for Request {
    /// A piece of a native volume has ended; `tag` is its first quantum.
    fn complete(&self, tag: u64, outcome: Outcome) {
        self.volume.piece_ended(self, tag, outcome);
    }
}
