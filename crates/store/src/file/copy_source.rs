//! Bytes that the system copies from one file to another by itself.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::StoreError;

/// The file behind a store, for [`Op::Copy`](crate::Op::Copy) into another store.
#[derive(Debug, Clone)]
pub struct CopySource(pub(crate) Arc<File>);

impl CopySource {
    /// Whether the system may copy from here to `to` without moving the bytes: both are regular files of one file system,
    /// which then may share the blocks (reflinks) or copy on its own side (NFS).
    pub(crate) fn is_near(&self, to: &File) -> bool {
        let (Ok(from), Ok(to)) = (self.0.metadata(), to.metadata()) else { return false };
        from.is_file() && to.is_file() && from.dev() == to.dev()
    }
}

/// How a store that copies from nowhere ends [`Op::Copy`](crate::Op::Copy).
pub(crate) fn unsupported() -> StoreError {
    StoreError::Io(io::Error::new(ErrorKind::Unsupported, "the store cannot copy from others"))
}
