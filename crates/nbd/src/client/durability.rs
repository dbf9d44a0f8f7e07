//! The account of what is on stable storage.

use std::io;
use std::sync::{Arc, OnceLock};

use lunette_store::{Op, StoreError, Unflushed};

/// The account of writes that are not flushed, and of the first flush that failed.
///
/// The protocol does not tell whether a server that comes back is the one that was lost, with its cache. So each
/// connection counts as a life of the cache.
#[derive(Debug)]
pub(crate) struct Durability {
    /// Whether acknowledged writes may be lost until they are flushed.
    has_cache: bool,
    unflushed: Unflushed,
    /// The error of the first flush that failed. What the server lost stays lost, so no later flush succeeds.
    failed_flush: OnceLock<Arc<io::Error>>,
}

impl Durability {
    pub(crate) fn new(has_cache: bool) -> Self {
        Self { has_cache, unflushed: Unflushed::new(), failed_flush: OnceLock::new() }
    }

    /// Begins a request. Gives the number of a flush.
    pub(crate) fn begin(&self, op: &Op) -> Result<Option<u64>, StoreError> {
        let is_flush = matches!(op, Op::Flush);
        match self.failed_flush.get() {
            Some(earlier) if is_flush || op.fua() => Err(StoreError::FlushFailed(Arc::clone(earlier))),
            _ => Ok(is_flush.then(|| self.unflushed.begin())),
        }
    }

    /// Says that a request has succeeded on the connection with this number. The result is its result in the store.
    pub(crate) fn succeeded(&self, op: &Op, flush: Option<u64>, connection: u64) -> Result<(), StoreError> {
        match op {
            Op::Write { fua: false, .. } | Op::WriteZeroes { fua: false, .. } | Op::Unmap { .. } if self.has_cache => {
                self.unflushed.add(connection);
                Ok(())
            }
            Op::Flush if flush.is_some_and(|flush| !self.unflushed.end(flush, connection)) => {
                let why = "the connection was lost with writes in the server's cache";
                Err(self.flush_failed(io::Error::other(why)))
            }
            _ => Ok(()),
        }
    }

    /// The error of a flush that has failed, now or earlier.
    pub(crate) fn flush_failed(&self, error: io::Error) -> StoreError {
        StoreError::FlushFailed(Arc::clone(self.failed_flush.get_or_init(|| Arc::new(error))))
    }
}

#[cfg(test)]
mod tests {
    use lunette_buffer::Pool;

    use super::*;

    fn write(fua: bool) -> Op {
        Op::Write { offset: 0, from: Pool::new(4096).take(512).unwrap(), fua }
    }

    fn flush(durability: &Durability, connection: u64) -> Result<(), StoreError> {
        let flush = durability.begin(&Op::Flush)?;
        durability.succeeded(&Op::Flush, flush, connection)
    }

    #[test]
    fn a_flush_after_a_lost_connection_does_not_vouch_for_writes_before_it() {
        let durability = Durability::new(true);
        durability.succeeded(&write(false), None, 1).unwrap();
        flush(&durability, 1).unwrap();
        flush(&durability, 2).unwrap();
        durability.succeeded(&write(false), None, 2).unwrap();
        let begun = durability.begin(&Op::Flush).unwrap();
        assert!(durability.succeeded(&Op::Flush, begun, 3).is_err());
        assert!(flush(&durability, 3).is_err(), "no flush after it succeeds");
        assert!(durability.begin(&write(true)).is_err(), "nor a write with FUA");
        assert!(durability.begin(&write(false)).is_ok());
    }

    #[test]
    fn what_is_written_through_needs_no_flush() {
        let durability = Durability::new(true);
        durability.succeeded(&write(true), None, 1).unwrap();
        flush(&durability, 2).unwrap();
        let through = Durability::new(false);
        through.succeeded(&write(false), None, 1).unwrap();
        flush(&through, 2).unwrap();
    }
}
