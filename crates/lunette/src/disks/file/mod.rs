//! Disks in files and block devices, named by their paths.

mod look;
mod served;
mod watch;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lunette_store::{FileStore, OpenOptions};

use super::kind::{Kind, Opened};
use crate::failure::Failure;
pub(crate) use look::{Reopening, warn_of_partial_block};
pub(crate) use served::{follow, identities_at, is_replaced, lengths, replaced, served};

/// The path of a file or block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePath(pub(crate) PathBuf);

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Kind for FilePath {
    fn identity(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.0)
    }

    fn open(&self, options: &OpenOptions) -> Result<Opened, Failure> {
        let store = Arc::new(FileStore::open(&self.0, options).map_err(Failure::disk)?);
        Ok(Opened { file: Some(Arc::clone(&store)), ..Opened::new(store) })
    }
}
