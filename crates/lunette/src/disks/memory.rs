//! Disks in memory: `mem:SIZE`. They end with the process.

use std::fmt;
use std::sync::{Arc, LazyLock};

use lunette_store::{MemoryStore, OpenOptions, Store};

use super::kind::{Kind, Opened};
use crate::failure::Failure;
use crate::size::Size;

/// The reason against a disk in memory for a command that ends, and the remedy.
pub(crate) const ENDS_WITH_THE_COMMAND: &str = "a disk in memory ends with the command; name a file or an iSCSI disk";

/// Memory of this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory(pub(crate) Size);

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size(bytes) = self.0;
        write!(f, "mem:{bytes}")
    }
}

impl Kind for Memory {
    fn identity(&self) -> Option<String> {
        None
    }

    fn named_len(&self) -> Option<Size> {
        Some(self.0)
    }

    fn refuses_full(&self) -> Option<&'static str> {
        Some("memory is always thin; leave out provisioning")
    }

    fn open(&self, options: &OpenOptions) -> Result<Opened, Failure> {
        let Size(bytes) = self.0;
        let store = MemoryStore::new(bytes)
            .ok_or_else(|| Failure::disk(format!("{self}: a disk of that size cannot be made")))?;
        Ok(opened(if options.any_length { store.exact() } else { store }))
    }
}

/// A disk that is this memory.
pub(crate) fn opened(store: MemoryStore) -> Opened {
    let store = Arc::new(store);
    Opened { memory: Some(Arc::clone(&store)), ..Opened::new(store) }
}

/// The store of a unit whose disk is not open.
pub(crate) fn no_bytes() -> Arc<dyn Store> {
    static NO_BYTES: LazyLock<Arc<MemoryStore>> =
        LazyLock::new(|| Arc::new(MemoryStore::new(0).expect("no bytes fit anywhere")));
    NO_BYTES.clone()
}
