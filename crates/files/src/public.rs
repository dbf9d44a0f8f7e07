//! Files of secrets that other users of the machine may read.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::Content;

/// Files that the log has a warning of. Secrets are read again with each change, and one warning is enough.
static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Files that are remembered so. The log has no warning of one more.
const MAX_WARNED: usize = 1024;

/// Permissions of users that neither own the file nor are of its group.
const OTHERS: u32 = 0o006;

/// Whether users beyond the owner and the group may read or write a file of this mode.
pub(crate) fn is_public(mode: u32) -> bool {
    mode & OTHERS != 0
}

/// Warns, once for each path, when other users may read or write the file of a secret.
pub fn warn_if_public(path: &Path, content: Content, file: &File) {
    let Ok(mode) = file.metadata().map(|metadata| metadata.mode() & 0o7777) else { return };
    if !is_public(mode) {
        return;
    }
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned.len() < MAX_WARNED && warned.insert(path.into()) {
        let (path, name) = (path.display(), content.name);
        tracing::warn!("{path}: other users may read or write {name} (mode {mode:04o}); use chmod o-rw");
    }
}
