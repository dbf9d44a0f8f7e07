//! Exports: stores under names.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{fmt, io};

use lunette_store::{Completion, Op, Store, StoreError};

use crate::SharedIo;
use crate::limits::{LAST_FLUSH_TIMEOUT, MAX_BLOCK_LEN, MAX_PAYLOAD_LEN};
use crate::wire::can;

/// A store under a name.
#[derive(Clone)]
pub struct Export {
    name: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) read_only: bool,
}

/// The error for a store whose block length NBD cannot express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("blocks of {0} bytes cannot be served: NBD has powers of two up to {MAX_BLOCK_LEN} bytes")]
pub struct BlockLenError(u32);

impl Export {
    /// Exports `store` as `name`, for reading alone when `read_only` is set or the store cannot write.
    ///
    /// # Errors
    ///
    /// [`BlockLenError`]. Clients may only address whole blocks of the store.
    pub fn new(name: impl Into<String>, store: Arc<dyn Store>, read_only: bool) -> Result<Self, BlockLenError> {
        let block_len = store.geometry().granularity_bytes.max(1);
        if !block_len.is_power_of_two() || block_len > MAX_BLOCK_LEN {
            return Err(BlockLenError(block_len));
        }
        let read_only = read_only || store.capabilities().read_only;
        Ok(Self { name: name.into(), store, read_only })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Flushes the store.
    ///
    /// # Errors
    ///
    /// When that fails, or takes longer than [`LAST_FLUSH_TIMEOUT`].
    pub fn flush(&self, io: &SharedIo) -> io::Result<()> {
        self.flush_within(LAST_FLUSH_TIMEOUT, io)
    }

    fn flush_within(&self, limit: Duration, io: &SharedIo) -> io::Result<()> {
        let (tx, rx) = mpsc::channel::<Result<(), StoreError>>();
        let done = Completion::call(move |outcome| {
            // After the time limit no receiver is left.
            let _ = tx.send(outcome.result);
        });
        self.store.submit(Op::Flush, &**io, done);
        match rx.recv_timeout(limit) {
            Ok(result) => result.map_err(io::Error::other),
            Err(RecvTimeoutError::Timeout) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the last flush took longer than {limit:?}; writes that clients have not flushed may be lost"),
            )),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the store has dropped the last flush")),
        }
    }

    /// The length of the store in bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.store.geometry().len_bytes
    }

    /// The minimum, preferred and maximum length of a request in bytes ("Block size constraints").
    pub(crate) fn block_sizes(&self) -> [u32; 3] {
        let geometry = self.store.geometry();
        let least = geometry.granularity_bytes.max(1);
        let preferred = geometry.physical_bytes.max(4096).max(least).min(MAX_PAYLOAD_LEN);
        [least, preferred, MAX_PAYLOAD_LEN]
    }

    /// The transmission flags. All connections lead to the same blocks, so a flush on one covers the writes that were
    /// answered on another: `CAN_MULTI_CONN`.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        let capabilities = self.store.capabilities();
        let mut flags = can::HAS_FLAGS | can::FLUSH | can::FUA | can::MULTI_CONN;
        if structured {
            flags |= can::DF;
        }
        if self.read_only {
            return flags | can::READ_ONLY;
        }
        flags |= can::WRITE_ZEROES | can::FAST_ZERO;
        if capabilities.unmap {
            flags |= can::TRIM;
        }
        flags
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("name", &self.name).field("read_only", &self.read_only).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lunette_store::filters::Delay;
    use lunette_store::{Capabilities, FileIo, Geometry, InlineIo, MemoryStore};

    use super::*;

    /// A store that only has a geometry: no request may reach it.
    struct Shape(Geometry);

    impl Store for Shape {
        fn geometry(&self) -> Geometry {
            self.0
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }

        fn submit(&self, op: Op, _: &dyn FileIo, _: Completion) {
            panic!("{op:?}");
        }
    }

    fn export(granularity_bytes: u32, physical_bytes: u32) -> Result<Export, BlockLenError> {
        let geometry = Geometry { len_bytes: 1 << 30, granularity_bytes, physical_bytes, unmap_bytes: 0 };
        Export::new("disk", Arc::new(Shape(geometry)), true)
    }

    #[test]
    fn blocks_that_nbd_cannot_express_are_refused() {
        for block_len in [513, 520, 1000, 1 << 17, 1 << 25, u32::MAX] {
            assert_eq!(export(block_len, block_len).err(), Some(BlockLenError(block_len)));
        }
        for (block_len, physical, sizes) in [
            (0, 0, [1, 4096, MAX_PAYLOAD_LEN]),
            (512, 4096, [512, 4096, MAX_PAYLOAD_LEN]),
            (1 << 16, 512, [1 << 16, 1 << 16, MAX_PAYLOAD_LEN]),
            (512, 1 << 31, [512, MAX_PAYLOAD_LEN, MAX_PAYLOAD_LEN]),
        ] {
            assert_eq!(export(block_len, physical).unwrap().block_sizes(), sizes);
        }
    }

    #[test]
    fn a_store_that_does_not_answer_the_last_flush_does_not_hold_up_the_stop() {
        let store = Arc::new(Delay::new(Arc::new(MemoryStore::new(1 << 20).expect("memory"))));
        let export = Export::new(String::new(), Arc::clone(&store) as _, false).expect("an export");
        let io: SharedIo = Arc::new(InlineIo);
        store.hold();
        let error = export.flush_within(Duration::from_millis(1), &io).expect_err("no answer");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        store.release();
        export.flush(&io).expect("an answer");
    }
}
