//! Reads of quanta whose key is not known yet, and wait for it.
//!
//! Another client may seal with a new key before this one has it. Where someone fetches keys for the volume while it is
//! open, such a read waits until [`Volume::set_keys`] has brought its key, or [`Volume::refuse_waiting`] says that it
//! has waited for long enough. It holds no buffer of the volume meanwhile, and then reads once more: its quanta may
//! have changed.
//!
//! [`Volume::set_keys`]: crate::Volume::set_keys
//! [`Volume::refuse_waiting`]: crate::Volume::refuse_waiting

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lunette_quanta::{Codec, OpenError, Reason};

use crate::limits::MAX_WAITING_FOR_KEYS;
use crate::request::Request;

/// A piece of a read that waits.
struct Waiting {
    request: Arc<Request>,
    piece: Range<u64>,
    /// The error when the key does not come.
    error: OpenError,
    epoch: u32,
    since: Instant,
}

/// The reads of a volume that wait for keys.
pub(crate) struct AwaitedKeys {
    /// Whether keys are fetched for the volume.
    are_fetched: bool,
    waiting: Mutex<Vec<Waiting>>,
}

impl AwaitedKeys {
    pub(crate) fn new(are_fetched: bool) -> Self {
        Self { are_fetched, waiting: Mutex::default() }
    }

    /// Lets a piece that could not be opened wait for its key. False when it failed for another reason, when no keys
    /// are fetched, or when too many wait.
    pub(crate) fn add(&self, request: &Request, piece: &Range<u64>, error: OpenError) -> bool {
        let (Reason::UnknownEpoch(epoch), true) = (error.reason, self.are_fetched) else { return false };
        let mut list = self.list();
        if list.len() >= MAX_WAITING_FOR_KEYS {
            return false;
        }
        list.push(Waiting { request: request.me(), piece: piece.clone(), error, epoch, since: Instant::now() });
        let is_first = list.len() == 1;
        drop(list);
        if is_first {
            tracing::warn!(epoch, position = error.position, "a quantum needs a key that is not known; its read waits");
        }
        true
    }

    /// Takes the pieces out that `codec` has the key of.
    pub(crate) fn take_known(&self, codec: &Codec) -> Vec<(Arc<Request>, Range<u64>)> {
        let mut list = self.list();
        let known = list.extract_if(.., |waiting| codec.keys().has(waiting.epoch));
        known.map(|Waiting { request, piece, .. }| (request, piece)).collect()
    }

    /// How many reads wait, and since when the first of them.
    pub(crate) fn oldest(&self) -> Option<(usize, Instant)> {
        let list = self.list();
        Some((list.len(), list.iter().map(|waiting| waiting.since).min()?))
    }

    /// Takes the pieces out that have been waiting since `since`, or for longer, each with its error.
    pub(crate) fn take_since(&self, since: Instant) -> Vec<(Arc<Request>, Range<u64>, OpenError)> {
        let mut list = self.list();
        let late = list.extract_if(.., |waiting| waiting.since <= since);
        late.map(|Waiting { request, piece, error, .. }| (request, piece, error)).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
