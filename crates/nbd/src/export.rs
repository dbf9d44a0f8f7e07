//! What is served: a store under a name.

use std::fmt;
use std::sync::Arc;

use lunette_store::Store;

use crate::limits::MAX_PAYLOAD_LEN;
use crate::wire::can;

/// A store under a name. The name without a letter, which clients use when they are not told one, means it too.
#[derive(Clone)]
pub struct Export {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) read_only: bool,
}

impl Export {
    /// Serves `store` as `name`; never writes when `read_only` is set or the store cannot.
    pub fn new(name: impl Into<String>, store: Arc<dyn Store>, read_only: bool) -> Self {
        let read_only = read_only || store.capabilities().read_only;
        Self { name: name.into(), store, read_only }
    }

    /// Whether a client that says `name` means this export.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        name.is_empty() || name == self.name
    }

    /// Bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.store.geometry().len_bytes
    }

    /// Least, preferred and most bytes of a request ("Block size constraints").
    pub(crate) fn block_sizes(&self) -> [u32; 3] {
        let geometry = self.store.geometry();
        let least = geometry.granularity_bytes.max(1);
        [least, geometry.physical_bytes.max(4096).max(least), MAX_PAYLOAD_LEN]
    }

    /// Transmission flags. Several connections see one store, so a flush on one covers the writes that were answered on
    /// another: `CAN_MULTI_CONN`.
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
