//! Short requests of a native volume, sealed and opened together.
//!
//! A cipher works on eight quanta side by side in little more time than on one or two, and the seed of a write costs a
//! system call. So a request of a few quanta waits for others: until there are enough of them, or until the
//! [turn](lunette_reactor::Turn) of its thread ends. Outside of a turn nothing waits, and neither does a write whose
//! unit needs the submitter's [`FileIo`](lunette_store::FileIo).

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrayvec::ArrayVec;
use lunette_buffer::Buffer;
use lunette_quanta::{OpenRun, SealRun};
use lunette_reactor::{Turn, TurnEnd, at_turn_end};
use lunette_store::InlineIo;

use crate::find::random_seed;
use crate::request::{OpenVolume, Request};
use crate::shared::Shared;

/// Quanta that are sealed or opened together. Longer requests wait for no others.
const MAX_TOGETHER: usize = 8;

/// A request that waits: its plain text, and its EDUs.
struct Waiting {
    request: Arc<Request>,
    plain: Buffer,
    edus: Buffer,
}

/// Requests of at least one quantum each, fewer than [`MAX_TOGETHER`] until the last one came.
type Batch = ArrayVec<Waiting, MAX_TOGETHER>;

/// The requests of a volume that wait for others.
#[derive(Default)]
pub(crate) struct Together {
    sealing: Mutex<Batch>,
    opening: Mutex<Batch>,
}

/// Adds a request, and gives the batch if it is full.
fn add(batch: &Mutex<Batch>, waiting: Waiting) -> Option<Batch> {
    let mut batch = batch.lock().unwrap_or_else(PoisonError::into_inner);
    batch.push(waiting);
    let quanta = batch.iter().map(|waiting| waiting.request.quanta()).sum::<usize>();
    (quanta >= MAX_TOGETHER).then(|| std::mem::take(&mut *batch))
}

fn take(batch: &Mutex<Batch>) -> Batch {
    std::mem::take(&mut *batch.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether a piece is to wait for others.
pub(crate) fn waits_for_others(request: &Request, piece: &Range<u64>) -> bool {
    *piece == request.range && request.quanta() < MAX_TOGETHER && Turn::is_open()
}

impl Shared {
    /// Has a whole write sealed into `edus`, and then written, with others.
    pub(crate) fn seal_with_others(&self, request: &Arc<Request>, plain: Buffer, edus: Buffer) {
        let waiting = Waiting { request: Arc::clone(request), plain, edus };
        match add(&self.together.sealing, waiting) {
            Some(batch) => self.seal_batch(batch),
            None => at_turn_end(Arc::<dyn OpenVolume>::clone(&request.volume)),
        }
    }

    /// Has the `edus` of a whole read opened with others.
    pub(crate) fn open_with_others(&self, request: Arc<Request>, plain: Buffer, edus: Buffer) {
        let volume = Arc::clone(&request.volume);
        match add(&self.together.opening, Waiting { request, plain, edus }) {
            Some(batch) => self.open_batch(batch),
            None => at_turn_end(volume),
        }
    }

    fn seal_batch(&self, mut batch: Batch) {
        let sealed = random_seed().map(|seed| {
            let runs = batch.iter_mut().map(|Waiting { request, plain, edus }| SealRun {
                position: request.range.start,
                version: self.owners.seals.next_version(),
                plain,
                edus,
            });
            self.owners.seals.codec().seal_runs(seed, runs);
        });
        for Waiting { request, plain, edus } in batch {
            request.put_back(plain);
            let quanta = request.range.end - request.range.start;
            if let Err(error) = sealed {
                request.ended(quanta, Err(io::Error::other(error).into()));
                continue;
            }
            self.owners.seals.sealed(quanta);
            self.write_native(&request, edus, &InlineIo);
        }
    }

    fn open_batch(&self, mut batch: Batch) {
        let runs = batch.iter_mut().map(|Waiting { request, plain, edus }| OpenRun {
            position: request.range.start,
            edus,
            plain,
        });
        let opened = self.owners.seals.codec().open_runs(runs);
        for Waiting { request, plain, edus } in batch {
            request.put_back(plain);
            let piece = request.range.clone();
            // One that cannot be opened fails them all, and only its own request is to fail.
            let result = match opened {
                Ok(()) => self.opened_native(&request, &piece, &edus),
                Err(_) => self.open_native(&request, &piece, &edus),
            };
            self.native_read(&request, &piece, edus, result);
        }
    }
}

impl TurnEnd for Shared {
    fn turn_ended(&self) {
        let batches = [&self.together.sealing, &self.together.opening].map(take);
        let [sealing, opening] = batches;
        if !sealing.is_empty() {
            self.seal_batch(sealing);
        }
        if !opening.is_empty() {
            self.open_batch(opening);
        }
    }
}
