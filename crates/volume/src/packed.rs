//! Packed volumes: the driver of the journal.
//!
//! The order of what is written is that of [`lunette_quanta::packed`]. What this driver adds to it:
//!
//! - **Records.** Writes are queued, and a record takes as many of them as fit. While [`MAX_RECORDS_UNDER_WAY`] are
//!   written, later writes gather for the next one. A write that finds nothing under way is written at once.
//! - **Reads** register with the generation of readers before they look where their quanta are, and sign off when they
//!   have read. A checkpoint waits for the readers that may still read what it is about to overwrite: in the places of
//!   the quanta that it moves, before it moves them, and in the records that it has freed, before they are used again.
//!   So no read of this volume meets a torn quantum.
//! - **Another writer.** Before each checkpoint the tails are read again. When another client has opened the volume for
//!   writing since this one did, this one is closed as below.
//! - **Notes** of what was flushed are written after flushes ([`notes`]).
//! - **Failures.** A record whose write has failed is given up, and its requests fail. When a checkpoint cannot move
//!   quanta, the requests that wait for room fail, and the next one tries again. When a flush or the write of a tail
//!   has failed, it is not known what the medium holds: the volume is *closed* for changes and flushes, and says so,
//!   until it is opened again.

pub(crate) mod checkpoint;
pub(crate) mod journal;
mod notes;
pub(crate) mod read;
mod readers;
mod write;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lunette_quanta::packed::record::Shape;
use lunette_quanta::packed::{Journal, Layout};
use lunette_store::{InlineIo, StoreError};

use crate::anchor::{Anchor, version};
use crate::limits::{MAX_LIVE, MAX_PIECE_BYTES};
use crate::owners::Owners;
use crate::packed::journal::block_len;
use crate::packed::notes::Notes;
use crate::packed::readers::Readers;
use crate::request::Request;
use crate::unit::Unit;

/// The driver of a packed volume.
pub(crate) struct Packed {
    owners: Owners,
    layout: Layout,
    /// Bytes of the longest record that is made.
    record_bytes: usize,
    state: Mutex<State>,
    /// Readers have signed off.
    readers_left: Condvar,
    /// A note was written.
    note_left: Condvar,
    /// The unit for the work of checkpoints, of which one is made at a time.
    checkpoints: Mutex<Unit>,
}

struct State {
    journal: Journal,
    /// Writes whose records are still to be made, each with the next quantum.
    queue: VecDeque<(Arc<Request>, u64)>,
    /// Records that are being written.
    under_way: usize,
    readers: Readers,
    notes: Notes,
    /// Bytes of the records since the last checkpoint began.
    since_checkpoint: u64,
    /// The first write of the queue found no room.
    full: bool,
    /// Readers may still read records that were freed.
    freeing: bool,
    /// The volume was dropped: no checkpoint begins that no request waits for.
    dropped: bool,
    /// Why the volume is closed for changes and flushes.
    closed: Option<Arc<io::Error>>,
}

impl State {
    fn refuse_if_closed(&self) -> Result<(), StoreError> {
        self.closed.as_ref().map_or(Ok(()), |why| Err(StoreError::FlushFailed(Arc::clone(why))))
    }
}

impl Packed {
    pub(crate) fn new(owners: Owners, layout: Layout, journal: Journal, unit: Unit) -> Self {
        let one = |quanta| Shape { sealed: quanta, holes: 0 }.len(&layout);
        if journal.missing() > 0 {
            tracing::warn!(
                records = journal.missing(),
                "records of the journal are not whole although later ones are: their writes failed or were not flushed before a power cut, or they are damaged"
            );
        }
        // A quarter of the journal, so that records are written while a checkpoint frees others.
        let quarter = (journal.longest_record() / 4) as usize;
        let state = State {
            journal,
            queue: VecDeque::new(),
            under_way: 0,
            readers: Readers::default(),
            notes: Notes::default(),
            since_checkpoint: 0,
            full: false,
            freeing: false,
            dropped: false,
            closed: None,
        };
        Self {
            owners,
            layout,
            record_bytes: quarter.clamp(one(1), MAX_PIECE_BYTES),
            state: Mutex::new(state),
            readers_left: Condvar::new(),
            note_left: Condvar::new(),
            checkpoints: Mutex::new(unit),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether enough is in the journal for a checkpoint that nothing waits for yet.
    fn is_due(&self, state: &State) -> bool {
        let is_half_full =
            state.since_checkpoint > self.layout.journal_len() / 2 || state.journal.live_len() >= MAX_LIVE;
        state.full || (is_half_full && !state.dropped)
    }

    /// The handle of the volume is dropped. A checkpoint that is being made goes on: it may wait for readers, which end
    /// on the thread that calls this.
    pub(crate) fn drop_handle(&self) {
        self.state().dropped = true;
    }

    /// Waits for the checkpoint that is being made.
    pub(crate) fn wait_for_checkpoint(&self) {
        drop(self.checkpoints.lock());
    }

    /// Writes what waits, and makes the checkpoint that is due, on the volume's thread.
    pub(crate) fn see_to_journal(self: &Arc<Self>) {
        loop {
            self.write_records(&InlineIo);
            let due = {
                let state = self.state();
                self.is_due(&state) && state.closed.is_none() && state.journal.can_free()
            };
            if !due {
                return;
            }
            if let Err(error) = self.checkpoint() {
                tracing::warn!(%error, "a checkpoint failed");
                let full = {
                    let mut state = self.state();
                    // What waits for nothing yet tries again when as much has been written once more.
                    state.since_checkpoint = 0;
                    std::mem::take(&mut state.full)
                };
                if full {
                    self.fail_queue(error);
                }
                return;
            }
        }
    }

    /// Notes a failure after which it is not known what the medium holds.
    pub(crate) fn close_for_changes(&self, error: StoreError) -> StoreError {
        let mut state = self.state();
        let why = state.closed.get_or_insert_with(|| match error {
            StoreError::FlushFailed(why) => why,
            other => Arc::new(io::Error::other(other)),
        });
        StoreError::FlushFailed(Arc::clone(why))
    }

    /// The failure that changes and flushes have to expect.
    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        self.state().refuse_if_closed()
    }

    /// Records that were not whole when the volume was opened, although a later one was.
    pub(crate) fn missing_records(&self) -> u64 {
        self.state().journal.missing()
    }

    /// The first quantum of the journal that is older than the anchor knows, and how many there are.
    pub(crate) fn rolled_back(&self, anchor: &Anchor, quanta: u64) -> Option<(u64, u64)> {
        let state = self.state();
        let mut older =
            state.journal.live(0..quanta).filter(|(position, live)| anchor.is_newer(*position, version(&live.slot)));
        let (first, _) = older.next()?;
        Some((first, 1 + older.count() as u64))
    }

    fn block_len(&self) -> u64 {
        block_len(&self.layout)
    }
}
