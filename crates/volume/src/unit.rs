//! The unit below a volume, for work that waits for it.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;

use lunette_buffer::{Buffer, Pool};
use lunette_store::{Completion, InlineIo, Op, Outcome, Store, StoreError, execute};

use crate::VolumeError;
use crate::limits::{TOOL_DEPTH, TOOL_POOL_BYTES};

/// Bytes of one request that zeroes a part of the unit.
const ZERO_BYTES: u64 = 256 << 20;

/// The unit below a volume, and buffers for the work of one thread.
pub(crate) struct Unit {
    pub(crate) store: Arc<dyn Store>,
    pool: Pool,
}

impl Unit {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), pool: Pool::new(TOOL_POOL_BYTES) }
    }

    /// A buffer with bytes of earlier users. One thread holds at most [`TOOL_DEPTH`] of the longest ones.
    pub(crate) fn take(&self, len: usize) -> Result<Buffer, StoreError> {
        self.pool
            .take(len)
            .ok_or_else(|| io::Error::new(io::ErrorKind::OutOfMemory, "no buffer for the request").into())
    }

    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Buffer, StoreError> {
        let outcome = execute(&*self.store, Op::Read { offset, into: self.take(len)? });
        filled(outcome)
    }

    /// Writes `bytes` and zeroes behind them, `len` bytes in all.
    pub(crate) fn write_padded(&self, offset: u64, bytes: &[u8], len: usize) -> Result<(), StoreError> {
        let mut from = self.take(len)?;
        let (head, rest) = from.split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        rest.fill(0);
        execute(&*self.store, Op::Write { offset, from, fua: false }).result
    }

    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        execute(&*self.store, Op::Flush).result
    }

    /// Zeroes `len` bytes from `offset`, and frees them where the unit can. `each` hears of the bytes that are done.
    pub(crate) fn zero(&self, offset: u64, len: u64, mut each: impl FnMut(u64)) -> Result<(), StoreError> {
        let granularity = u64::from(self.store.geometry().granularity_bytes);
        let step = (ZERO_BYTES / granularity * granularity).max(granularity);
        let mut done = 0;
        while done < len {
            let now = step.min(len - done);
            execute(&*self.store, Op::WriteZeroes { offset: offset + done, len: now, may_unmap: true, fua: false })
                .result?;
            done += now;
            each(done);
        }
        Ok(())
    }

    /// Submits the requests that `next` gives until it gives none, [`TOOL_DEPTH`] at a time, and brings each end to
    /// `each`, in any order. Ends with the first failure of either, when everything that was submitted has ended.
    pub(crate) fn run<T: Send + 'static, E>(
        &self,
        mut next: impl FnMut() -> Result<Option<(T, Op)>, E>,
        mut each: impl FnMut(T, Outcome) -> Result<(), E>,
    ) -> Result<(), E> {
        let (tx, rx) = channel();
        let (mut under_way, mut result) = (0, Ok(()));
        loop {
            while under_way < TOOL_DEPTH && result.is_ok() {
                match next() {
                    Ok(Some((what, op))) => {
                        let tx = tx.clone();
                        under_way += 1;
                        // The receiver is dropped when nothing is under way.
                        let done = Completion::call(move |outcome| drop(tx.send((what, outcome))));
                        self.store.submit(op, &InlineIo, done);
                    }
                    Ok(None) => break,
                    Err(error) => result = Err(error),
                }
            }
            if under_way == 0 {
                return result;
            }
            let (what, outcome) = rx.recv().expect("a store ends every request");
            under_way -= 1;
            let ended = each(what, outcome);
            if result.is_ok() {
                result = ended;
            }
        }
    }
}

/// The buffer of a read that has succeeded.
pub(crate) fn filled(outcome: Outcome) -> Result<Buffer, StoreError> {
    outcome.result?;
    outcome.buffer.ok_or_else(no_buffer)
}

/// The error of a store that broke its contract.
pub(crate) fn no_buffer() -> StoreError {
    io::Error::other("the unit's store has kept the buffer of a request").into()
}

/// Says what failed, for people.
pub(crate) fn doing(doing: &'static str) -> impl Fn(StoreError) -> VolumeError {
    move |error| VolumeError::Unit { doing, error }
}
