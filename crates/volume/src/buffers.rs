//! The buffers of an open volume, and the requests that wait for some.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lunette_buffer::{Buffer, Pool};

use crate::limits::{POOL_BYTES, RECORD_POOL_BYTES};
use crate::mailbox::Mailbox;

/// The pools of a volume. Records have one of their own, so that reads cannot keep them out.
pub(crate) struct Buffers {
    pool: Pool,
    /// Buffers of records and notes.
    records: Pool,
    /// Requests that wait for buffers. Later ones wait behind them.
    waiting: AtomicUsize,
}

impl Buffers {
    /// Empty pools. `mailbox` hears of buffers that return after one was lacking.
    pub(crate) fn new(mailbox: &Arc<Mailbox>) -> Self {
        let [pool, records] = [POOL_BYTES, RECORD_POOL_BYTES].map(|bytes| {
            let (pool, mailbox) = (Pool::new(bytes), Arc::clone(mailbox));
            pool.when_back(move || mailbox.buffers_returned());
            pool
        });
        Self { pool, records, waiting: AtomicUsize::new(0) }
    }

    /// A buffer, or `None` and a wake-up when there may be one.
    pub(crate) fn take(&self, len: usize) -> Option<Buffer> {
        take_from(&self.pool, len)
    }

    /// A buffer for a record, or `None` and a wake-up when there may be one.
    pub(crate) fn take_for_record(&self, len: usize) -> Option<Buffer> {
        take_from(&self.records, len)
    }

    /// A buffer for a note, if there is one now.
    pub(crate) fn take_for_note(&self, len: usize) -> Option<Buffer> {
        self.records.take(len)
    }

    /// Room for buffers, or `None` and a wake-up when there may be room.
    pub(crate) fn room(&self, len: usize) -> Option<Buffer> {
        self.pool.reserve(len).or_else(|| {
            self.pool.await_return();
            self.pool.reserve(len)
        })
    }

    /// Whether requests wait for buffers.
    pub(crate) fn are_awaited(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// One more request waits.
    pub(crate) fn one_waits(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// A request that waited has all of its buffers.
    pub(crate) fn one_goes_on(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

fn take_from(pool: &Pool, len: usize) -> Option<Buffer> {
    pool.take(len).or_else(|| {
        pool.await_return();
        pool.take(len)
    })
}
