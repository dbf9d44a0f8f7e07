//! Sources of copies that the operating system makes from file to file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The file behind a store, for [`Op::Copy`](crate::Op::Copy) into another store.
#[derive(Debug, Clone)]
pub struct CopySource(pub(crate) Arc<File>);

impl CopySource {
    /// Whether the system may copy from this file to `to` without moving the bytes: both are regular files of one file
    /// system, which may then share the blocks (reflinks) or copy on the server (NFS).
    pub(crate) fn is_near(&self, to: &File) -> bool {
        let (Ok(from), Ok(to)) = (self.0.metadata(), to.metadata()) else { return false };
        from.is_file() && to.is_file() && from.dev() == to.dev()
    }
}
